// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/reach"
)

// network is a member's data plane: its topology, and what each node's agent makes of it.
type network struct {
	*Member
	now   time.Time
	top   topology.Topology
	plans map[string]plan.Plan
}

func newNetwork(m *Member, now time.Time) *network {
	return &network{Member: m, now: now, top: topology.Build(m.Network), plans: map[string]plan.Plan{}}
}

// plan is what a node's kernel is to hold.
func (n *network) plan(node string) plan.Plan {
	p, known := n.plans[node]
	if !known {
		facts := n.facts(node)
		p = plan.For(n.top.WithNextKeys(facts.Replacement()).WithVXLAN(node, nil), facts)
		n.plans[node] = p
	}
	return p
}

// facts are what the node's agent goes by, as far as it reports that. A node's address in its pod network is not
// reported: it is taken to be the first of each of its networks, as most CNI plugins have it.
func (n *network) facts(node string) plan.NodeFacts {
	f := plan.NodeFacts{Name: node, IPv6: true, Alive: map[string][]int{}, Current: map[string][]int{}}
	for _, local := range n.top.Local.Nodes {
		for _, p := range local.Pods {
			if local.Name == node {
				f.PodAddresses = append(f.PodAddresses, p.Addr().Next())
			}
		}
	}
	for _, g := range n.top.Local.Gateways {
		report := n.gateway(g.Node)
		if g.Node == node {
			f.ID = plan.PeerOf(g)
			n.cables(report, &f)
			continue
		}
		if reach.Fresh(report, n.now) && n.hears(report, node) {
			f.Alive[n.top.Cluster] = append(f.Alive[n.top.Cluster], g.Slot)
		}
		if report.Status.HAState == v1alpha1.GatewayActive {
			f.Current[n.top.Cluster] = append(f.Current[n.top.Cluster], g.Slot)
		}
	}
	f.Straight = n.straight(node)
	return f
}

// cables takes over which of its cables a gateway reports to work, and which it uses.
func (n *network) cables(g *v1alpha1.Gateway, f *plan.NodeFacts) {
	for _, c := range g.Status.Connections {
		if c.Through != "" {
			continue // of a tunnel that is listed itself
		}
		slot := int(c.Slot)
		switch c.Cable {
		case v1alpha1.CableVXLAN:
			slot += v1alpha1.VXLANSlots
		case v1alpha1.CableIPsec:
			slot += v1alpha1.IPsecSlots
		}
		if c.Status == v1alpha1.ConnectionConnected && reach.Fresh(g, n.now) {
			f.Alive[c.Cluster] = append(f.Alive[c.Cluster], slot)
		}
		if c.Active {
			f.Current[c.Cluster] = append(f.Current[c.Cluster], slot)
		}
	}
}

// gateway of a node, which the topology has.
func (n *network) gateway(node string) *v1alpha1.Gateway {
	for i := range n.Network.Gateways {
		if n.Network.Gateways[i].Name == node {
			return &n.Network.Gateways[i]
		}
	}
	return &v1alpha1.Gateway{}
}

// hears says whether probes pass between a gateway and a node of its cluster, each way, as far as the two report.
func (n *network) hears(g *v1alpha1.Gateway, node string) bool {
	if slices.Contains(g.Status.UnheardNodes, node) {
		return false
	}
	c := n.agentSays(node, v1alpha1.PodGatewaysReached)
	return c == nil || c.Status != corev1.ConditionFalse ||
		!slices.Contains(strings.Split(strings.ReplaceAll(c.Message, " ", ""), ","), g.Name)
}

// straight are the nodes of other clusters that a node sends to without gateways. The agent reports how many of each
// cluster these are: some of a cluster's nodes are taken to be none, for the way by gateways is open to all.
func (n *network) straight(node string) map[plan.PeerID]bool {
	c := n.agentSays(node, v1alpha1.PodNodesReached)
	if c == nil {
		return nil
	}
	var reached map[string]int
	if json.Unmarshal([]byte(c.Message), &reached) != nil {
		return nil
	}
	out := map[plan.PeerID]bool{}
	for _, r := range n.top.Remotes {
		for _, m := range r.Nodes {
			if reached[r.Name] >= len(r.Nodes) {
				out[plan.PeerID(m.PublicKey[:])] = true
			}
		}
	}
	return out
}

// agentSays returns a condition of the agent on a node, nil where it has none.
func (n *network) agentSays(node string, condition corev1.PodConditionType) *corev1.PodCondition {
	for i := range n.Agents {
		if n.Agents[i].Spec.NodeName != node {
			continue
		}
		for j := range n.Agents[i].Status.Conditions {
			if c := &n.Agents[i].Status.Conditions[j]; c.Type == condition {
				return c
			}
		}
	}
	return nil
}

// notReady says why a node is not Ready; "" where it is, or does not say.
func (n *network) notReady(node string) string {
	for i := range n.Network.Nodes {
		for _, c := range n.Network.Nodes[i].Status.Conditions {
			if n.Network.Nodes[i].Name == node && c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return strings.Trim(c.Reason+": "+c.Message, ": ") + " (Ready is " + string(c.Status) + ")"
			}
		}
	}
	return ""
}

// node of the topology.
func (n *network) node(name string) (topology.Node, bool) {
	i := slices.IndexFunc(n.top.Local.Nodes, func(t topology.Node) bool { return t.Name == name })
	if i < 0 {
		return topology.Node{}, false
	}
	return n.top.Local.Nodes[i], true
}

// owner is the node that has an address, or in whose networks a pod has it; "" if there is none.
func (n *network) owner(a netip.Addr) string {
	for _, node := range n.top.Local.Nodes {
		if slices.Contains(node.Addresses, a) || within(node.Pods, a) {
			return node.Name
		}
	}
	return ""
}

// local says whether an address is of the cluster's own networks, pods or services.
func (n *network) local(a netip.Addr) bool {
	return within(n.top.Local.Announced, a) || n.owner(a) != ""
}

// remote is the cluster to which an address is routed; false if it is routed to none.
func (n *network) remote(a netip.Addr) (topology.Remote, bool) {
	for _, r := range n.top.Remotes {
		if within(r.Routed, a) {
			return r, true
		}
	}
	return topology.Remote{}, false
}

// reached says whether the gateways of a remote cluster are known.
func (n *network) reached(remote string) bool {
	return slices.ContainsFunc(n.top.Remotes, func(r topology.Remote) bool {
		return r.Name == remote && len(r.Gateways) > 0
	})
}

func within(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// set of a node's nftables table of a family.
func set(p plan.Plan, f plan.Family, name string) []netip.Prefix {
	for _, t := range p.Tables {
		if t.Family != f {
			continue
		}
		for _, s := range t.Sets {
			if s.Name == name {
				return s.Elements
			}
		}
	}
	return nil
}

// packet as the kernel looks it up.
type packet struct {
	src, dst netip.Addr
	// iif is the link that it came by; "" for those of the node itself and of its pods.
	iif  string
	mark uint32
}

// lookUp returns the route that a packet takes in our tables, and by which rule; false where none of them has one and
// the node's main table decides.
func lookUp(p plan.Plan, pk packet) (plan.Route, plan.Rule, bool) {
	for _, rule := range p.Rules {
		switch {
		case rule.Family != plan.FamilyOf(pk.dst):
		case rule.IIF != "" && rule.IIF != pk.iif:
		case rule.Mask != 0 && pk.mark&rule.Mask != rule.Mark:
		case rule.From.IsValid() && !rule.From.Contains(pk.src):
		default:
			if r, found := longest(p.Routes, rule.Table, pk.dst); found && r.Type != plan.Throw {
				return r, rule, true
			}
		}
	}
	return plan.Route{}, plan.Rule{}, false
}

// longest is the route of a table with the longest prefix that holds an address, and of several the least metric.
func longest(routes []plan.Route, table int, a netip.Addr) (best plan.Route, found bool) {
	for _, r := range routes {
		if r.Table != table || !r.Dst.Contains(a) {
			continue
		}
		if !found || r.Dst.Bits() > best.Dst.Bits() || r.Dst.Bits() == best.Dst.Bits() && r.Metric < best.Metric {
			best, found = r, true
		}
	}
	return best, found
}

// behind is the node that a next hop on the overlay leads to, by the plan's own neighbours and forwarding entries.
func (n *network) behind(p plan.Plan, via netip.Addr) string {
	for _, nb := range p.Neighbours {
		if nb.Link != plan.OverlayLink || nb.IP != via {
			continue
		}
		for _, e := range p.FDB {
			if e.MAC == nb.MAC {
				return n.owner(e.Dst)
			}
		}
	}
	return ""
}

// peer of a link to whom a destination belongs, as its allowed IPs say.
func peer(p plan.Plan, link string, dst netip.Addr) (plan.Peer, bool) {
	for _, t := range p.Cables() {
		if t.Link != link {
			continue
		}
		for _, peer := range t.Peers {
			if within(peer.AllowedIPs, dst) {
				return peer, true
			}
		}
	}
	return plan.Peer{}, false
}

// arrival is the tunnel by which packets arrive that a node of another cluster sends by a link, by the name of its own
// link, and what it accepts from there.
func arrival(p plan.Plan, by, cluster, node string) (link string, allowed []netip.Prefix, found bool) {
	for _, t := range p.Cables() {
		if (t.Link == plan.MeshLink) != (by == plan.MeshLink) || plan.OfVXLAN(t.Link) != plan.OfVXLAN(by) ||
			plan.OfIPsec(t.Link) != plan.OfIPsec(by) || plan.OfNextKeys(t.Link) {
			continue
		}
		for _, peer := range t.Peers {
			if peer.Cluster == cluster && peer.Node == node {
				return t.Link, peer.AllowedIPs, true
			}
		}
	}
	return "", nil, false
}
