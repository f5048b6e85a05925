// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// meshOf is two clusters whose nodes, the first of each a gateway, are a mesh, as nodes of the one see it.
func meshOf(own, other, nodes int) topology.Input {
	key := func(cluster, node int) string {
		k := make([]byte, 32)
		k[0], k[1] = byte(cluster), byte(node+1)
		return topology.Key(k).String()
	}
	in := topology.Input{Peering: &v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{
		Phase: v1alpha1.MemberActive, ClusterID: fmt.Sprintf("c%d", own),
		Cable:    v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
		Networks: v1alpha1.Networks{PodCIDRs: []string{fmt.Sprintf("10.%d.0.0/16", own), fmt.Sprintf("fd0%d::/48", own)}},
	}}}
	r := v1alpha1.RemoteCluster{Name: fmt.Sprintf("c%d", other), Topology: v1alpha1.TopologyMesh,
		Networks: v1alpha1.Networks{PodCIDRs: []string{fmt.Sprintf("10.%d.0.0/16", other), fmt.Sprintf("fd0%d::/48", other)}}}
	for i := range nodes {
		pods := func(c int) []string {
			return []string{fmt.Sprintf("10.%d.%d.0/24", c, i), fmt.Sprintf("fd0%d:0:0:%d::/64", c, i)}
		}
		name := fmt.Sprintf("n%d", i)
		in.Nodes = append(in.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.NodeSpec{PodCIDRs: pods(own)}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.31.%d.%d", own, i+1)}}}})
		r.Nodes = append(r.Nodes, v1alpha1.MeshNode{Name: name, PublicKey: key(other, i), PodCIDRs: pods(other),
			Addresses: []string{fmt.Sprintf("172.31.%d.%d", other, i+1)}})
	}
	in.Gateways = []v1alpha1.Gateway{{ObjectMeta: metav1.ObjectMeta{Name: "n0"}, Status: v1alpha1.GatewayStatus{
		Endpoint: &v1alpha1.Endpoint{PublicKey: key(own, 0)}}}}
	r.Endpoints = []v1alpha1.Endpoint{{Gateway: "n0", PublicKey: key(other, 0)}}
	in.Peering.Spec.RemoteClusters = []v1alpha1.RemoteCluster{r}
	return in
}

// TestMeshAgrees: whichever nodes answer each other, what a node sends straight is taken by the node that has its
// destination, which is one, and everything else has a way by gateways that nothing is missing from.
func TestMeshAgrees(t *testing.T) {
	const nodes = 4
	r := rand.New(rand.NewPCG(31, 5102))
	for range 200 {
		tops := map[int]topology.Topology{1: topology.Build(meshOf(1, 2, nodes)), 2: topology.Build(meshOf(2, 1, nodes))}
		plans := map[int][]plan.Plan{}
		for c, other := range map[int]int{1: 2, 2: 1} {
			if len(tops[c].Problems) > 0 {
				t.Fatal(tops[c].Problems)
			}
			for i := range nodes {
				f := plan.NodeFacts{Name: fmt.Sprintf("n%d", i), IPv6: true, Straight: map[plan.PeerID]bool{},
					ID:           plan.PeerID(tops[other].Remotes[0].Nodes[i].PublicKey[:]),
					Alive:        map[string][]int{"c1": {0}, "c2": {0}},
					PodAddresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.%d.%d.1", c, i))}}
				for _, n := range tops[c].Remotes[0].Nodes {
					f.Straight[plan.PeerID(n.PublicKey[:])] = r.IntN(2) > 0
				}
				plans[c] = append(plans[c], plan.For(tops[c], f))
			}
		}
		for c, other := range map[int]int{1: 2, 2: 1} {
			for i, p := range plans[c] {
				requireTaken(t, p, fmt.Sprintf("n%d of c%d", i, c), plans[other])
			}
		}
	}
}

// requireTaken: each straight route leads to one peer, whose node takes all sources that look the route up, and behind
// it is one by gateways.
func requireTaken(t *testing.T, p plan.Plan, name string, others []plan.Plan) {
	t.Helper()
	var peers []plan.Peer
	var own plan.PeerID
	for _, tunnel := range p.Tunnels {
		if tunnel.Link == plan.MeshLink {
			peers, own = tunnel.Peers, tunnel.ID
		}
	}
	for _, route := range p.Routes {
		if route.Table != plan.MeshTable {
			continue
		}
		to := slices.Collect(func(yield func(plan.Peer) bool) {
			for _, peer := range peers {
				if slices.Contains(peer.AllowedIPs, route.Dst) && !yield(peer) {
					return
				}
			}
		})
		if len(to) != 1 || !to[0].Active {
			t.Fatalf("%s: %s leads to %v", name, route, to)
		}
		if !slices.ContainsFunc(p.Routes, func(r plan.Route) bool {
			return r.Table == plan.OutboundTable && r.Metric == plan.RouteMetric && r.MTU >= route.MTU &&
				r.Dst.Bits() < route.Dst.Bits() && r.Dst.Contains(route.Dst.Addr())
		}) {
			t.Fatalf("%s: %s has nothing behind it", name, route)
		}
		for _, rule := range p.Rules {
			if rule.Table == plan.MeshTable && rule.Family == plan.FamilyOf(route.Dst.Addr()) &&
				!takes(others, to[0].ID, own, rule.From) {
				t.Fatalf("%s: %s takes nothing from %s", name, to[0].Node, rule.From)
			}
		}
	}
}

// takes says whether the node with an ID takes a source from another.
func takes(plans []plan.Plan, id, from plan.PeerID, source netip.Prefix) bool {
	for _, p := range plans {
		for _, tunnel := range p.Tunnels {
			for _, peer := range tunnel.Peers {
				if tunnel.Link == plan.MeshLink && tunnel.ID == id && peer.ID == from &&
					slices.Contains(peer.AllowedIPs, source) {
					return true
				}
			}
		}
	}
	return false
}

// TestANodeLeavesAMesh: nothing is sent to a node that leaves, and its probes are not answered; what it sends is taken.
func TestANodeLeavesAMesh(t *testing.T) {
	facts := plan.NodeFacts{Name: "n1", ID: "n1", IPv6: true, UnderlayMTU: 1500, Straight: map[plan.PeerID]bool{}}
	top := topology.Build(meshOf(1, 2, 3))
	for _, n := range top.Remotes[0].Nodes {
		facts.Straight[plan.PeerID(n.PublicKey[:])] = true
	}
	before := plan.For(top, facts)
	leaving := plan.PeerID(top.Remotes[0].Nodes[2].PublicKey[:])
	top.Remotes[0].Nodes[2].Leaving = true
	after := plan.For(top, facts)

	probes := netip.PrefixFrom(plan.MeshULA(leaving), 128)
	for _, c := range plan.Diff(after, before) {
		peer, isPeer := c.Element.(plan.TunnelPeer)
		route, isRoute := c.Element.(plan.Route)
		switch {
		case isPeer && c.Op == plan.Replace && peer.ID == leaving && !peer.Active:
			if len(peer.AllowedIPs) != 2 || slices.Contains(peer.AllowedIPs, probes) {
				t.Errorf("takes %v, want its pods' packets and no probes", peer.AllowedIPs)
			}
		case isRoute && c.Op == plan.Delete && (route.Table == plan.MeshTable || route.Dst == probes):
		default:
			t.Errorf("changes %s", c)
		}
	}
	if got := len(plan.Diff(after, before)); got != 4 {
		t.Errorf("%d changes, want its peer, two networks and the address of its probes", got)
	}
}

// TestOffMesh: a node that is about to have another key sends nothing straight, and is not probed, but takes what
// comes.
func TestOffMesh(t *testing.T) {
	in := meshOf(1, 2, 2)
	top := topology.Build(in)
	facts := plan.NodeFacts{Name: "n0", ID: plan.PeerOf(top.Local.Gateways[0]), IPv6: true,
		Straight: map[plan.PeerID]bool{plan.PeerID(top.Remotes[0].Nodes[1].PublicKey[:]): true}}
	before := plan.For(top, facts)
	facts.OffMesh, facts.Straight = true, nil
	after := plan.For(top, facts)
	deleted := map[plan.Kind]int{}
	for _, c := range plan.Diff(after, before) {
		if c.Op != plan.Delete {
			t.Errorf("expected nothing but deletions, found %s", c)
		}
		deleted[c.Kind]++
	}
	// Its own address, the ways to those of two nodes, and the one to a node's pods in both families.
	if want := map[plan.Kind]int{plan.KindAddress: 1, plan.KindRoute: 4}; !maps.Equal(deleted, want) {
		t.Errorf("expected %v, found %v", want, deleted)
	}
}
