// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// keySize of an X25519 public key, in bytes.
const keySize = 32

// maxSlot is the highest gateway slot.
const maxSlot = 15

// minMTU is the smallest inner packet worth a tunnel; 0 stands for unknown.
const minMTU = 576

// endpoints validates what a member reports of its gateways, one by one. A bad one becomes an error and
// leaves the gateway's last good Endpoint, if there is one, in place.
func endpoints(reported, lastGood []v1alpha1.Endpoint, others others) ([]v1alpha1.Endpoint, []error) {
	var good []v1alpha1.Endpoint
	var errs []error
	gateways, slots, keys := map[string]bool{}, map[int32]bool{}, map[string]bool{}
	add := func(e v1alpha1.Endpoint) {
		good = append(good, e)
		gateways[e.Gateway], slots[e.Slot], keys[e.PublicKey] = true, true, true
	}
	var bad []string
	for _, e := range reported {
		err := validEndpoint(&e, others)
		switch {
		case err != nil:
		case gateways[e.Gateway] || slots[e.Slot] || keys[e.PublicKey]:
			err = errors.New("its name, slot or key is another gateway's of the same cluster")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("gateway %q: %w", clip(e.Gateway), err))
			bad = append(bad, e.Gateway)
			continue
		}
		add(e)
	}
	for _, e := range lastGood {
		if slices.Contains(bad, e.Gateway) && !gateways[e.Gateway] && !slots[e.Slot] && !keys[e.PublicKey] {
			add(e)
		}
	}
	slices.SortFunc(good, func(a, b v1alpha1.Endpoint) int { return int(a.Slot - b.Slot) })
	return good, errs
}

// others is what the rest of the ClusterSet has already, by the name of the cluster.
type others struct {
	keys   map[string]string
	routed map[string][]netip.Prefix
}

// validEndpoint checks an Endpoint and leaves only its usable addresses in it.
func validEndpoint(e *v1alpha1.Endpoint, others others) error {
	if problems := validation.IsDNS1123Subdomain(e.Gateway); len(problems) > 0 {
		return errors.New("the name is not a node's")
	}
	if e.Slot < 0 || e.Slot > maxSlot {
		return fmt.Errorf("slot %d is not in 0..%d", e.Slot, maxSlot)
	}
	if err := validKey(e.PublicKey); err != nil {
		return err
	}
	if owner, ok := others.keys[e.PublicKey]; ok {
		return fmt.Errorf("its public key is that of a gateway of %s", owner)
	}
	if e.MTU != 0 && (e.MTU < minMTU || e.MTU > 65535) {
		return fmt.Errorf("MTU %d is not in %d..65535", e.MTU, minMTU)
	}
	if len(e.Addresses) > maxAddresses {
		return fmt.Errorf("%d addresses, at most %d are accepted", len(e.Addresses), maxAddresses)
	}
	var usable []v1alpha1.EndpointAddress
	var firstErr error
	for _, a := range e.Addresses {
		if err := validAddress(a, others.routed); err != nil {
			if firstErr == nil {
				firstErr = err
			}
			continue
		}
		usable = append(usable, a)
	}
	if len(usable) == 0 && firstErr != nil {
		return firstErr
	}
	e.Addresses = usable
	return nil
}

func validKey(text string) error {
	key, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(key) != keySize || len(text) != base64.StdEncoding.EncodedLen(keySize) {
		return fmt.Errorf("the public key is not base64 of %d bytes", keySize)
	}
	if slices.Max(key) == 0 {
		return errors.New("the public key is zero")
	}
	return nil
}

// validAddress refuses, besides what is no address of a host, one in another member's networks: a
// gateway's address is kept out of the tunnels, and the member would lose it.
func validAddress(a v1alpha1.EndpointAddress, routed map[string][]netip.Prefix) error {
	switch a.Type {
	case v1alpha1.AddressPrivate, v1alpha1.AddressPublic, v1alpha1.AddressLoadBalancer:
	default:
		return fmt.Errorf("address type %q is none of Private, Public, LoadBalancer", clip(string(a.Type)))
	}
	ip, err := netip.ParseAddr(a.IP)
	if err != nil {
		return fmt.Errorf("address %q is not an IP address", clip(a.IP))
	}
	if ip.Zone() != "" || ip.Is4In6() || !ip.IsGlobalUnicast() || ip.String() != a.IP {
		return fmt.Errorf("address %q is not a plain unicast address", clip(a.IP))
	}
	for cluster, prefixes := range routed {
		for _, p := range prefixes {
			if p.Contains(ip) {
				return fmt.Errorf("address %s is in network %s of %s", ip, p, cluster)
			}
		}
	}
	return nil
}

// addressesOf returns the addresses of Endpoints that were validated.
func addressesOf(endpoints []v1alpha1.Endpoint) []netip.Addr {
	var out []netip.Addr
	for _, e := range endpoints {
		for _, a := range e.Addresses {
			if ip, err := netip.ParseAddr(a.IP); err == nil {
				out = append(out, ip)
			}
		}
	}
	return out
}
