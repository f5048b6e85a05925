// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"net/netip"
	"testing"

	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// TestRoutesFollowThePath: packets to a cluster are as small as the paths of the gateways that carry them ask, and to
// other clusters they are not. What a gateway has found itself counts for more than what it has told.
func TestRoutesFollowThePath(t *testing.T) {
	remote := func(name, cidr string, key byte, told map[string]int) topology.Remote {
		return topology.Remote{Name: name, Routed: []netip.Prefix{netip.MustParsePrefix(cidr)}, PathMTU: told,
			Gateways: []topology.Gateway{
				{Node: name + "-0", Slot: 0, PublicKey: topology.Key{key}, MTU: 1420},
				{Node: name + "-1", Slot: 1, PublicKey: topology.Key{key, 1}, MTU: 1420},
			}}
	}
	node := func(name, address, pods string) topology.Node {
		return topology.Node{Name: name, Addresses: []netip.Addr{netip.MustParseAddr(address)},
			Pods: []netip.Prefix{netip.MustParsePrefix(pods)}}
	}
	of := func(g topology.Gateway) plan.PeerID { return plan.PeerOf(g) }
	for _, c := range []struct {
		name, node  string
		told        map[string]int
		found       func(c2 topology.Remote) map[plan.PeerID]int
		alive       map[string][]int
		toC2, other int
	}{
		{name: "all is well", node: "gw", toC2: 1420, other: 1420},
		{name: "a worker, as its gateway told", node: "worker", told: map[string]int{"gw": 1344}, toC2: 1344, other: 1420},
		{name: "a worker, the least of two", node: "worker", told: map[string]int{"gw": 1344, "gw2": 1296}, toC2: 1296,
			other: 1420},
		{name: "a gateway's own finding", node: "gw", found: func(c2 topology.Remote) map[plan.PeerID]int {
			return map[plan.PeerID]int{of(c2.Gateways[1]): 1328}
		}, toC2: 1328, other: 1420},
		{name: "a gateway's own finding is newer", node: "gw", told: map[string]int{"gw": 1296},
			found: func(topology.Remote) map[plan.PeerID]int { return map[plan.PeerID]int{} }, toC2: 1420, other: 1420},
		{name: "before a gateway's first probes", node: "gw", told: map[string]int{"gw": 1344}, toC2: 1344, other: 1420},
		{name: "a path of another gateway", node: "gw", told: map[string]int{"gw2": 1344},
			found: func(topology.Remote) map[plan.PeerID]int { return map[plan.PeerID]int{} }, toC2: 1420, other: 1420},
		{name: "handed over to another gateway", node: "gw", told: map[string]int{"gw": 1280, "gw2": 1344},
			found: func(topology.Remote) map[plan.PeerID]int { return map[plan.PeerID]int{} },
			alive: map[string][]int{"c1": {1}, "c3": {0, 1}}, toC2: 1344, other: 1420},
		{name: "never below the least", node: "gw", found: func(c2 topology.Remote) map[plan.PeerID]int {
			return map[plan.PeerID]int{of(c2.Gateways[0]): 576}
		}, toC2: 1280, other: 1420},
	} {
		t.Run(c.name, func(t *testing.T) {
			c2, c3 := remote("c2", "10.9.0.0/16", 2, c.told), remote("c3", "10.10.0.0/16", 3, nil)
			top := topology.Topology{Cluster: "c1", Cable: topology.Cable{Driver: "wireguard", Port: 4500, VXLANPort: 4800},
				Remotes: []topology.Remote{c2, c3}, Local: topology.Local{
					Pods:      []netip.Prefix{netip.MustParsePrefix("10.8.0.0/16")},
					Announced: []netip.Prefix{netip.MustParsePrefix("10.8.0.0/16")},
					Nodes: []topology.Node{node("gw", "172.31.1.1", "10.8.0.0/24"), node("gw2", "172.31.1.2", "10.8.1.0/24"),
						node("worker", "172.31.1.3", "10.8.2.0/24")},
					Gateways: []topology.Gateway{{Node: "gw", PublicKey: topology.Key{1}, MTU: 1420},
						{Node: "gw2", Slot: 1, PublicKey: topology.Key{1, 1}, MTU: 1420}},
				}}
			facts := plan.NodeFacts{Name: c.node, ID: of(top.Local.Gateways[0]), UnderlayMTU: 1500, IPv6: true, Alive: c.alive}
			if c.found != nil {
				facts.PathMTU = c.found(c2)
			}
			got := map[string]int{}
			for _, r := range plan.For(top, facts).Routes {
				if r.Table == plan.OutboundTable && r.Type == plan.Unicast && r.Metric == plan.RouteMetric {
					got[r.Dst.String()] = r.MTU
				}
			}
			if got["10.9.0.0/16"] != c.toC2 || got["10.10.0.0/16"] != c.other {
				t.Errorf("MTU %d and %d, want %d and %d", got["10.9.0.0/16"], got["10.10.0.0/16"], c.toC2, c.other)
			}
		})
	}
}
