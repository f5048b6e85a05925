// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
)

// A route over several next hops, and a rule for marked packets, are read back as they were written, in both
// families; a changed weight is seen, and one next hop takes the place of several.
func TestSeveralNextHopsAndMarks(t *testing.T) {
	k, key := open(t)
	want := func(weights ...int) plan.Plan {
		var p plan.Plan
		for i, name := range []string{"sl-c0", "sl-c1"} {
			p.Links = append(p.Links, plan.Link{Name: name, Kind: plan.Cable, Driver: string(v1alpha1.CableWireGuard), MTU: 1420,
				RPFilter: 2})
			p.Tunnels = append(p.Tunnels, plan.Tunnel{Link: name, ListenPort: 4500 + uint16(i), ID: key})
		}
		for _, dst := range []string{"10.9.0.0/16", "fd00:9::/32"} {
			r := plan.Route{Table: plan.OutboundTable, Dst: netip.MustParsePrefix(dst), Metric: plan.RouteMetric,
				Type: plan.Unicast}
			for i, w := range weights {
				hop := plan.NextHop{Link: p.Links[i].Name, Weight: w}
				if r.Dst.Addr().Is6() {
					hop.Via = netip.MustParseAddr("fe80::1")
				}
				r.NextHops = append(r.NextHops, hop)
			}
			p.Routes = append(p.Routes, r)
		}
		for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
			p.Rules = append(p.Rules,
				plan.Rule{Family: f, Priority: 104, Mark: 0x100, Mask: 0xf00, Table: plan.OutboundTable},
				plan.Rule{Family: f, Priority: 104, Mark: 0, Mask: 0xf000, Table: plan.OutboundTable},
				plan.Rule{Family: f, Priority: plan.OutboundPriority, Table: plan.OutboundTable})
		}
		return p
	}
	for _, weights := range [][]int{{1, 3}, {2, 3}, {1}, {5, 5}} {
		reach(t, k, want(weights...))
	}
	routes := run(t, "ip route show table 5100; ip -6 route show table 5100")
	if strings.Count(routes, "weight 5") != 4 {
		t.Errorf("not two next hops of weight 5 in each family:\n%s", routes)
	}
	if rules := run(t, "ip rule; ip -6 rule"); strings.Count(rules, "fwmark 0x100/0xf00") != 2 {
		t.Errorf("rules:\n%s", rules)
	}
}
