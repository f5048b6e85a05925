// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// TestNeighboursOfPods: a gateway sends what comes out of cables into its own network only by the overlay, where pods
// share that network.
func TestNeighboursOfPods(t *testing.T) {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	for _, c := range []struct {
		what             string
		pods, own, other string
		underlay         string
		expected         []string
	}{
		{"no pods in it", "10.8.0.0/16", "10.8.0.0/24", "10.8.1.0/24", "172.31.1.0/24", nil},
		{"pods of both", "172.31.1.128/25", "172.31.1.130/32", "172.31.1.140/32", "172.31.1.0/24",
			[]string{"172.31.1.130/32 throw", "172.31.1.0/24 blackhole"}},
		{"the gateway's pods elsewhere", "172.31.0.0/16", "172.31.9.1/32", "172.31.1.140/32", "172.31.1.0/24",
			[]string{"172.31.1.0/24 blackhole"}},
		{"all of it one node's", "172.31.0.0/16", "172.31.9.1/32", "172.31.0.0/20", "172.31.1.0/24", nil},
		{"of a family that does not reach others", "fd31::8000/120", "fd31::8001/128", "fd31::8002/128", "fd31::/64", nil},
	} {
		top := topology.Topology{
			Cable: topology.Cable{Driver: "WireGuard", Port: 4500, VXLANPort: 4800},
			Local: topology.Local{
				Pods: []netip.Prefix{prefix(c.pods)}, Announced: []netip.Prefix{prefix(c.pods)},
				Nodes: []topology.Node{
					{Name: "n1", Addresses: []netip.Addr{addr("172.31.1.1")}, Pods: []netip.Prefix{prefix(c.own)}},
					{Name: "n2", Addresses: []netip.Addr{addr("172.31.1.2")}, Pods: []netip.Prefix{prefix(c.other)}},
				},
				Gateways: []topology.Gateway{{Node: "n1"}},
			},
			Remotes: []topology.Remote{{Name: "c2", Routed: []netip.Prefix{prefix("10.9.0.0/16")},
				Gateways: []topology.Gateway{{Node: "g", PublicKey: topology.Key{1}}}}},
		}
		for _, node := range []string{"n1", "n2"} {
			var found []string
			for _, r := range plan.For(top, plan.NodeFacts{Name: node, Underlays: []netip.Prefix{prefix(c.underlay)}}).Routes {
				switch {
				case r.Table != plan.InboundTable:
				case r.Type == plan.Throw:
					found = append(found, r.Dst.String()+" throw")
				case r.Type == plan.Blackhole:
					found = append(found, r.Dst.String()+" blackhole")
				}
			}
			expected := c.expected
			if node == "n2" {
				expected = nil // no gateway
			}
			slices.Sort(found)
			slices.Sort(expected)
			if !slices.Equal(found, expected) {
				t.Errorf("%s, %s: expected %q, found %q", c.what, node, expected, found)
			}
		}
	}
}
