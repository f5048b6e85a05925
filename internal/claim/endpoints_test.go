// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"bytes"
	"encoding/base64"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// key returns the public key of 32 bytes n.
func key(n byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, 32)) }

// p256Key is the base point of P-256, uncompressed.
const p256Key = "BGsX0fLhLEJH+Lzm5WOkQPJ3A32BLeszoPShOUXYmMKWT+NC4v4af5uO5+tKfA+eFivOM1drMV7Oy7ZAaDe/UfU="

func TestEndpoints(t *testing.T) {
	private := func(ips ...string) (out []v1alpha1.EndpointAddress) {
		for _, ip := range ips {
			out = append(out, v1alpha1.EndpointAddress{Type: v1alpha1.AddressPrivate, IP: ip})
		}
		return out
	}
	good := v1alpha1.Endpoint{Gateway: "g", PublicKey: key(1), Addresses: private("192.0.2.1"), MTU: 1420}
	last := []v1alpha1.Endpoint{good}
	o := Others{Cluster: "c1", Keys: map[string]string{key(9): "c9", key(1): "c1"}, Routed: new(netfacts.Owners)}
	o.Routed.Add(netip.MustParsePrefix("10.9.0.0/16"), "c9")
	for name, c := range map[string]struct {
		change func(*v1alpha1.Endpoint)
		want   string // of the error; the last good one stays in place
	}{
		"as it is":          {func(e *v1alpha1.Endpoint) {}, ""},
		"IPv6":              {func(e *v1alpha1.Endpoint) { e.Addresses = private("2001:db8::1") }, ""},
		"one bad address":   {func(e *v1alpha1.Endpoint) { e.Addresses = private("127.0.0.1", "192.0.2.1") }, ""},
		"unknown MTU":       {func(e *v1alpha1.Endpoint) { e.MTU = 0 }, ""},
		"key of c9":         {func(e *v1alpha1.Endpoint) { e.PublicKey = key(9) }, "a gateway or node of c9"},
		"next key":          {func(e *v1alpha1.Endpoint) { e.NextPublicKey = key(3) }, ""},
		"promoted key":      {func(e *v1alpha1.Endpoint) { e.NextPublicKey = e.PublicKey }, ""},
		"next key of c9":    {func(e *v1alpha1.Endpoint) { e.NextPublicKey = key(9) }, "a gateway or node of c9"},
		"zero next key":     {func(e *v1alpha1.Endpoint) { e.NextPublicKey = key(0) }, "all zero"},
		"zero key":          {func(e *v1alpha1.Endpoint) { e.PublicKey = key(0) }, "all zero"},
		"short key":         {func(e *v1alpha1.Endpoint) { e.PublicKey = "AAAA" }, "not base64 of 32 bytes"},
		"key with newlines": {func(e *v1alpha1.Endpoint) { e.PublicKey = key(1)[:20] + "\n" + key(1)[20:] }, "not base64"},
		"slot":              {func(e *v1alpha1.Endpoint) { e.Slot = 16 }, "slot 16"},
		"pod of c9":         {func(e *v1alpha1.Endpoint) { e.Addresses = private("10.9.0.1") }, "of c9"},
		"loopback":          {func(e *v1alpha1.Endpoint) { e.Addresses = private("127.0.0.1") }, "not the address of a node"},
		"multicast":         {func(e *v1alpha1.Endpoint) { e.Addresses = private("224.0.0.1") }, "not the address of a node"},
		"link-local":        {func(e *v1alpha1.Endpoint) { e.Addresses = private("fe80::1") }, "not the address of a node"},
		"zone":              {func(e *v1alpha1.Endpoint) { e.Addresses = private("2001:db8::1%eth0") }, "not a plain IP"},
		"mapped":            {func(e *v1alpha1.Endpoint) { e.Addresses = private("::ffff:192.0.2.1") }, "not a plain IP"},
		"name":              {func(e *v1alpha1.Endpoint) { e.Addresses = private("gateway") }, "not a plain IP"},
		"type":              {func(e *v1alpha1.Endpoint) { e.Addresses[0].Type = "Secret" }, "address type"},
		"key for ipsec":     {func(e *v1alpha1.Endpoint) { e.IPsecPublicKey = p256Key }, ""},
		"no point of P-256": {func(e *v1alpha1.Endpoint) {
			e.IPsecPublicKey = p256Key[:40] + p256Key[44:48] + p256Key[44:]
		}, "no uncompressed"},
		"a key of X25519": {func(e *v1alpha1.Endpoint) { e.IPsecPublicKey = key(1) }, "not base64 of 65 bytes"},
		"MTU":             {func(e *v1alpha1.Endpoint) { e.MTU = 40 }, "MTU 40"},
	} {
		t.Run(name, func(t *testing.T) {
			e := *good.DeepCopy()
			c.change(&e)
			got, errs := Endpoints([]v1alpha1.Endpoint{e}, last, o)
			if len(got) != 1 || len(got[0].Addresses) == 0 {
				t.Fatalf("endpoints %v, errors %v", got, errs)
			}
			if c.want == "" && len(errs) > 0 || c.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want)) {
				t.Errorf("errors %v, want %q", errs, c.want)
			}
			if c.want != "" && (got[0].PublicKey != good.PublicKey || got[0].Addresses[0].IP != "192.0.2.1") {
				t.Errorf("the last good endpoint is not kept: %v", got)
			}
		})
	}
	first, second := *good.DeepCopy(), *good.DeepCopy()
	first.NextPublicKey, second.Gateway, second.Slot, second.PublicKey = key(3), "h", 1, key(3)
	if got, errs := Endpoints([]v1alpha1.Endpoint{first, second}, nil, o); len(got) != 1 || len(errs) != 1 {
		t.Errorf("two gateways with one key, which is the next of one: %v, %v", got, errs)
	}
	twice := *good.DeepCopy()
	twice.Gateway, twice.PublicKey = "h", key(2)
	if got, errs := Endpoints([]v1alpha1.Endpoint{good, twice}, nil, o); len(got) != 1 || len(errs) != 1 {
		t.Errorf("two gateways of one slot: %v, %v", got, errs)
	}
	if got, errs := Endpoints(nil, last, o); len(got) != 0 || len(errs) != 0 {
		t.Errorf("a gateway that is gone: %v, %v", got, errs)
	}
}

// TestObserved: what others claim of a gateway is one more address to try, in no network, and replaces nothing.
func TestObserved(t *testing.T) {
	e := v1alpha1.Endpoint{Gateway: "g", PublicKey: key(1), Addresses: []v1alpha1.EndpointAddress{
		{Type: v1alpha1.AddressPrivate, IP: "10.0.0.5"}, {Type: v1alpha1.AddressPublic, IP: "192.0.2.1"}}}
	o := Others{Cluster: "c1", Routed: new(netfacts.Owners)}
	o.Routed.Add(netip.MustParsePrefix("10.9.0.0/16"), "c9")
	o.Routed.Add(netip.MustParsePrefix("10.1.0.0/16"), "c1")
	at := func(ip string, port int32) v1alpha1.ObservedAddress {
		return v1alpha1.ObservedAddress{IP: ip, Port: port}
	}
	const nat = "203.0.113.7"
	for name, c := range map[string]struct {
		inForce, claims, want []v1alpha1.ObservedAddress
	}{
		"none":      {nil, nil, nil},
		"one":       {nil, []v1alpha1.ObservedAddress{at(nat, 0)}, []v1alpha1.ObservedAddress{at(nat, 0)}},
		"published": {nil, []v1alpha1.ObservedAddress{at("192.0.2.1", 0), at("10.0.0.5", 0)}, nil},
		"at another port": {nil, []v1alpha1.ObservedAddress{at("192.0.2.1", 41000)},
			[]v1alpha1.ObservedAddress{at("192.0.2.1", 41000)}},
		"what is no address of a host": {nil, []v1alpha1.ObservedAddress{at("127.0.0.1", 0), at("224.0.0.1", 0), at("::1", 0),
			at("fe80::1", 0), at("0.0.0.0", 0), at("", 0), at("x", 0), at("::ffff:192.0.2.9", 0)}, nil},
		"what is no port":      {nil, []v1alpha1.ObservedAddress{at(nat, -1), at(nat, 65536)}, nil},
		"in another's network": {nil, []v1alpha1.ObservedAddress{at("10.9.0.1", 0)}, nil},
		"in its own network":   {nil, []v1alpha1.ObservedAddress{at("10.1.0.1", 0)}, nil},
		"those that more claim come first": {nil,
			[]v1alpha1.ObservedAddress{at("203.0.113.1", 0), at(nat, 0), at(nat, 0)},
			[]v1alpha1.ObservedAddress{at(nat, 0), at("203.0.113.1", 0)}},
		"what is in force stays first": {[]v1alpha1.ObservedAddress{at("203.0.113.9", 0), at("203.0.113.1", 0)},
			[]v1alpha1.ObservedAddress{at("203.0.113.1", 0), at(nat, 0), at(nat, 0)},
			[]v1alpha1.ObservedAddress{at("203.0.113.1", 0), at(nat, 0)}},
		"no more than four": {[]v1alpha1.ObservedAddress{at("203.0.113.6", 0)},
			[]v1alpha1.ObservedAddress{at("203.0.113.1", 0), at("203.0.113.2", 0), at("203.0.113.3", 0), at("203.0.113.4", 0),
				at("203.0.113.5", 0), at("203.0.113.6", 0)},
			[]v1alpha1.ObservedAddress{at("203.0.113.6", 0), at("203.0.113.1", 0), at("203.0.113.2", 0), at("203.0.113.3", 0)}},
	} {
		if got := Observed(e, c.inForce, c.claims, o); !slices.Equal(got, c.want) {
			t.Errorf("%s: expected %v, found %v", name, c.want, got)
		}
	}
	e.Observed = []v1alpha1.ObservedAddress{at(nat, 0)}
	if err := CheckEndpoint(&e, o); err != nil || e.Observed != nil {
		t.Errorf("what a gateway says of itself: expected nothing of it to count, found %v, %v", e.Observed, err)
	}
}
