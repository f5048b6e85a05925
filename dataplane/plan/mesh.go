// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// meshPeer is a node of another cluster that this node connects to without gateways.
type meshPeer struct {
	remote topology.Remote
	node   topology.MeshNode
}

func (p meshPeer) id() PeerID { return PeerID(p.node.PublicKey[:]) }

// meshPeers returns the nodes that this node connects to, in the order of the topology. Whether they are reached,
// probes by IPv6 tell: a kernel without it has none; nor has a node without pods of its own.
func meshPeers(t topology.Topology, n NodeFacts) []meshPeer {
	self := slices.IndexFunc(t.Local.Nodes, func(node topology.Node) bool { return node.Name == n.Name })
	if self < 0 || len(t.Local.Nodes[self].Pods) == 0 || !n.IPv6 {
		return nil
	}
	var out []meshPeer
	for _, r := range t.Remotes {
		for _, node := range r.Nodes {
			if p := (meshPeer{r, node}); p.id() != n.ID {
				out = append(out, p)
			}
		}
	}
	return out
}

// straight names, by cluster, those peers to which traffic goes.
func straight(peers []meshPeer, n NodeFacts) map[string][]string {
	var out map[string][]string
	for _, p := range peers {
		if p.node.Leaving || !n.Straight[p.id()] {
			continue
		}
		if out == nil {
			out = map[string][]string{}
		}
		out[p.remote.Name] = append(out[p.remote.Name], p.node.Name)
	}
	return out
}

// CurrentStraight returns the nodes of other clusters to which the routes of a node lead without gateways, as Observe
// found them. It is what NodeFacts.Straight calls current.
func CurrentStraight(t topology.Topology, have Plan) map[PeerID]bool {
	routed := map[netip.Prefix]bool{}
	for _, r := range have.Routes {
		if r.Table == MeshTable && slices.ContainsFunc(r.NextHops, func(h NextHop) bool { return h.Link == MeshLink }) {
			routed[r.Dst] = true
		}
	}
	out := map[PeerID]bool{}
	for _, r := range t.Remotes {
		for _, n := range r.Nodes {
			if slices.ContainsFunc(n.Pods, func(p netip.Prefix) bool { return routed[p] }) {
				out[PeerID(n.PublicKey[:])] = true
			}
		}
	}
	return out
}

// meshed says that the local cluster is one of a mesh, whether or not this node takes part: packets have ways around
// its gateways.
func (v *view) meshed() bool {
	return slices.ContainsFunc(v.Remotes, func(r topology.Remote) bool { return len(r.Nodes) > 0 })
}

// hasCables says that there is a link to other clusters on this node.
func (v *view) hasCables() bool { return len(v.slots) > 0 || len(v.mesh) > 0 }

func (v *view) meshMTU() int { return CableMTU(v.Topology, v.facts.UnderlayMTU) }

func (v *view) meshLinks() []Link {
	if len(v.mesh) == 0 {
		return nil
	}
	return []Link{{Name: MeshLink, Kind: Cable, Driver: v.Cable.Driver, MTU: v.meshMTU(), RPFilter: looseRPFilter,
		DisableIPv6: !v.facts.IPv6}}
}

func (v *view) meshAddresses() []Address {
	if len(v.mesh) == 0 {
		return nil
	}
	var out []Address
	if !v.facts.OffMesh {
		out = append(out, Address{MeshLink, host(MeshULA(v.facts.ID)), false})
	}
	if slices.Contains(v.families, IPv4) {
		out = append(out, Address{MeshLink, meshAddress(), true})
	}
	return out
}

// meshTunnels has one device for all nodes of all clusters: unlike gateways, no two of them have the same pods, so that
// allowed IPs leave no doubt, and bind each source to the node that it is on. The probes of a node that leaves are not
// among them. There are no keepalive packets: probes keep open what there is to be kept open, and a peer that is not
// probed is to cost nothing.
func (v *view) meshTunnels() []Tunnel {
	if len(v.mesh) == 0 {
		return nil
	}
	t := Tunnel{Link: MeshLink, ListenPort: v.Cable.MeshPort, ID: v.facts.ID}
	for _, m := range v.mesh {
		p := Peer{ID: m.id(), Cluster: m.remote.Name, Node: m.node.Name,
			Active: !m.node.Leaving && v.facts.Straight[m.id()]}
		for _, a := range m.node.Addresses {
			if a.Is4() || v.facts.IPv6 {
				p.Candidates = append(p.Candidates, netip.AddrPortFrom(a, v.Cable.MeshPort))
			}
		}
		p.AllowedIPs = slices.Clone(m.node.Pods)
		if !m.node.Leaving {
			p.AllowedIPs = append(p.AllowedIPs, host(MeshULA(m.id())))
		}
		slices.SortFunc(p.AllowedIPs, netfacts.Compare)
		t.Peers = append(t.Peers, p)
	}
	slices.SortFunc(t.Peers, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	return []Tunnel{t}
}

// meshRoutes lead to the pods of the nodes that answer, for what this node's own pods send. Their MTU is that of the
// way by gateways if that is smaller, so that connections move between the two without a packet that is too big. The
// addresses of probes are routed whether they answer or not, but for nodes that leave.
func (v *view) meshRoutes() []Route {
	if v.facts.OffMesh {
		return nil
	}
	var out []Route
	hop := []NextHop{{Link: MeshLink, Weight: 1}}
	for _, m := range v.mesh {
		if m.node.Leaving {
			continue
		}
		out = append(out, Route{Table: OutboundTable, Dst: host(MeshULA(m.id())), Metric: RouteMetric, Type: Unicast,
			NextHops: hop, Source: MeshULA(v.facts.ID)})
		if !v.facts.Straight[m.id()] {
			continue
		}
		mtu := min(v.pathMTU(m.remote), v.meshMTU())
		if m.node.MTU > 0 {
			mtu = min(mtu, m.node.MTU)
		}
		for _, dst := range m.node.Pods {
			if f := FamilyOf(dst.Addr()); slices.Contains(v.meshFamilies(), f) {
				out = append(out, Route{Table: MeshTable, Dst: dst, Metric: RouteMetric, Type: Unicast, NextHops: hop,
					Source: v.sources[f], MTU: mtu})
			}
		}
	}
	return out
}

// meshFamilies are those in which what this node sends has sources that its peers take from it: its own pods'.
func (v *view) meshFamilies() []Family {
	return slices.DeleteFunc(slices.Clone(v.families), func(f Family) bool {
		source := v.sources[f]
		return len(inFamily(f, v.self.Pods)) == 0 || source.IsValid() &&
			!slices.ContainsFunc(v.self.Pods, func(p netip.Prefix) bool { return p.Contains(source) })
	})
}

// meshRules look up what this node's own pods send. What a gateway passes on for other nodes goes by gateways, and so
// do the answers of services that it has translated: peers take neither from it.
func (v *view) meshRules() []Rule {
	if len(v.mesh) == 0 {
		return nil
	}
	var out []Rule
	for _, f := range v.meshFamilies() {
		if len(v.slots) > 0 {
			out = append(out, Rule{Family: f, Priority: InboundPriority, Mark: GatewayMark, Mask: GatewayMark,
				Table: OutboundTable})
		}
		for _, p := range inFamily(f, v.self.Pods) {
			out = append(out, Rule{Family: f, Priority: MeshPriority, From: p, Table: MeshTable})
		}
	}
	return out
}

// meshPods are the pods of the nodes that this one connects to, in a family in which it has pods itself.
func (v *view) meshPods(f Family) []netip.Prefix {
	if !slices.Contains(v.families, f) || len(inFamily(f, v.self.Pods)) == 0 {
		return nil
	}
	var out []netip.Prefix
	for _, m := range v.mesh {
		out = append(out, inFamily(f, m.node.Pods)...)
	}
	return disjoint(out)
}

// gateways marks, on a gateway, the answers of services that it has translated for other clusters.
func (v *view) gateways(f Family) Chain {
	c := Chain{Name: "gateways", Type: "filter", Hook: "prerouting", Priority: "mangle"}
	if len(v.mesh) > 0 && len(v.slots) > 0 && slices.Contains(v.families, f) {
		c.Rules = append(c.Rules, fmt.Sprintf(
			`ct direction reply ct status dnat ct original %s saddr @%s meta mark set meta mark | 0x%08x`, f, setRemote,
			GatewayMark))
	}
	return c
}

// marks are the bits of the packet mark that this node sets and takes away.
func (v *view) marks() uint32 {
	bits := uint32(ForwardMark)
	if len(v.mesh) > 0 && len(v.slots) > 0 {
		bits |= GatewayMark
	}
	if v.siblingMACs() != "" {
		bits |= SiblingMark
	}
	return bits
}
