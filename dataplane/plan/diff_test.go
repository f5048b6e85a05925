// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/tools/txtar"

	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// apply makes changes to a kernel that is nothing but a Plan, with the kernel's own rules: what exists
// cannot be added, a link takes what it carries along, and nothing can be put on a link that is not there.
func apply(t *testing.T, k *plan.Plan, changes []plan.Change) {
	t.Helper()
	for _, c := range changes {
		switch e := c.Element.(type) {
		case plan.Link:
			k.Links = put(t, c, k.Links, e, func(x plan.Link) bool { return x.Name == e.Name })
			if c.Op == plan.Delete {
				dropCarried(k, e.Name)
			}
		case plan.Address:
			requireLink(t, k, c, e.Link)
			k.Addresses = put(t, c, k.Addresses, e, func(x plan.Address) bool {
				return x.Link == e.Link &&
					x.Prefix == e.Prefix
			})
		case plan.Tunnel:
			requireLink(t, k, c, e.Link)
			if i := slices.IndexFunc(k.Tunnels, func(x plan.Tunnel) bool { return x.Link == e.Link }); i >= 0 {
				e.Peers = k.Tunnels[i].Peers
			}
			k.Tunnels = put(t, c, k.Tunnels, e, func(x plan.Tunnel) bool { return x.Link == e.Link })
		case plan.TunnelPeer:
			i := slices.IndexFunc(k.Tunnels, func(x plan.Tunnel) bool { return x.Link == e.Link })
			if i < 0 {
				t.Fatalf("%s: no tunnel", c)
			}
			k.Tunnels[i].Peers = put(t, c, k.Tunnels[i].Peers, e.Peer,
				func(x plan.Peer) bool { return x.ID == e.ID })
		case plan.FDBEntry:
			requireLink(t, k, c, e.Link)
			k.FDB = put(t, c, k.FDB, e, func(x plan.FDBEntry) bool { return x.Link == e.Link && x.MAC == e.MAC })
		case plan.Neighbour:
			requireLink(t, k, c, e.Link)
			k.Neighbours = put(t, c, k.Neighbours, e, func(x plan.Neighbour) bool { return x.Link == e.Link && x.IP == e.IP })
		case plan.Route:
			for _, h := range e.NextHops {
				requireLink(t, k, c, h.Link)
			}
			k.Routes = put(t, c, k.Routes, e, func(x plan.Route) bool {
				return x.Table == e.Table && x.Dst == e.Dst &&
					x.Metric == e.Metric
			})
		case plan.Rule:
			k.Rules = put(t, c, k.Rules, e, func(x plan.Rule) bool { return x == e })
		case plan.TableEdit:
			k.Tables = put(t, c, k.Tables, e.Table, func(x plan.Table) bool { return x.Family == e.Table.Family })
		case plan.Table:
			k.Tables = put(t, c, k.Tables, e, func(x plan.Table) bool { return x.Family == e.Family })
		case plan.ForwardAccept:
			k.ForwardAccepts = put(t, c, k.ForwardAccepts, e.Family, func(x plan.Family) bool { return x == e.Family })
		case plan.ConntrackFlush:
		default:
			t.Fatalf("unknown element %T", e)
		}
	}
}

func put[E any](t *testing.T, c plan.Change, elements []E, e E, same func(E) bool) []E {
	t.Helper()
	i := slices.IndexFunc(elements, same)
	if (i >= 0) != (c.Op != plan.Add) {
		t.Fatalf("%s: it is there: %v", c, i >= 0)
	}
	elements = slices.Clone(elements)
	switch c.Op {
	case plan.Add:
		return append(elements, e)
	case plan.Replace:
		elements[i] = e
		return elements
	default:
		return slices.Delete(elements, i, i+1)
	}
}

func requireLink(t *testing.T, k *plan.Plan, c plan.Change, link string) {
	t.Helper()
	if link == "ipsec0" {
		return // strongSwan's, not ours
	}
	if !slices.ContainsFunc(k.Links, func(l plan.Link) bool { return l.Name == link }) {
		t.Fatalf("%s: no link %s", c, link)
	}
}

func dropCarried(k *plan.Plan, link string) {
	k.Addresses = slices.DeleteFunc(slices.Clone(k.Addresses), func(x plan.Address) bool { return x.Link == link })
	k.Tunnels = slices.DeleteFunc(slices.Clone(k.Tunnels), func(x plan.Tunnel) bool { return x.Link == link })
	k.FDB = slices.DeleteFunc(slices.Clone(k.FDB), func(x plan.FDBEntry) bool { return x.Link == link })
	k.Neighbours = slices.DeleteFunc(slices.Clone(k.Neighbours), func(x plan.Neighbour) bool { return x.Link == link })
	k.Routes = slices.DeleteFunc(slices.Clone(k.Routes), func(x plan.Route) bool {
		return slices.ContainsFunc(x.NextHops, func(h plan.NextHop) bool { return h.Link == link })
	})
}

// TestRandomWalk goes from golden to golden in random order: the changes always lead there, and from
// anywhere to a clean node.
func TestRandomWalk(t *testing.T) {
	all := states(t)
	r := rand.New(rand.NewPCG(5100, 5101))
	var kernel plan.Plan // without Active, which is in no kernel
	for range 500 {
		next := all[r.IntN(len(all))]
		apply(t, &kernel, plan.Diff(next.plan, kernel))
		if rest := plan.Diff(next.plan, kernel); len(rest) > 0 {
			t.Fatalf("at %s, still to do: %v", next.name, rest)
		}
		if r.IntN(10) == 0 {
			apply(t, &kernel, plan.Diff(plan.Plan{}, kernel))
			if diff := cmp.Diff(plan.Plan{}, kernel, cmpopts.EquateEmpty(), cmp.AllowUnexported(netip.Prefix{})); diff != "" {
				t.Fatalf("after %s the node is not clean:\n%s", next.name, diff)
			}
		}
	}
}

func TestDiffOfItselfIsEmpty(t *testing.T) {
	for _, s := range states(t) {
		if changes := plan.Diff(s.plan, s.plan); len(changes) > 0 {
			t.Errorf("%s: %v", s.name, changes)
		}
	}
}

func find(t *testing.T, name string) plan.Plan {
	t.Helper()
	for _, s := range states(t) {
		if s.name == name {
			return s.plan
		}
	}
	t.Fatalf("no golden %s", name)
	return plan.Plan{}
}

func texts(changes []plan.Change) string {
	var b strings.Builder
	for _, c := range changes {
		b.WriteString(c.String() + "\n")
	}
	return b.String()
}

func TestDiff(t *testing.T) {
	const other = plan.PeerID("another")
	tests := []struct {
		name string
		edit func(want, have *plan.Plan)
		want string
	}{{
		name: "a peer that roamed is left alone",
		edit: func(_, have *plan.Plan) {
			have.Tunnels[0].Peers[0].Endpoint = netip.MustParseAddrPort("192.0.2.9:1024")
			have.Tunnels[0].Peers[0].Cluster, have.Tunnels[0].Peers[0].Candidates = "", nil
		},
	}, {
		name: "a peer with a new ID replaces the old one",
		edit: func(_, have *plan.Plan) { have.Tunnels[0].Peers[0].ID = other },
		want: `add peer sl-c0 YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI= (c2/b-gw) active candidates 172.31.2.22:4500, 203.0.113.2:4500 allowed ips 10.9.0.0/16, 10.99.0.0/16, fd51:bdb3:3976:8bc5:e4fe:cbe5:5a44:2056/128 keepalive 5
delete peer sl-c0 YW5vdGhlcg== (c2/b-gw) active candidates 172.31.2.22:4500, 203.0.113.2:4500 allowed ips 10.9.0.0/16, 10.99.0.0/16, fd51:bdb3:3976:8bc5:e4fe:cbe5:5a44:2056/128 keepalive 5
`,
	}, {
		name: "this node's ID changed",
		edit: func(_, have *plan.Plan) { have.Tunnels[0].ID = other },
		want: "replace tunnel sl-c0 id YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE= listening port 4500\n",
	}, {
		name: "a route that points elsewhere",
		edit: func(_, have *plan.Plan) { have.Routes[0].Source = netip.Addr{} },
		want: "replace route 10.9.0.0/16 dev sl-c0 table 5100 proto 81 src 10.8.2.1 metric 100 mtu 1420\n",
	}, {
		name: "an MTU is set in place",
		edit: func(_, have *plan.Plan) { have.Links[0].MTU = 1500 },
		want: "replace link sl-c0 mtu 1420 type wireguard rp_filter 2 disable_ipv6 0\n",
	}, {
		name: "a link of another MAC is made anew, with all it carried",
		edit: func(_, have *plan.Plan) { have.Links[1].MAC = "02:51:00:00:00:00" },
		want: `delete link sl-vx
add link sl-vx mtu 1420 address 02:51:ac:1f:01:0c type vxlan id 5100 local 172.31.1.12 dstport 4800 nolearning rp_filter 2 disable_ipv6 0
add address 169.254.51.0/32 dev sl-vx scope link
add fdb 02:51:ac:1f:01:0b dev sl-vx dst 172.31.1.11 self permanent
add neighbour 172.31.1.11 dev sl-vx lladdr 02:51:ac:1f:01:0b nud permanent
add neighbour fe80::51:acff:fe1f:10b dev sl-vx lladdr 02:51:ac:1f:01:0b nud permanent
add route 10.8.1.0/24 via 172.31.1.11 dev sl-vx table 5101 proto 81 metric 100 onlink
add route 172.31.1.11/32 via 172.31.1.11 dev sl-vx table 5101 proto 81 metric 100 onlink
add address fd51:e5f3:7807:a79d:af40:65af:a5a6:b175/128 dev sl-vx
add route fd51:43ad:cb35:6b42:cb30:c640:210:2395/128 via fe80::51:acff:fe1f:10b dev sl-vx table 5100 proto 81 src fd51:e5f3:7807:a79d:af40:65af:a5a6:b175 metric 100 onlink
`,
	}, {
		name: "rules in the kernel are known by their identifier, and a foreign link-local address stays",
		edit: func(_, have *plan.Plan) {
			have.Addresses = append(have.Addresses, plan.Address{Link: "sl-vx", Prefix: netip.MustParsePrefix("fe80::1/64")})
			for _, table := range have.Tables {
				for _, chain := range table.Chains {
					for i, rule := range chain.Rules {
						chain.Rules[i] = plan.RuleID(rule)
					}
				}
			}
		},
	}, {
		name: "a rule that was tampered with",
		edit: func(_, have *plan.Plan) { have.Tables[0].Chains[0].Rules[0] = "accept" },
		want: "replace table ip sealane: write chain clamp\n",
	}, {
		name: "a cluster that is new gets its connections forgotten, and only it",
		edit: func(_, have *plan.Plan) {
			sets := have.Tables[0].Sets
			remote := &sets[slices.IndexFunc(sets, func(s plan.Set) bool { return s.Name == "remote" })]
			remote.Elements = remote.Elements[1:]
			have.Routes = slices.DeleteFunc(have.Routes, func(r plan.Route) bool {
				return r.Dst == netip.MustParsePrefix("10.9.0.0/16")
			})
		},
		want: `replace table ip sealane: add remote { 10.9.0.0/16 }
add route blackhole 10.9.0.0/16 table 5100 proto 81 metric 4096
add connection flush 10.9.0.0/16
add route 10.9.0.0/16 dev sl-c0 table 5100 proto 81 src 10.8.2.1 metric 100 mtu 1420
`,
	}, {
		name: "a prefix that was within a known one is not new",
		edit: func(_, have *plan.Plan) {
			have.Tables[0].Sets = nil
			for i := range have.Routes {
				if have.Routes[i].Dst == netip.MustParsePrefix("10.9.0.0/16") {
					have.Routes[i].Dst = netip.MustParsePrefix("10.8.0.0/15")
				}
			}
		},
		want: `replace table ip sealane: add cable0 { 10.9.0.0/16 }, add cable0 { 10.99.0.0/16 }, add local { 10.8.0.0/16 }, add local { 10.88.0.0/16 }, add nodes { 172.31.1.11/32 }, add nodes { 172.31.1.12/32 }, add outers { 172.31.2.22/32 }, add pods { 10.8.0.0/16 }, add remote { 10.9.0.0/16 }, add remote { 10.99.0.0/16 }
add route blackhole 10.9.0.0/16 table 5100 proto 81 metric 4096
add connection flush 10.9.0.0/16, 10.99.0.0/16 from a source translated to none of 10.8.0.0/16, 10.88.0.0/16
add route 10.9.0.0/16 dev sl-c0 table 5100 proto 81 src 10.8.2.1 metric 100 mtu 1420
delete route 10.8.0.0/15 dev sl-c0 table 5100 proto 81 src 10.8.2.1 metric 100 mtu 1420
delete route blackhole 10.8.0.0/15 table 5100 proto 81 metric 4096
`,
	}, {
		name: "a table that somebody deleted comes back, and connections stay unless masqueraded meanwhile",
		edit: func(_, have *plan.Plan) { have.Tables = have.Tables[1:] },
		want: `add table ip sealane
add connection flush 10.9.0.0/16, 10.99.0.0/16 from a source translated to none of 10.8.0.0/16, 10.88.0.0/16
`,
	}, {
		name: "what a throw leads out of the table is not known as remote",
		edit: func(want, have *plan.Plan) {
			have.Tables = nil
			want.Tables = []plan.Table{{Family: plan.IPv4, Sets: []plan.Set{
				{Name: "remote", Elements: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}},
			}}}
			throw := plan.Route{Table: plan.OutboundTable, Dst: netip.MustParsePrefix("192.0.2.1/32"),
				Metric: plan.ThrowMetric, Type: plan.Throw}
			want.Routes, have.Routes = append(want.Routes, throw), append(have.Routes, throw)
		},
		want: `add table ip sealane
add connection flush 192.0.2.1/32
`,
	}, {
		name: "routes that a flap took come back without forgetting connections",
		edit: func(_, have *plan.Plan) { have.Routes = have.Routes[1:] },
		want: "add route 10.9.0.0/16 dev sl-c0 table 5100 proto 81 src 10.8.2.1 metric 100 mtu 1420\n",
	}, {
		name: "what services led to other nodes' backends is forgotten when there is another way for answers",
		edit: func(want, _ *plan.Plan) { addSet(want, "transit", "10.8.1.0/24") },
		want: `replace table ip sealane: add transit { 10.8.1.0/24 }
add connection flush 10.8.1.0/24 that services led to from 10.9.0.0/16, 10.99.0.0/16
`,
	}, {
		name: "and when there is one way only again",
		edit: func(_, have *plan.Plan) { addSet(have, "transit", "10.8.1.0/24") },
		want: `replace table ip sealane: delete transit
add connection flush 10.8.1.0/24 that services led to from 10.9.0.0/16, 10.99.0.0/16
`,
	}, {
		name: "but not when other nodes come",
		edit: func(want, have *plan.Plan) {
			addSet(want, "transit", "10.8.1.0/24", "10.8.3.0/24")
			addSet(have, "transit", "10.8.1.0/24")
		},
		want: "replace table ip sealane: add transit { 10.8.3.0/24 }\n",
	}, {
		name: "nor when somebody emptied the set",
		edit: func(want, have *plan.Plan) {
			addSet(want, "transit", "10.8.1.0/24")
			addSet(have, "transit")
		},
		want: "replace table ip sealane: add transit { 10.8.1.0/24 }\n",
	}}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want, have := find(t, "spine/a-gw"), find(t, "spine/a-gw")
			test.edit(&want, &have)
			if diff := cmp.Diff(test.want, texts(plan.Diff(want, have))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func addSet(p *plan.Plan, name string, elements ...string) {
	set := plan.Set{Name: name}
	for _, e := range elements {
		set.Elements = append(set.Elements, netip.MustParsePrefix(e))
	}
	p.Tables[0].Sets = append(slices.Clone(p.Tables[0].Sets), set)
}

// TestFirstAndLast: what guards and keeps packets out of the clear is there before the first link, and goes
// after the last. A link that is made anew is not deleted before either.
func TestFirstAndLast(t *testing.T) {
	gateway, anew := find(t, "spine/a-gw"), find(t, "spine/a-gw")
	anew.Links = slices.Clone(anew.Links)
	anew.Links[1].MAC, anew.Tables, anew.Rules = "02:51:00:00:00:00", nil, nil
	for name, changes := range map[string][]plan.Change{
		"up": plan.Diff(gateway, plan.Plan{}), "anew": plan.Diff(gateway, anew),
	} {
		if !slices.IsSortedFunc(changes, guardsFirst) || changes[0].Kind != plan.KindTable {
			t.Errorf("%s: %s", name, texts(changes))
		}
	}
	down := plan.Diff(plan.Plan{}, gateway)
	slices.Reverse(down)
	if !slices.IsSortedFunc(down, guardsFirst) || down[0].Kind != plan.KindTable {
		t.Errorf("down, reversed: %s", texts(down))
	}
}

func guardsFirst(a, b plan.Change) int {
	order := map[bool]int{true: 0, false: 1}
	return order[a.Guards()] - order[b.Guards()]
}

// TestProbesAreAnsweredLast: who answers probes is sent traffic, so nothing that carries it comes after the address that
// answers, nor goes before it.
func TestProbesAreAnsweredLast(t *testing.T) {
	for path, probes := range map[string]netip.Prefix{
		"spine/a-gw": plan.ULAPrefix(), "no-ipv6/a-gw": netip.MustParsePrefix("248.0.0.0/6"),
	} {
		gateway := find(t, path)
		bare := gateway
		bare.Addresses, bare.Routes, bare.Neighbours, bare.FDB = nil, nil, nil, nil
		down := plan.Diff(bare, gateway)
		slices.Reverse(down)
		for name, changes := range map[string][]plan.Change{
			"up": plan.Diff(gateway, plan.Plan{}), "on links that are there": plan.Diff(gateway, bare),
			"down, reversed": down,
		} {
			answers := slices.IndexFunc(changes, func(c plan.Change) bool {
				a, ok := c.Element.(plan.Address)
				return ok && probes.Contains(a.Prefix.Addr())
			})
			if answers < 0 {
				t.Fatalf("%s %s: nothing answers probes:\n%s", path, name, texts(changes))
			}
			for i, c := range changes[answers:] {
				r, _ := c.Element.(plan.Route)
				a, _ := c.Element.(plan.Address)
				if !probes.Contains(r.Source) && !probes.Contains(a.Prefix.Addr()) {
					t.Fatalf("%s %s: %s comes %d after the first address that answers:\n%s", path, name, c, i, texts(changes))
				}
			}
		}
	}
}

// TestFailClosed: what stands before the first sync is part of every plan, needs no link, and is there for a
// node that the topology does not know.
func TestFailClosed(t *testing.T) {
	eachCase(t, func(path string, _ *txtar.Archive, top topology.Topology, nodes []plan.NodeFacts) {
		for _, n := range nodes {
			closed, all := plan.FailClosed(top, n), plan.For(top, n)
			if changes := plan.Additions(plan.Diff(closed, all)); len(changes) > 0 {
				t.Errorf("%s, %s: not in the plan: %s", path, n.Name, texts(changes))
			}
			requireSilence(t, all)
			for _, c := range plan.Diff(closed, plan.Plan{}) {
				if !c.Guards() && c.Kind != plan.KindConnection {
					t.Errorf("%s, %s: %s", path, n.Name, c)
				}
			}
			requireStanding(t, top, n, closed)
			unlisted := n
			unlisted.Name = "unlisted"
			requireStanding(t, top, unlisted, plan.For(top, unlisted))
		}
	})
}

// requireSilence: behind a route that may go with its link, packets are dropped without an error, and where there is
// none the sender hears that the network is unreachable.
func requireSilence(t *testing.T, p plan.Plan) {
	t.Helper()
	routed := map[netip.Prefix]bool{}
	for _, r := range p.Routes {
		routed[r.Dst] = routed[r.Dst] || r.Table == plan.OutboundTable && r.Type == plan.Unicast
	}
	for _, r := range p.Routes {
		want := plan.Unreachable
		if routed[r.Dst] {
			want = plan.Blackhole
		}
		if r.Metric == plan.StandingMetric && r.Type != want {
			t.Errorf("%s: expected it to be %s", r, want)
		}
	}
}

func requireStanding(t *testing.T, top topology.Topology, n plan.NodeFacts, p plan.Plan) {
	t.Helper()
	for _, r := range top.Remotes {
		for _, dst := range r.Routed {
			if dst.Addr().Is6() && !n.IPv6 {
				continue
			}
			family := plan.FamilyOf(dst.Addr())
			if !slices.ContainsFunc(p.Routes, func(r plan.Route) bool {
				return r.Dst == dst && r.Type == plan.Unreachable && r.Metric == plan.StandingMetric &&
					r.Table == plan.OutboundTable
			}) || !slices.Contains(p.Rules, plan.Rule{Family: family, Priority: plan.OutboundPriority,
				Table: plan.OutboundTable}) {
				t.Errorf("node %s: %s may leave in clear:\n%s", n.Name, dst, p)
			}
		}
	}
}

func TestOverhead(t *testing.T) {
	for _, c := range []struct {
		driver string
		outer  plan.Family
		want   int
	}{
		{"wireguard", plan.IPv4, 60},
		{"wireguard", plan.IPv6, 80},
		{"pigeon", plan.IPv6, 0},
	} {
		if got := plan.Overhead(c.driver, c.outer); got != c.want {
			t.Errorf("%s over IPv%d: %d bytes, want %d", c.driver, c.outer, got, c.want)
		}
	}
	if got := plan.TunnelMTU("wireguard", 0); got != 1420 {
		t.Errorf("MTU over an unknown underlay: %d", got)
	}
}
