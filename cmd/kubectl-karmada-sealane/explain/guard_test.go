// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"net/netip"
	"regexp"
	"testing"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// special are the rules of the guard that look at more than link, source and destination: the overlay's own packets,
// probes, outer packets, what siblings hand over, what did not come by a link of ours.
var special = regexp.MustCompile(`udp dport|icmp|ether saddr|meta mark|^ip6? |iifname !=|iifname "sl-vx"`)

// TestGuardIsReadWhole: of the rulesets of all situations, each rule of the guard is either one that explain evaluates
// or one that does not concern what a cable delivers.
func TestGuardIsReadWhole(t *testing.T) {
	evaluated := 0
	for _, s := range situations() {
		f := world()
		if s.change != nil {
			s.change(f)
		}
		for i := range f.Members {
			n := newNetwork(&f.Members[i], f.Now)
			for _, node := range n.top.Local.Nodes {
				for _, table := range n.plan(node.Name).Tables {
					for _, c := range table.Chains {
						for _, rule := range c.Rules {
							switch {
							case c.Name != guardChain:
							case verdictRule.MatchString(rule):
								evaluated++
							case !special.MatchString(rule):
								t.Errorf("%s, %s: explain does not know the rule %s", s.name, node.Name, rule)
							}
						}
					}
				}
			}
		}
	}
	if evaluated == 0 {
		t.Error("no rule of the guard is evaluated")
	}
}

// TestGuardDropsAsTheKernelDoes: sources and destinations at every edge of what a cable may deliver.
func TestGuardDropsAsTheKernelDoes(t *testing.T) {
	f := world()
	known(f, 2, 3)
	p := newNetwork(&f.Members[1], f.Now).plan("c2-gw")
	for _, c := range []struct {
		iif, src, dst string
		passes        bool
	}{
		{"sl-c0", "10.8.1.5", "10.9.1.7", true},
		{"sl-c0", "10.8.1.5", "10.102.0.10", true},
		{"sl-c0", "10.8.1.5", "172.31.2.11", false},
		{"sl-c0", "10.8.1.5", "10.8.1.6", false},
		{"sl-c0", "10.8.1.5", "192.0.2.1", false},
		{"sl-c0", "192.0.2.1", "10.9.1.7", false},
		{"sl-c0", "10.9.1.6", "10.9.1.7", false},
		{"sl-c1", "10.8.1.5", "10.9.1.7", false},
		{"sl-c0", "10.10.1.5", "242.2.0.1", true},
		{"sl-c0", "10.8.1.5", "242.2.0.1", false},
		{"sl-c0", "10.10.1.5", "10.9.1.7", false},
		{"eth0", "192.0.2.1", "10.9.1.7", true},
	} {
		pk := packet{iif: c.iif, src: netip.MustParseAddr(c.src), dst: netip.MustParseAddr(c.dst)}
		if rule, passes := guarded(p, pk); passes != c.passes {
			t.Errorf("%+v: passes %t by %q", c, passes, rule)
		}
	}
}

// TestSourcesAreReadFromTheRuleset: in each situation in which a cluster is known by its block, its gateway gives each
// packet a source of that block, so that no rule for it has escaped explain.
func TestSourcesAreReadFromTheRuleset(t *testing.T) {
	seen := 0
	for _, s := range situations() {
		f := world()
		if s.change != nil {
			s.change(f)
		}
		n := newNetwork(&f.Members[0], f.Now)
		for _, r := range n.top.Remotes {
			for _, g := range n.top.Local.Gateways {
				p := n.plan(g.Node)
				for _, dst := range r.Routed {
					pk := packet{src: netip.MustParseAddr("10.8.1.5"), dst: dst.Addr().Next()}
					is, how := sentFrom(p, pk)
					switch {
					case !r.Translated && is.IsValid():
						t.Errorf("%s: to %s the source becomes %s", s.name, r.Name, is)
					case r.Translated && (!n.top.Local.Global.Contains(is) || how == ""):
						t.Errorf("%s: to %s the source becomes %s (%s), which is not of %s", s.name, r.Name, is, how,
							n.top.Local.Global)
					case r.Translated:
						seen++
					}
				}
			}
		}
	}
	if seen == 0 {
		t.Error("nothing is translated in any situation")
	}
}

// TestLookUpsAreTheKernels: rules by priority and link, longest prefix first, then the metric, and a throw goes on.
func TestLookUpsAreTheKernels(t *testing.T) {
	route := func(table int, dst string, metric int, kind plan.RouteType) plan.Route {
		return plan.Route{Table: table, Dst: netip.MustParsePrefix(dst), Metric: metric, Type: kind}
	}
	p := plan.Plan{
		Rules: []plan.Rule{{Family: plan.IPv4, Priority: 103, IIF: "sl-c0", Table: 1},
			{Family: plan.IPv4, Priority: 103, IIF: "sl-vx", Mark: 8, Mask: 8, Table: 4},
			{Family: plan.IPv4, Priority: 104, From: netip.MustParsePrefix("10.8.1.0/24"), Table: 2},
			{Family: plan.IPv4, Priority: 105, Table: 3}, {Family: plan.IPv6, Priority: 105, Table: 3}},
		Routes: []plan.Route{route(1, "10.9.0.0/16", 100, plan.Unicast), route(2, "10.9.1.0/24", 100, plan.Unicast),
			route(2, "10.9.1.7/32", 50, plan.Throw), route(3, "10.9.0.0/16", 4096, plan.Blackhole),
			route(3, "10.9.0.0/16", 100, plan.Unicast), route(3, "10.10.0.0/16", 4096, plan.Unreachable),
			route(4, "10.9.0.0/16", 100, plan.Unicast)},
	}
	for _, c := range []struct{ iif, src, dst, want string }{
		{"sl-c0", "10.8.1.5", "10.9.2.1", "103 1 100"},
		{"", "10.8.1.5", "10.9.1.1", "104 2 100"},
		{"", "10.8.2.5", "10.9.1.1", "105 3 100"},
		{"", "10.8.1.5", "10.9.1.7", "105 3 100"},
		{"sl-vx", "10.8.2.5", "10.9.1.1", "105 3 100"},
		{"", "10.8.2.5", "10.10.1.1", "105 3 4096"},
		{"", "10.8.2.5", "10.11.1.1", ""},
		{"", "fd00::1", "fd00::2", ""},
	} {
		r, rule, found := lookUp(p, packet{iif: c.iif, src: netip.MustParseAddr(c.src), dst: netip.MustParseAddr(c.dst)})
		got := ""
		if found {
			got = fmt.Sprintf("%d %d %d", rule.Priority, r.Table, r.Metric)
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c, got, c.want)
		}
	}
	marked := packet{iif: "sl-vx", mark: 8, src: netip.MustParseAddr("10.8.2.5"), dst: netip.MustParseAddr("10.9.1.1")}
	if r, _, _ := lookUp(p, marked); r.Table != 4 {
		t.Errorf("what siblings hand over is looked up in table %d", r.Table)
	}
}
