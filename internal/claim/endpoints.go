// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// maxAddresses of one gateway: the limit of the CRD, which a hostile member's API server does not enforce.
const maxAddresses = 16

// Endpoints validates what a member reports of its gateways, one by one. A bad one becomes an error and
// leaves the gateway's last good Endpoint, if there is one, in place.
func Endpoints(reported, lastGood []v1alpha1.Endpoint, others Others) ([]v1alpha1.Endpoint, []error) {
	var good []v1alpha1.Endpoint
	var errs []error
	gateways, slots, keys := map[string]bool{}, map[int32]bool{}, map[string]bool{}
	add := func(e v1alpha1.Endpoint) {
		good = append(good, e)
		gateways[e.Gateway], slots[e.Slot] = true, true
		for _, key := range KeysOf(e) {
			keys[key] = true
		}
	}
	taken := func(e v1alpha1.Endpoint) bool {
		return gateways[e.Gateway] || slots[e.Slot] ||
			slices.ContainsFunc(KeysOf(e), func(key string) bool { return keys[key] })
	}
	var bad []string
	for _, e := range reported {
		err := CheckEndpoint(&e, others)
		switch {
		case err != nil:
		case taken(e):
			err = errors.New("its name, slot or key is another gateway's of the same cluster")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("gateway %s: %w", clip.Quote(e.Gateway), err))
			bad = append(bad, e.Gateway)
			continue
		}
		add(e)
	}
	for _, e := range lastGood {
		if slices.Contains(bad, e.Gateway) && !taken(e) {
			add(e)
		}
	}
	slices.SortFunc(good, func(a, b v1alpha1.Endpoint) int { return int(a.Slot - b.Slot) })
	return good, errs
}

// KeysOf returns the public keys of a gateway: one, and the one that follows while there is one.
func KeysOf(e v1alpha1.Endpoint) []string {
	if e.NextPublicKey == "" || e.NextPublicKey == e.PublicKey {
		return []string{e.PublicKey}
	}
	return []string{e.PublicKey, e.NextPublicKey}
}

// Others is what the rest of the ClusterSet has already.
type Others struct {
	// Cluster whose endpoints are judged; what is its own is nobody else's.
	Cluster string
	Keys    map[string]string // cluster by public key
	Routed  *netfacts.Owners  // networks of clusters
	// Home are networks of clusters that are known by blocks of global addresses, where gateways can have no address
	// either; nil if they can.
	Home *netfacts.Owners
}

// CheckEndpoint checks an Endpoint and leaves only its usable addresses in it.
func CheckEndpoint(e *v1alpha1.Endpoint, others Others) error {
	if problems := validation.IsDNS1123Subdomain(e.Gateway); len(problems) > 0 {
		return errors.New("the name is not a node's")
	}
	if err := netfacts.CheckSlot(e.Slot); err != nil {
		return err
	}
	for _, key := range KeysOf(*e) {
		if _, err := netfacts.ParsePublicKey(key); err != nil {
			return err
		}
		if owner, ok := others.Keys[key]; ok && owner != others.Cluster {
			return fmt.Errorf("its public key is that of a gateway or node of %s", owner)
		}
	}
	if e.IPsecPublicKey != "" {
		// That it is nobody else's does not matter: without the private key it is of no use.
		if _, err := netfacts.ParseIPsecKey(e.IPsecPublicKey); err != nil {
			return err
		}
	}
	if err := netfacts.CheckMTU(e.MTU); err != nil {
		return err
	}
	if len(e.Addresses) > maxAddresses {
		return fmt.Errorf("%d addresses, at most %d are accepted", len(e.Addresses), maxAddresses)
	}
	var usable []v1alpha1.EndpointAddress
	var firstErr error
	for _, a := range e.Addresses {
		ip, err := validAddress(a, others)
		if err != nil {
			if firstErr == nil {
				firstErr = err
			}
			continue
		}
		usable = append(usable, v1alpha1.EndpointAddress{Type: a.Type, IP: ip.String()})
	}
	if len(usable) == 0 && firstErr != nil {
		return firstErr
	}
	e.Addresses, e.Observed = usable, nil // where it is seen others say
	return nil
}

// Observed returns where a gateway is seen, by what others claim of it, those of one member after the other. Each claim
// is one more address, and takes the place of none that the gateway publishes. It is in no network of a cluster, of its
// own neither: packets to a gateway's address stay out of the tunnels. What was in force stays if it is still claimed,
// the others follow by how many claim it.
func Observed(e v1alpha1.Endpoint, inForce []v1alpha1.ObservedAddress, claims []v1alpha1.ObservedAddress,
	others Others) []v1alpha1.ObservedAddress {
	others.Cluster = "" // nobody's networks
	votes := map[v1alpha1.ObservedAddress]int{}
	for _, c := range claims {
		ip, err := validAddress(v1alpha1.EndpointAddress{Type: v1alpha1.AddressPublic, IP: c.IP}, others)
		published := slices.ContainsFunc(e.Addresses, func(a v1alpha1.EndpointAddress) bool { return a.IP == ip.String() })
		if err != nil || c.Port < 0 || c.Port > 65535 || published && c.Port == 0 {
			continue
		}
		votes[v1alpha1.ObservedAddress{IP: ip.String(), Port: c.Port}]++
	}
	rank := func(a v1alpha1.ObservedAddress) int {
		if i := slices.Index(inForce, a); i >= 0 {
			return i
		}
		return len(inForce)
	}
	out := slices.SortedFunc(maps.Keys(votes), func(a, b v1alpha1.ObservedAddress) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(votes[b], votes[a]), strings.Compare(a.IP, b.IP),
			cmp.Compare(a.Port, b.Port))
	})
	return out[:min(len(out), v1alpha1.MaxObserved)]
}

// validAddress refuses, besides what is no address of a host, one in another member's networks: a
// gateway's address is kept out of the tunnels, and the member would lose it.
func validAddress(a v1alpha1.EndpointAddress, others Others) (netip.Addr, error) {
	if err := netfacts.CheckAddressType(a.Type); err != nil {
		return netip.Addr{}, err
	}
	ip, err := netfacts.ParseAddr(a.IP)
	if err != nil {
		return netip.Addr{}, err
	}
	if taken, ok := others.Routed.Overlap(netfacts.Host(ip), others.Cluster); ok {
		return netip.Addr{}, fmt.Errorf("address %s is in network %s of %s", ip, taken.Prefix, taken.Owner)
	}
	if others.Home != nil {
		if taken, ok := others.Home.Overlap(netfacts.Host(ip), others.Cluster); ok {
			return netip.Addr{}, fmt.Errorf("address %s is in network %s of %s, and this cluster gets no block of global "+
				"addresses by which that one could know it", ip, taken.Prefix, taken.Owner)
		}
	}
	return ip, nil
}

// addressesOf returns the addresses of Endpoints that were validated.
func addressesOf(endpoints []v1alpha1.Endpoint) []netip.Addr {
	var out []netip.Addr
	for _, e := range endpoints {
		for _, a := range e.Addresses {
			if ip, err := netfacts.ParseAddr(a.IP); err == nil {
				out = append(out, ip)
			}
		}
	}
	return out
}
