// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

func TestParseReport(t *testing.T) {
	for name, c := range map[string]struct {
		raw    string
		floor  int64
		known  bool
		reason string
	}{
		"good":                {raw: `{"observedRevision":3}`, floor: 3, known: true},
		"none":                {raw: ``},
		"empty":               {raw: `{}`},
		"null":                {raw: `null`},
		"of the past":         {raw: `{"observedRevision":2}`, floor: 3},
		"not an object":       {raw: `[]`, reason: v1alpha1.ReasonInvalidNetworks},
		"of the wrong types":  {raw: `{"observedRevision":"3"}`, reason: v1alpha1.ReasonInvalidNetworks},
		"cut off":             {raw: `{"observedRevision":3`, reason: v1alpha1.ReasonInvalidNetworks},
		"2 MB":                {raw: `{"agentVersion":"` + strings.Repeat("x", 2<<20) + `"}`, reason: v1alpha1.ReasonStatusTooLarge},
		"too many endpoints":  {raw: `{"observedRevision":3,"endpoints":[{}` + strings.Repeat(",{}", 16) + `]}`, reason: v1alpha1.ReasonStatusTooLarge},
		"too many pod CIDRs":  {raw: `{"observedRevision":3,"networks":{"podCIDRs":[""` + strings.Repeat(`,""`, 1024) + `]}}`, reason: v1alpha1.ReasonStatusTooLarge},
		"too many conditions": {raw: `{"observedRevision":3,"conditions":[{}` + strings.Repeat(`,{}`, 16) + `]}`, reason: v1alpha1.ReasonStatusTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			r := ParseReport("c1", []byte(c.raw), c.floor)
			if r.Known != c.known {
				t.Errorf("known: %v", r.Known)
			}
			switch {
			case c.reason == "" && r.Problem != nil:
				t.Errorf("problem %v", *r.Problem)
			case c.reason != "" && (r.Problem == nil || r.Problem.Reason != c.reason):
				t.Errorf("problem %v, want %s", r.Problem, c.reason)
			case r.Problem != nil && len(r.Problem.Message) > maxMessage:
				t.Errorf("a message of %d bytes", len(r.Problem.Message))
			}
		})
	}
}

func key(n byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, 32)) }

func TestEndpoints(t *testing.T) {
	private := func(ips ...string) (out []v1alpha1.EndpointAddress) {
		for _, ip := range ips {
			out = append(out, v1alpha1.EndpointAddress{Type: v1alpha1.AddressPrivate, IP: ip})
		}
		return out
	}
	good := v1alpha1.Endpoint{Gateway: "g", PublicKey: key(1), Addresses: private("192.0.2.1"), MTU: 1420}
	last := []v1alpha1.Endpoint{good}
	o := others{cluster: "c1", keys: map[string]string{key(9): "c9", key(1): "c1"}, routed: new(netfacts.Owners)}
	o.routed.Add(netip.MustParsePrefix("10.9.0.0/16"), "c9")
	for name, c := range map[string]struct {
		change func(*v1alpha1.Endpoint)
		want   string // of the error; the last good one stays in place
	}{
		"as it is":          {func(e *v1alpha1.Endpoint) {}, ""},
		"IPv6":              {func(e *v1alpha1.Endpoint) { e.Addresses = private("2001:db8::1") }, ""},
		"one bad address":   {func(e *v1alpha1.Endpoint) { e.Addresses = private("127.0.0.1", "192.0.2.1") }, ""},
		"unknown MTU":       {func(e *v1alpha1.Endpoint) { e.MTU = 0 }, ""},
		"key of c9":         {func(e *v1alpha1.Endpoint) { e.PublicKey = key(9) }, "a gateway of c9"},
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
		"MTU":               {func(e *v1alpha1.Endpoint) { e.MTU = 40 }, "MTU 40"},
	} {
		t.Run(name, func(t *testing.T) {
			e := *good.DeepCopy()
			c.change(&e)
			got, errs := endpoints([]v1alpha1.Endpoint{e}, last, o)
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
	twice := *good.DeepCopy()
	twice.Gateway, twice.PublicKey = "h", key(2)
	if got, errs := endpoints([]v1alpha1.Endpoint{good, twice}, nil, o); len(got) != 1 || len(errs) != 1 {
		t.Errorf("two gateways of one slot: %v, %v", got, errs)
	}
	if got, errs := endpoints(nil, last, o); len(got) != 0 || len(errs) != 0 {
		t.Errorf("a gateway that is gone: %v, %v", got, errs)
	}
}

// FuzzReport feeds Decide whatever a member could write. What comes out must be valid, and what the
// others are told of a third member must not depend on it.
func FuzzReport(f *testing.F) {
	for _, n := range []int{2, 3} {
		raw, err := json.Marshal(reported(n))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"observedRevision":1,"networks":{"podCIDRs":["10.1.0.0/16","0.0.0.0/0"],"serviceCIDRs":["::/0"]}}`))
	f.Add([]byte(`{"observedRevision":1,"endpoints":[{"gateway":"g","publicKey":"AQ==","addresses":[{"type":"Private","ip":"10.1.0.1"}]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		in := Input{Now: time.Unix(1e9, 0), Members: []Member{known(1), known(3), known(2)}}
		in.Set.Spec.Shards = 4
		in.Members[2].Report = ParseReport("c2", raw, 0)
		d := Decide(in)
		for name, status := range d.Statuses {
			if _, err := parseClaim(status.Networks, status.NodeCIDRs); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, r := range d.Peerings["c1"].RemoteClusters {
			for _, e := range r.Endpoints {
				if err := validEndpoint(&e, others{routed: new(netfacts.Owners)}); err != nil {
					t.Errorf("c1 is told of gateway %q of %s: %v", e.Gateway, r.Name, err)
				}
			}
			if r.Name == "c3" && r.Networks.PodCIDRs[0] != "10.3.0.0/16" {
				t.Errorf("c1 is told that c3 has %v", r.Networks)
			}
		}
		if len(d.Peerings["c1"].RemoteClusters) == 0 {
			t.Error("c1 has lost c3")
		}
	})
}

// reported are the facts of cluster n.
func reported(n int) v1alpha1.PeeringStatus {
	return v1alpha1.PeeringStatus{
		ObservedRevision: 1,
		Networks:         v1alpha1.Networks{PodCIDRs: []string{fmt.Sprintf("10.%d.0.0/16", n)}, ServiceCIDRs: []string{fmt.Sprintf("10.%d.0.0/16", 100+n)}},
		NodeCIDRs:        []string{fmt.Sprintf("192.168.%d.1/32", n)},
		Endpoints: []v1alpha1.Endpoint{{
			Gateway: "g", PublicKey: key(byte(n)),
			Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPrivate, IP: fmt.Sprintf("192.168.%d.1", n)}},
		}},
	}
}

// known is cluster n, which reports and is as old as its number is high.
func known(n int) Member {
	m := Member{Writable: true, Report: Report{Known: true, Status: reported(n)}}
	m.Record.Name = fmt.Sprintf("c%d", n)
	m.Record.CreationTimestamp = metav1.Unix(int64(n), 0)
	m.Record.Spec.Phase = v1alpha1.MemberActive
	return m
}
