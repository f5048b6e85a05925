// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// For returns what a node's kernel should hold. Without remote clusters it holds nothing. A node that the
// topology does not know, or that lacks an address for the overlay, holds what FailClosed returns.
func For(t topology.Topology, n NodeFacts) Plan { return Fix(t, n).For(n) }

// view is the topology as one node sees it.
type view struct {
	topology.Topology
	facts NodeFacts
	self  topology.Node
	// gateway is this node's own, nil on a worker.
	gateway *topology.Gateway
	active  Active
	// outer is the family of the overlay's outer packets, families those that reach remote clusters, and
	// known those in which remote clusters have networks.
	outer           Family
	families, known []Family
	// slots of the remote gateways, each with its cable; none on a worker.
	slots []int
	// behind holds the clusters that are reached by a gateway of a slot, by slot.
	behind map[int][]topology.Remote
	// carriedFor is what the clusters behind each relay have, and relayed those between which this cluster is one; none on
	// a worker.
	carriedFor map[string][]netip.Prefix
	relayed    []relayed
	// byVXLAN are the remote gateways behind cables by VXLAN; none on a worker.
	byVXLAN []vxlanPeer
	// ipsecPeers are those of them within IPsec, and openPeers the others.
	ipsecPeers, openPeers []vxlanPeer
	// outers are the addresses, by family, at which remote gateways may take VXLAN from this one, if it has a cable to
	// them or not: their clusters may have heard of one that this has not. None on a worker.
	outers map[Family][]netip.Prefix
	// mesh are the nodes of other clusters that this node connects to.
	mesh  []meshPeer
	nodes map[string]topology.Node
	// sources are the addresses that the node's own packets to remote clusters carry, if it has one.
	sources map[Family]netip.Addr
	// contested counts the remote gateways that this one probes by IPv4, by their addresses.
	contested map[netip.Addr]int
	// destinations are what all remote clusters are routed by, sorted.
	destinations []destination
	// ownMTU is that of the cables of a gateway that has not said otherwise, and leastMTU that of the overlay.
	ownMTU, leastMTU int
}

// destination is a prefix of a remote cluster, by its place in the topology.
type destination struct {
	dst    netip.Prefix
	remote int
}

func newView(t topology.Topology, n NodeFacts, active Active) *view {
	v := &view{Topology: t, facts: n, active: active, nodes: make(map[string]topology.Node, len(t.Local.Nodes)),
		ownMTU: CableMTU(t, n.UnderlayMTU)}
	for _, node := range t.Local.Nodes {
		v.nodes[node.Name] = node
	}
	v.self = v.nodes[n.Name]
	v.outer = overlayFamily(t.Local.Nodes)
	for i, g := range t.Local.Gateways {
		if g.Node == n.Name {
			v.gateway = &t.Local.Gateways[i]
		}
	}
	v.sources = v.podAddresses()
	for _, f := range []Family{IPv4, IPv6} {
		if f == IPv6 && !n.IPv6 || !reaches(f, t.Remotes) {
			continue
		}
		v.known = append(v.known, f)
		if len(inFamily(f, t.Local.Announced)) > 0 {
			v.families = append(v.families, f)
		}
	}
	if v.gateway != nil {
		v.behind = bySlot(t.Remotes)
		v.carriedFor, v.relayed = prefixesBehind(t.Remotes), relayedOf(t)
		v.byVXLAN = vxlanPeersOf(direct(t.Remotes))
		for _, p := range v.byVXLAN {
			if p.gateway.IPsec {
				v.ipsecPeers = append(v.ipsecPeers, p)
			} else {
				v.openPeers = append(v.openPeers, p)
			}
		}
		if t.Cable.VXLANCablePort != 0 {
			v.outers = outersOf(t.Remotes)
		}
		v.contested = v.contestedProbes()
		v.slots = slices.Sorted(maps.Keys(v.behind))
	}
	for i := range t.Remotes {
		for _, dst := range t.Remotes[i].Routed {
			v.destinations = append(v.destinations, destination{dst, i})
		}
	}
	slices.SortStableFunc(v.destinations, func(a, b destination) int { return netfacts.Compare(a.dst, b.dst) })
	v.destinations = slices.CompactFunc(v.destinations, func(a, b destination) bool { return a.dst == b.dst })
	v.leastMTU = v.overlayMTU()
	v.mesh = meshPeers(v.Topology, n)
	v.active.Straight = straight(v.mesh, n)
	return v
}

// overlayFamily is IPv4 unless every node has an IPv6 address and some have no IPv4 address.
func overlayFamily(nodes []topology.Node) Family {
	without := func(f Family) bool {
		return slices.ContainsFunc(nodes, func(n topology.Node) bool { return !addressOf(n, f).IsValid() })
	}
	if without(IPv4) && !without(IPv6) {
		return IPv6
	}
	return IPv4
}

// bySlot returns the clusters that are reached by a gateway of a slot. A slot is at most once in a cluster.
func bySlot(remotes []topology.Remote) map[int][]topology.Remote {
	out := map[int][]topology.Remote{}
	for _, r := range remotes {
		for _, g := range r.Gateways {
			out[g.Slot] = append(out[g.Slot], r)
		}
	}
	return out
}

// inFamily returns the part of a sorted list of prefixes that is of one family. It shares the list's memory.
func inFamily(f Family, sorted []netip.Prefix) []netip.Prefix {
	first6, _ := slices.BinarySearchFunc(sorted, IPv6, func(p netip.Prefix, _ Family) int {
		return cmp.Compare(FamilyOf(p.Addr()), IPv6)
	})
	if f == IPv4 {
		return sorted[:first6:first6]
	}
	return sorted[first6:]
}

func addressOf(n topology.Node, f Family) netip.Addr {
	for _, a := range n.Addresses {
		if FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

// on returns the node's address on the overlay's underlay.
func (v *view) on(n topology.Node) netip.Addr { return addressOf(n, v.outer) }

// others are the nodes that the overlay reaches.
func (v *view) others() []topology.Node {
	return slices.DeleteFunc(slices.Clone(v.Local.Nodes), func(n topology.Node) bool {
		return n.Name == v.self.Name || !v.on(n).IsValid()
	})
}

// podAddresses returns the node's first address of each family in the cluster's pod CIDRs.
func (v *view) podAddresses() map[Family]netip.Addr {
	out := map[Family]netip.Addr{}
	for _, a := range v.facts.PodAddresses {
		inside := slices.ContainsFunc(v.Local.Pods, func(p netip.Prefix) bool { return p.Contains(a) })
		if f := FamilyOf(a); inside && !out[f].IsValid() {
			out[f] = a
		}
	}
	return out
}

// overlayMTU fits the underlay, and every gateway's cables: a packet that is too big for the cable must
// be too big for the overlay, or IPv6 hosts learn of it only from a gateway they cannot hear.
func (v *view) overlayMTU() int {
	mtu := knownMTU(v.facts.UnderlayMTU) - vxlanOverhead - outerHeader(v.outer)
	for _, g := range v.Local.Gateways {
		mtu = min(mtu, v.cableMTU(g))
	}
	return max(mtu, minimumMTU)
}

// cableMTU is the MTU of a local gateway's cables; one that has not said is taken to be like this node.
func (v *view) cableMTU(g topology.Gateway) int {
	if g.Node == v.self.Name || g.MTU == 0 {
		return v.ownMTU
	}
	return g.MTU
}

// pathMTU to a remote cluster holds for any of its gateways, and of the local ones that carry for this node, for flows
// are spread over them and move.
func (v *view) pathMTU(r topology.Remote) int {
	mtu := v.leastMTU
	if v.carries(r) {
		mtu = v.cableMTU(*v.gateway)
	}
	lower := func(found int) {
		if found > 0 {
			mtu = min(mtu, max(found, minimumMTU))
		}
	}
	for _, g := range r.Gateways {
		lower(g.MTU)
		if v.carries(r) {
			lower(v.facts.PathMTU[PeerOf(g)])
		}
	}
	lower(r.BehindMTU)
	for node, found := range r.PathMTU {
		// Of its own paths a gateway knows better than what it has told, once it does.
		if v.gateway == nil || !v.carries(r) && node != v.self.Name ||
			v.carries(r) && node == v.self.Name && v.facts.PathMTU == nil {
			lower(found)
		}
	}
	return mtu
}

// carries says whether this node's own cables carry its traffic to a remote cluster.
func (v *view) carries(r topology.Remote) bool { return len(v.active.Remotes[r.Name]) > 0 }

func (v *view) links() []Link {
	links := []Link{{
		Name: OverlayLink, Kind: VXLAN, MTU: v.overlayMTU(), VNI: VNI, Port: v.Cable.VXLANPort,
		Local: v.on(v.self), MAC: vtepMAC(v.on(v.self)), RPFilter: looseRPFilter, DisableIPv6: !v.facts.IPv6,
	}}
	for _, j := range v.slots {
		if isVXLAN(j) {
			links = append(links, v.vxlanLink(j))
			continue
		}
		links = append(links, Link{Name: CableLink(j), Kind: Cable, Driver: v.Cable.Driver,
			MTU: v.cableMTU(*v.gateway), RPFilter: looseRPFilter, DisableIPv6: !v.facts.IPv6})
	}
	return append(links, v.meshLinks()...)
}

// looseRPFilter accepts a source that is routed by any link: replies may come by another gateway.
const looseRPFilter = 2

func (v *view) addresses() []Address {
	var out []Address
	if slices.Contains(v.families, IPv4) {
		out = append(out, Address{OverlayLink, overlayAddress(), true})
		for _, j := range v.slots {
			out = append(out, Address{CableLink(j), cableAddress(j), true})
		}
	}
	for _, f := range v.families {
		if own := v.own(f); own.IsValid() {
			out = append(out, Address{OverlayLink, host(own), f == IPv4})
		}
	}
	return slices.Concat(out, v.probeAddresses(), v.meshAddresses())
}

// id of this gateway to the peers of a cable.
func (v *view) id(slot int) PeerID {
	if isNext(slot) && v.facts.NextID != "" {
		return v.facts.NextID
	}
	return v.facts.ID
}

// isNext says whether a slot's cable is one with next keys.
func isNext(slot int) bool { return slot >= v1alpha1.NextKeySlots && !isVXLAN(slot) }

// isVXLAN says whether a slot's cable is one by VXLAN, be it within IPsec.
func isVXLAN(slot int) bool { return slot >= v1alpha1.VXLANSlots }

// isOpen says whether a slot's cable is one by VXLAN alone.
func isOpen(slot int) bool { return isVXLAN(slot) && !isIPsec(slot) }

// isIPsec says whether a slot's cable is one by IPsec.
func isIPsec(slot int) bool { return slot >= v1alpha1.IPsecSlots }

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// nextHop returns the address by which routes of a family reach a node over the overlay: any address
// does that has a neighbour entry there.
func (v *view) nextHop(n topology.Node, f Family) netip.Addr {
	if f == IPv6 {
		return vtepLinkLocal(v.on(n))
	}
	return addressOf(n, IPv4)
}

func (v *view) neighbours() []Neighbour {
	var out []Neighbour
	for _, n := range v.others() {
		for _, f := range []Family{IPv4, IPv6} {
			hop := v.nextHop(n, f)
			if hop.IsValid() && (slices.Contains(v.families, f) || f == v.localProbeFamily() && v.probes(n)) {
				out = append(out, Neighbour{OverlayLink, hop, vtepMAC(v.on(n))})
			}
		}
	}
	return append(out, v.vxlanNeighbours()...)
}

// probes says whether probes pass between this node and another of the local cluster: each node probes the
// gateways.
func (v *view) probes(n topology.Node) bool {
	return v.probing() && (v.gateway != nil ||
		slices.ContainsFunc(v.Local.Gateways, func(g topology.Gateway) bool { return g.Node == n.Name }))
}

func (v *view) fdb() []FDBEntry {
	var out []FDBEntry
	for _, n := range v.others() {
		out = append(out, FDBEntry{OverlayLink, vtepMAC(v.on(n)), v.on(n)})
	}
	return append(out, v.vxlanFDB()...)
}

// inbound routes what comes out of cables to the node that has it, the way back that its replies take.
// Node addresses are there for services whose backends are on the host network.
func (v *view) inbound() []Route {
	if len(v.slots) == 0 {
		return nil
	}
	var out []Route
	for _, n := range v.others() {
		for _, f := range v.families {
			hop := v.nextHop(n, f)
			if !hop.IsValid() {
				continue
			}
			dsts := slices.Clone(inFamily(f, n.Pods))
			if a := addressOf(n, f); a.IsValid() {
				dsts = append(dsts, host(a))
			}
			for _, dst := range dsts {
				out = append(out, Route{Table: InboundTable, Dst: dst, Metric: RouteMetric, Type: Unicast,
					NextHops: []NextHop{{OverlayLink, hop, 1}}})
			}
		}
	}
	return out
}

func (v *view) inboundRules() []Rule {
	var out []Rule
	for _, f := range v.families {
		for _, j := range v.slots {
			out = append(out, Rule{Family: f, Priority: InboundPriority, IIF: CableLink(j), Table: InboundTable})
		}
		if len(v.slots) > 0 {
			out = append(out, Rule{Family: f, Priority: InboundPriority, IIF: "lo", Mark: ForwardMark, Mask: ForwardMark,
				Table: InboundTable})
		}
		if len(v.slots) > 0 && v.siblingMACs() != "" {
			// For rp_filter, which looks for the way back to a worker whose packets go on to a sibling.
			out = append(out, Rule{Family: f, Priority: InboundPriority, IIF: OverlayLink, Table: InboundTable},
				Rule{Family: f, Priority: InboundPriority, IIF: OverlayLink, Mark: SiblingMark, Mask: SiblingMark,
					Table: SiblingTable})
		}
	}
	return out
}

func (v *view) outboundRules() []Rule {
	var out []Rule
	for _, f := range []Family{IPv4, IPv6} {
		if slices.Contains(v.known, f) || v.probesBy(f) || f == IPv6 && (len(v.mesh) > 0 || v.byIPsec()) {
			out = append(out, Rule{Family: f, Priority: OutboundPriority, Table: OutboundTable})
		}
	}
	return out
}

// tunnels has one for every slot of remote gateways. WireGuard's AllowedIPs are also its receive filter,
// so two gateways of one cluster must not share a device.
func (v *view) tunnels() []Tunnel {
	var out []Tunnel
	for _, j := range v.slots {
		if isVXLAN(j) {
			continue
		}
		t := Tunnel{Link: CableLink(j), ListenPort: v.Cable.Port + uint16(j), ID: v.id(j)}
		for _, r := range direct(v.behind[j]) {
			for _, g := range r.Gateways {
				if g.Slot == j && PeerOf(g) != v.id(j) {
					t.Peers = append(t.Peers, v.peer(r, g))
				}
			}
		}
		slices.SortFunc(t.Peers, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
		out = append(out, t)
	}
	return append(out, v.meshTunnels()...)
}

// peer dials the remote gateway at the port of the device that it keeps for this gateway's slot, and for next keys.
func (v *view) peer(r topology.Remote, g topology.Gateway) Peer {
	p := Peer{ID: PeerOf(g), Cluster: r.Name, Node: g.Node, KeepaliveSeconds: KeepaliveSeconds}
	p.Active = slices.Contains(v.active.Remotes[r.Name], g.Slot)
	port := v.Cable.Port + uint16(v.gateway.Slot)
	if g.Next {
		port += v1alpha1.NextKeySlots
	}
	candidates := g.Candidates
	if g.VTEP.IsValid() {
		candidates, port, p.KeepaliveSeconds = []topology.Candidate{{Addr: g.VTEP}}, v.Cable.VXLANCablePort, 0
	}
	if g.IPsec {
		candidates, port = g.Candidates, v.Cable.IPsecPort
	}
	for _, c := range candidates {
		if c.Addr.Is6() && !v.facts.IPv6 || c.Port != 0 && (v.gateway.Slot != 0 || g.Next || g.IPsec) {
			continue
		}
		at := netip.AddrPortFrom(c.Addr, cmp.Or(c.Port, port))
		if !slices.Contains(p.Candidates, at) {
			p.Candidates = append(p.Candidates, at)
		}
	}
	p.AllowedIPs = slices.Concat(r.Routed, v.carriedFor[r.Name])
	// One that leaves is to find out that its probes are not answered, and send by the other cable.
	if p.Probe = v.remoteProbe(g); p.Probe.IsValid() && !g.Leaving {
		p.AllowedIPs = append(p.AllowedIPs, host(p.Probe))
	}
	slices.SortFunc(p.AllowedIPs, netfacts.Compare)
	return p
}

// sort brings every slice into the order of its keys. Candidates of several gateways may be one address, and
// have one throw.
func (p *Plan) sort() {
	slices.SortFunc(p.Links, func(a, b Link) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(p.Addresses, func(a, b Address) int {
		return cmp.Or(cmp.Compare(a.Link, b.Link), netfacts.Compare(a.Prefix, b.Prefix))
	})
	slices.SortFunc(p.Neighbours, func(a, b Neighbour) int {
		return cmp.Or(cmp.Compare(a.Link, b.Link), a.IP.Compare(b.IP))
	})
	slices.SortFunc(p.FDB, func(a, b FDBEntry) int {
		return cmp.Or(cmp.Compare(a.Link, b.Link), cmp.Compare(a.MAC, b.MAC))
	})
	slices.SortStableFunc(p.Routes, compareRoute)
	p.Routes = slices.CompactFunc(p.Routes, func(a, b Route) bool { return compareRoute(a, b) == 0 })
	slices.SortFunc(p.Rules, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.IIF, b.IIF),
			netfacts.Compare(a.From, b.From), cmp.Compare(a.Mark, b.Mark), cmp.Compare(a.Table, b.Table))
	})
}

func compareRoute(a, b Route) int {
	// There are many: nothing is compared in vain.
	if a.Table != b.Table {
		return cmp.Compare(a.Table, b.Table)
	}
	if a.Dst != b.Dst {
		return netfacts.Compare(a.Dst, b.Dst)
	}
	return cmp.Compare(a.Metric, b.Metric)
}
