// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// Probes are IPv6 between two gateways whose kernels have it, and else IPv4. In the local cluster they are IPv4 if
// any of its gateways has no IPv6, or this node.

// probing says whether this node probes gateways and, if it is one, answers.
func (v *view) probing() bool { return len(v.Local.Gateways) > 0 }

// probeFamily is that of the probes between this gateway and a remote one.
func (v *view) probeFamily(g topology.Gateway) Family {
	if v.facts.IPv6 && !g.IPv4Probes {
		return IPv6
	}
	return IPv4
}

// localProbeFamily is that of the probes in the local cluster.
func localProbeFamily(t topology.Topology, n NodeFacts) Family {
	if n.IPv6 && !slices.ContainsFunc(t.Local.Gateways, func(g topology.Gateway) bool { return g.IPv4Probes }) {
		return IPv6
	}
	return IPv4
}

func (v *view) localProbeFamily() Family { return localProbeFamily(v.Topology, v.facts) }

// probesBy says whether this node sends or answers probes of a family.
func (v *view) probesBy(f Family) bool {
	return v.probing() && (f == IPv6 && v.facts.IPv6 || f == v.localProbeFamily() || f == IPv4 && len(v.contested) > 0)
}

// probeOf returns the address of a family at which a gateway of an ID answers probes.
func probeOf(id PeerID, f Family) netip.Addr {
	if f == IPv4 {
		return ProbeIPv4(id)
	}
	return ULA(id)
}

// nextProbe is the ID from which the addresses of the cables with next keys are derived: at either end they may have
// the key of the usual ones.
func nextProbe(id PeerID) PeerID { return "next " + id }

// vxlanProbe is the same of the cables by VXLAN.
func vxlanProbe(id PeerID) PeerID { return "vxlan " + id }

// ipsecProbe is the same of the cables by IPsec.
func ipsecProbe(id PeerID) PeerID { return "by ipsec " + id }

// probeID is the ID from which the address is derived at which a remote gateway is probed by a cable.
func probeID(g topology.Gateway) PeerID {
	switch {
	case g.IPsec:
		return ipsecProbe(PeerOf(g))
	case g.VTEP.IsValid():
		return vxlanProbe(PeerOf(g))
	case g.Next:
		return nextProbe(PeerOf(g))
	}
	return PeerOf(g)
}

// LocalProbe is the address at which a node probes a gateway of its own cluster.
func LocalProbe(t topology.Topology, n NodeFacts, g topology.Gateway) netip.Addr {
	return probeOf(PeerOf(g), localProbeFamily(t, n))
}

// NodeProbes are the addresses that the probes of the nodes of the local cluster come from, by their names, but for
// nodes that the overlay does not reach.
func NodeProbes(t topology.Topology, n NodeFacts) map[string]netip.Addr {
	outer, family := overlayFamily(t.Local.Nodes), localProbeFamily(t, n)
	out := make(map[string]netip.Addr, len(t.Local.Nodes))
	for _, node := range t.Local.Nodes {
		if address := addressOf(node, outer); address.IsValid() {
			out[node.Name] = overlayProbe(address, family)
		}
	}
	return out
}

// remoteProbe is the address at which this gateway probes a remote one, by the usual cables or by those with next keys.
// It is invalid where two have the same of IPv4: to let one of them have it would let a cluster take it from another.
func (v *view) remoteProbe(g topology.Gateway) netip.Addr {
	f := v.probeFamily(g)
	a := probeOf(probeID(g), f)
	if f == IPv4 && v.contested[a] > 1 {
		return netip.Addr{}
	}
	return a
}

// contestedProbes counts this gateway and the remote ones by their addresses of IPv4 for probes. It is nil if no remote
// one is probed by IPv4.
func (v *view) contestedProbes() map[netip.Addr]int {
	var out map[netip.Addr]int
	for _, r := range direct(v.Remotes) {
		for _, g := range r.Gateways {
			if v.probeFamily(g) != IPv4 {
				continue
			}
			if out == nil {
				out = map[netip.Addr]int{}
				for _, own := range v.ownProbes() {
					out[ProbeIPv4(own)]++
				}
			}
			out[ProbeIPv4(probeID(g))]++
		}
	}
	return out
}

// ownProbes are the IDs from which the addresses are derived at which this gateway is probed, on any of its cables.
func (v *view) ownProbes() []PeerID {
	out := []PeerID{v.facts.ID, nextProbe(v.facts.ID), vxlanProbe(v.facts.ID), ipsecProbe(v.facts.ID)}
	if v.facts.NextID != "" {
		out = append(out, nextProbe(v.facts.NextID))
	}
	if v.facts.FormerID != "" {
		out = append(out, v.facts.FormerID)
	}
	return slices.Compact(out)
}

// probedAt returns the addresses of a family of a cable of this gateway at which it is probed. The first is the one
// that its own probes come from.
func (v *view) probedAt(slot int, f Family) []netip.Addr {
	switch {
	case isIPsec(slot):
		return []netip.Addr{probeOf(ipsecProbe(v.facts.ID), f)}
	case isVXLAN(slot):
		return []netip.Addr{probeOf(vxlanProbe(v.facts.ID), f)}
	case isNext(slot):
		return []netip.Addr{probeOf(nextProbe(v.id(slot)), f)}
	case v.facts.FormerID != "":
		return []netip.Addr{probeOf(v.facts.ID, f), probeOf(v.facts.FormerID, f)}
	}
	return []netip.Addr{probeOf(v.facts.ID, f)}
}

// probeAddresses are what this node probes from and answers at.
func (v *view) probeAddresses() []Address {
	if !v.probing() {
		return nil
	}
	f := v.localProbeFamily()
	out := []Address{{OverlayLink, host(overlayProbe(v.on(v.self), f)), f == IPv4}}
	for _, j := range v.slots {
		for _, f := range []Family{IPv4, IPv6} {
			if !v.probesBy(f) {
				continue
			}
			for _, a := range v.probedAt(j, f) {
				out = append(out, Address{CableLink(j), host(a), f == IPv4})
			}
		}
	}
	return out
}

// probeRules let a cable deliver probes of a family to this gateway, and answers to its own.
func (v *view) probeRules(f Family) rules {
	if len(v.slots) == 0 || !v.probesBy(f) {
		return nil
	}
	from, match := ULAPrefix(), "icmpv6 type { echo-request, echo-reply }"
	if f == IPv4 {
		from, match = netfacts.ProbePrefix4(), "icmp type { echo-reply, echo-request }"
	}
	at := []netip.Addr{probeOf(v.facts.ID, f)}
	for _, special := range []func(int) bool{isNext, isOpen, isIPsec} {
		if i := slices.IndexFunc(v.slots, special); i >= 0 {
			at = append(at, v.probedAt(v.slots[i], f)[0])
		}
	}
	var r rules
	for _, to := range at {
		r.add(`iifname "%s*" %s saddr %s %s daddr %s %s accept`, CablePrefix, f, from, f, to, match)
	}
	return r
}

// probed routes the addresses that probes go to and come from: of remote gateways each by its cable, of the
// local ones over the overlay, and on a gateway so those of the nodes that probe it. Of nodes that have the same
// address of IPv4 one has it, and to the others this node does not answer.
func (v *view) probed() []Route {
	if !v.probing() {
		return nil
	}
	var out []Route
	seen := map[netip.Addr]bool{}
	add := func(dst, source netip.Addr, hop NextHop) {
		if seen[dst] {
			return
		}
		seen[dst] = true
		out = append(out, Route{Table: OutboundTable, Dst: host(dst), Metric: RouteMetric, Type: Unicast,
			NextHops: []NextHop{hop}, Source: source})
	}
	if v.gateway != nil {
		for _, r := range direct(v.Remotes) {
			for _, g := range r.Gateways {
				if to := v.remoteProbe(g); to.IsValid() {
					f := v.probeFamily(g)
					add(to, v.probedAt(g.Slot, f)[0], NextHop{Link: CableLink(g.Slot), Via: vxlanHop(g, f), Weight: 1})
				}
			}
		}
	}
	f := v.localProbeFamily()
	own := overlayProbe(v.on(v.self), f)
	for _, n := range v.others() {
		hop := NextHop{OverlayLink, v.nextHop(n, f), 1}
		if !hop.Via.IsValid() {
			continue
		}
		if v.gateway != nil {
			add(overlayProbe(v.on(n), f), own, hop)
		}
		for _, g := range v.Local.Gateways {
			if g.Node == n.Name && g.PublicKey != (topology.Key{}) {
				add(probeOf(PeerOf(g), f), own, hop)
			}
		}
	}
	return out
}
