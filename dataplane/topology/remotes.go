// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// buildRemotes takes the networks of all clusters before any gateway: a gateway's address must not be
// somebody else's pod.
func (b *builder) buildRemotes(clusters []v1alpha1.RemoteCluster, relayed []v1alpha1.RelayedClusters) {
	clusters = unique(b, "RemoteCluster", clusters, func(c v1alpha1.RemoteCluster) string { return c.Name })
	clusters = slices.DeleteFunc(clusters, func(c v1alpha1.RemoteCluster) bool {
		if c.Name == b.Cluster {
			b.left("RemoteCluster/"+c.Name, "", faultf(ReasonDuplicate, "this is the local cluster's name"))
		}
		return c.Name == b.Cluster
	})
	for _, c := range clusters {
		b.Remotes = append(b.Remotes, b.remoteNetworks(c))
	}
	for i, c := range clusters {
		if c.Translated && !b.Local.Global.IsValid() {
			// What it knows this cluster by is not known here: its networks stay unreachable.
			b.left("RemoteCluster/"+c.Name, "translated", faultf(ReasonNoGlobalCIDR,
				"it knows this cluster by a global CIDR, and this cluster has none that can be used"))
			continue
		}
		if c.Relay == "" {
			b.Remotes[i].Gateways = b.remoteGateways(c)
		}
		b.Remotes[i].PathMTU = b.paths[c.Name]
	}
	b.buildVXLAN(clusters)
	b.buildMesh(clusters)
	b.buildRelays(clusters, relayed)
}

// remoteNetworks returns a remote cluster with those of its prefixes that are nobody else's.
func (b *builder) remoteNetworks(c v1alpha1.RemoteCluster) Remote {
	ref := "RemoteCluster/" + c.Name
	accept := func(field string, cidrs []string) []netip.Prefix {
		var out []netip.Prefix
		for _, cidr := range cidrs {
			p, f := parsePrefix(cidr)
			if f == nil {
				f = b.conflict(p)
			}
			if f != nil {
				b.left(ref, field, f)
				continue
			}
			out = append(out, p)
		}
		return out
	}
	pods := accept("networks.podCIDRs", c.Networks.PodCIDRs)
	for _, p := range pods {
		b.remote.Add(p, c.Name)
	}
	// Its services are none of its pods.
	services := accept("networks.serviceCIDRs", c.Networks.ServiceCIDRs)
	for _, p := range services {
		b.remote.Add(p, c.Name)
	}
	routed := slices.Concat(pods, services)
	block, ipv6 := b.remoteBlock(c)
	for _, p := range []netip.Prefix{block, ipv6} {
		if p.IsValid() {
			b.remote.Add(p, c.Name)
			routed = append(routed, p)
		}
	}
	return Remote{Name: c.Name, Routed: sorted(routed), Block: block, BlockIPv6: ipv6, Translated: c.Translated}
}

// conflict says who has what a remote cluster claims.
func (b *builder) conflict(p netip.Prefix) *fault {
	if node, ok := b.nodes.Overlap(p, nobody); ok {
		return faultf(ReasonContainsNode, "%s contains an address of local node %s", p, node.Owner)
	}
	if local, ok := b.local.Overlap(p, nobody); ok {
		return faultf(ReasonOverlap, "%s overlaps the local cluster (%s)", p, local.Owner)
	}
	for _, own := range b.protected {
		if own.Prefix.Overlaps(p) {
			return faultf(own.Reason, "%s overlaps %s (%s)", p, own.Prefix, own.What)
		}
	}
	if remote, ok := b.remote.Overlap(p, nobody); ok {
		return faultf(ReasonOverlap, "%s overlaps cluster %s", p, remote.Owner)
	}
	return nil
}

func (b *builder) remoteGateways(c v1alpha1.RemoteCluster) []Gateway {
	ref := "RemoteCluster/" + c.Name
	endpoints := slices.Clone(c.Endpoints)
	slices.SortFunc(endpoints, func(x, y v1alpha1.Endpoint) int {
		if c := cmp.Or(cmp.Compare(x.Slot, y.Slot), cmp.Compare(x.Gateway, y.Gateway)); c != 0 {
			return c
		}
		return cmp.Compare(fmt.Sprint(x), fmt.Sprint(y))
	})
	var out []Gateway
	slots, names := map[int]string{}, map[string]bool{}
	for _, e := range endpoints {
		part := "endpoint " + clip.Quote(e.Gateway)
		key, f := parseKey(e.PublicKey)
		switch other, used := slots[int(e.Slot)]; {
		case len(validation.IsDNS1123Subdomain(e.Gateway)) > 0:
			f = faultf(ReasonInvalidName, "not a DNS-1123 subdomain")
		case names[e.Gateway]:
			f = faultf(ReasonDuplicate, "there is another of that name")
		case netfacts.CheckSlot(e.Slot) != nil:
			f = faultOf(netfacts.CheckSlot(e.Slot))
		case used:
			f = faultf(ReasonDuplicate, "slot %d is that of %s", e.Slot, other)
		case f == nil && b.keys[key] != "":
			f = faultf(ReasonDuplicate, "public key is that of %s", b.keys[key])
		}
		if f != nil {
			b.left(ref, part, f)
			continue
		}
		slots[int(e.Slot)], names[e.Gateway] = e.Gateway, true
		b.keys[key] = keyOwner(c.Name, e.Gateway)
		out = append(out, Gateway{
			Node: e.Gateway, Slot: int(e.Slot), PublicKey: key, NextKey: b.nextKey(ref, part, e),
			Candidates: b.candidates(c.Name, part, e),
			MTU:        b.mtu(ref, part, e.MTU),
			IPv4Probes: e.IPv4Probes,
			IPsecKey:   b.ipsecKey(ref, part, e),
		})
	}
	return out
}

// nextKey returns the key that follows a gateway's, if it has a valid one that is no other gateway's.
func (b *builder) nextKey(ref, part string, e v1alpha1.Endpoint) Key {
	if e.NextPublicKey == "" {
		return Key{}
	}
	key, f := parseKey(e.NextPublicKey)
	if whose := b.keys[key]; f == nil && e.NextPublicKey != e.PublicKey && whose != "" {
		f = faultf(ReasonDuplicate, "next public key is that of %s", whose)
	}
	if f != nil {
		b.left(ref, part, f)
		return Key{}
	}
	if b.keys[key] == "" {
		b.keys[key] = fmt.Sprintf("%s of %s", e.Gateway, ref)
	}
	return key
}

// ipsecKey counts what cannot be used as none.
func (b *builder) ipsecKey(ref, part string, e v1alpha1.Endpoint) IPsecKey {
	if e.IPsecPublicKey == "" {
		return IPsecKey{}
	}
	key, err := netfacts.ParseIPsecKey(e.IPsecPublicKey)
	if err != nil {
		b.left(ref, part, faultOf(err))
	}
	return key
}

// candidates keeps the order, which is the gateway's preference, and has load balancers last. One inside another
// cluster's networks would draw that cluster's packets out of its cable.
func (b *builder) candidates(cluster, part string, e v1alpha1.Endpoint) []Candidate {
	last := func(a v1alpha1.EndpointAddress) bool { return a.Type == v1alpha1.AddressLoadBalancer }
	out := b.published(cluster, part, nil, slices.DeleteFunc(slices.Clone(e.Addresses), last))
	out = b.observed(out, e.Observed)
	return b.published(cluster, part, out, slices.DeleteFunc(slices.Clone(e.Addresses),
		func(a v1alpha1.EndpointAddress) bool { return !last(a) }))
}

// observed adds addresses at which other clusters claim to see a gateway. What is inside any network is none: its own
// cluster has not claimed it, and packets to that network would leave in clear. That is nobody's problem: the
// gateway's word is for others to judge, and one address less to try is no loss.
func (b *builder) observed(out []Candidate, addresses []v1alpha1.ObservedAddress) []Candidate {
	for _, address := range addresses[:min(len(addresses), v1alpha1.MaxObserved)] {
		a, f := parseAddr(address.IP)
		if f != nil || b.misplaced(nobody, a) != nil || address.Port < 0 || address.Port > 65535 {
			continue
		}
		port := uint16(address.Port)
		if !slices.ContainsFunc(out, func(c Candidate) bool { return c.Addr == a && c.Port == port }) {
			out = append(out, Candidate{Addr: a, Observed: true, Port: port})
		}
	}
	return out
}

// published adds the addresses that a gateway has by its own word.
func (b *builder) published(cluster, part string, out []Candidate, addresses []v1alpha1.EndpointAddress) []Candidate {
	for _, address := range addresses {
		a, f := parseAddr(address.IP)
		if f == nil {
			f = faultOf(netfacts.CheckAddressType(address.Type))
		}
		if _, ours := b.nodes.Overlap(netfacts.Host(a), nobody); f == nil && ours && address.Type == v1alpha1.AddressPrivate {
			continue // each in its own site, nodes may have the same addresses
		}
		if f == nil {
			f = b.misplaced(cluster, a)
		}
		if f != nil {
			b.left("RemoteCluster/"+cluster, part, f)
			continue
		}
		if !slices.ContainsFunc(out, func(c Candidate) bool { return c.Addr == a && c.Port == 0 }) {
			out = append(out, Candidate{Addr: a, Private: address.Type == v1alpha1.AddressPrivate})
		}
	}
	return out
}

// misplaced says why an address cannot be that of a cluster's gateway.
func (b *builder) misplaced(cluster string, a netip.Addr) *fault {
	host := netfacts.Host(a)
	if node, ok := b.nodes.Overlap(host, nobody); ok {
		return faultf(ReasonInvalidAddress, "%s is an address of local node %s", a, node.Owner)
	}
	if local, ok := b.local.Overlap(host, nobody); ok {
		return faultf(ReasonInvalidAddress, "%s is inside the local cluster (%s)", a, local.Owner)
	}
	if remote, ok := b.remote.Overlap(host, cluster); ok {
		return faultf(ReasonInvalidAddress, "%s is inside cluster %s", a, remote.Owner)
	}
	return nil
}

// String returns the key in base64, as wg prints it.
func (k Key) String() string { return base64.StdEncoding.EncodeToString(k[:]) }
