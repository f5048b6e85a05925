// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
)

// A route over several next hops, and rules for marked packets and for a source, are read back as they were written, in
// both families; a changed weight is seen, and one next hop takes the place of several.
func TestSeveralNextHopsAndRules(t *testing.T) {
	k, key := open(t)
	from := map[plan.Family]netip.Prefix{plan.IPv4: netip.MustParsePrefix("10.8.1.0/24"),
		plan.IPv6: netip.MustParsePrefix("fd00:8:1::/64")}
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
				plan.Rule{Family: f, Priority: 104, From: from[f], Table: plan.MeshTable},
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
	rules := run(t, "ip rule; ip -6 rule")
	if strings.Count(rules, "fwmark 0x100/0xf00") != 2 || !strings.Contains(rules, "from 10.8.1.0/24 lookup 5102") ||
		!strings.Contains(rules, "from fd00:8:1::/64 lookup 5102") {
		t.Errorf("rules:\n%s", rules)
	}
	// Another source is another rule.
	from[plan.IPv4], from[plan.IPv6] = netip.MustParsePrefix("10.8.2.0/24"), netip.MustParsePrefix("fd00:8:2::/64")
	reach(t, k, want(1))
	if rules := run(t, "ip rule; ip -6 rule"); strings.Contains(rules, "10.8.1.0/24") || strings.Contains(rules, "8:1::") {
		t.Errorf("rules that should be gone:\n%s", rules)
	}
}
