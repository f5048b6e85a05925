// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

func TestChoose(t *testing.T) {
	const all = 16
	for _, c := range []struct {
		name           string
		slots          []int
		alive, current []int
		n              int
		want           []int
	}{
		{"nothing is known: all", []int{0, 1}, nil, nil, all, []int{0, 1}},
		{"nothing is known: the first", []int{0, 1}, nil, nil, 1, []int{0}},
		{"one alive", []int{0, 1}, []int{1}, nil, all, []int{1}},
		{"the current one goes on when the first returns", []int{0, 1}, []int{0, 1}, []int{1}, 1, []int{1}},
		{"the current one died", []int{0, 1}, []int{0}, []int{1}, 1, []int{0}},
		{"all died: the current one stays", []int{0, 1}, nil, []int{1}, 1, []int{1}},
		{"all died: those current stay", []int{0, 1, 2}, []int{}, []int{0, 2}, all, []int{0, 2}},
		{"a third joins", []int{0, 1, 2}, []int{0, 1, 2}, []int{0, 1}, all, []int{0, 1, 2}},
		{"a third joins where two carry", []int{0, 1, 2}, []int{0, 1, 2}, []int{1, 2}, 2, []int{1, 2}},
		{"fewer carry than did: the first of them", []int{0, 1, 2}, []int{0, 1, 2}, []int{0, 1, 2}, 1, []int{0}},
		{"the current one is no gateway any more", []int{0}, []int{0}, []int{1}, 1, []int{0}},
		{"the current one is no gateway any more, and none is alive", []int{0}, nil, []int{1}, 1, []int{0}},
		{"alive is what is no gateway", []int{0}, []int{7}, nil, 1, []int{0}},
		{"none", nil, []int{0}, []int{0}, all, []int{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := plan.Choose(withSlots(c.slots), c.alive, c.current, c.n); !slices.Equal(got, c.want) {
				t.Errorf("expected %v, found %v", c.want, got)
			}
		})
	}
}

// TestWithdrawn: a gateway whose cables are about to end hands over what it sends itself if a sibling answers, and goes
// on carrying what others send.
func TestWithdrawn(t *testing.T) {
	prefix := netip.MustParsePrefix
	for _, c := range []struct {
		name                string
		alive, held         map[string][]int
		translated          bool
		siblings            []string
		byCables, forOthers []int
	}{
		{name: "a sibling is alive", alive: map[string][]int{"c1": {1}, "c2": {0}}, siblings: []string{"gw2"},
			forOthers: []int{0}},
		{name: "a sibling answers, and has failed often", alive: map[string][]int{"c2": {0}},
			held: map[string][]int{"c1": {1}}, siblings: []string{"gw2"}, forOthers: []int{0}},
		{name: "no sibling answers", alive: map[string][]int{"c2": {0}}, byCables: []int{0}},
		{name: "what it translates stays", alive: map[string][]int{"c1": {1}, "c2": {0}}, translated: true,
			byCables: []int{0}},
		{name: "its cables are dead", alive: map[string][]int{"c1": {1}}, translated: true, siblings: []string{"gw2"},
			forOthers: []int{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := func(name, address string) topology.Node {
				return topology.Node{Name: name, Addresses: []netip.Addr{netip.MustParseAddr(address)}}
			}
			top := topology.Topology{Cluster: "c1", Cable: topology.Cable{Driver: "wireguard", Port: 4500, VXLANPort: 4800},
				Local: topology.Local{Pods: []netip.Prefix{prefix("10.8.0.0/16")},
					Announced: []netip.Prefix{prefix("10.8.0.0/16")},
					Nodes:     []topology.Node{node("gw", "172.31.1.1"), node("gw2", "172.31.1.2")},
					Gateways: []topology.Gateway{{Node: "gw", PublicKey: topology.Key{1}},
						{Node: "gw2", Slot: 1, PublicKey: topology.Key{2}}}},
				Remotes: []topology.Remote{{Name: "c2", Routed: []netip.Prefix{prefix("10.9.0.0/16")},
					Translated: c.translated, Gateways: []topology.Gateway{{Node: "other", PublicKey: topology.Key{3}}}}}}
			facts := plan.NodeFacts{Name: "gw", ID: "1", Alive: c.alive, Held: c.held,
				Current: map[string][]int{"c2": {0}}}
			before := plan.For(top, facts)
			facts.Withdrawn = true
			after := plan.For(top, facts)
			if got := after.Active; !slices.Equal(got.Siblings["c2"], c.siblings) ||
				!slices.Equal(got.Remotes["c2"], c.byCables) || !slices.Equal(got.Received["c2"], c.forOthers) {
				t.Errorf("expected siblings %v, own cables %v, for others %v, found %+v", c.siblings, c.byCables, c.forOthers,
					got)
			}
			for _, change := range plan.Diff(after, before) {
				if change.Kind != plan.KindRoute {
					t.Errorf("not a route: %s", change)
				}
			}
		})
	}
}

func withSlots(slots []int) []topology.Gateway {
	var out []topology.Gateway
	for _, s := range slots {
		out = append(out, topology.Gateway{Slot: s})
	}
	return out
}

// TestChooseMovesNoMoreThanItMust: whatever dies and returns, a gateway that carries and is alive goes on, the choice
// is as large as it can be, and choosing again changes nothing.
func TestChooseMovesNoMoreThanItMust(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	some := func() []int {
		return slices.DeleteFunc([]int{0, 1, 2, 3, 4}, func(int) bool { return random.IntN(2) == 0 })
	}
	for range 5000 {
		gateways, alive, current, n := some(), some(), some(), 1+random.IntN(5)
		got := plan.Choose(withSlots(gateways), alive, current, n)
		usable := intersection(gateways, alive)
		stay := intersection(usable, current)
		switch {
		case len(usable) > 0 && len(got) != min(n, len(usable)), len(intersection(got, gateways)) != len(got):
			t.Fatalf("gateways %v alive %v current %v n %d: chose %v", gateways, alive, current, n, got)
		case len(intersection(stay, got)) != min(n, len(stay)):
			t.Fatalf("gateways %v alive %v current %v n %d: %v moved though it could stay", gateways, alive, current, n, got)
		case !slices.Equal(plan.Choose(withSlots(gateways), alive, got, n), got):
			t.Fatalf("gateways %v alive %v: %v is not final", gateways, alive, got)
		}
	}
}

func intersection(a, b []int) []int {
	return slices.DeleteFunc(slices.Clone(a), func(x int) bool { return !slices.Contains(b, x) })
}

// TestCurrentIsWhatThePlanChose: the kernel's routes are all that the choice needs to remember.
func TestCurrentIsWhatThePlanChose(t *testing.T) {
	eachCase(t, func(path string, _ *txtar.Archive, top topology.Topology, nodes []plan.NodeFacts) {
		for _, n := range nodes {
			p := plan.For(top, n)
			current := plan.Current(top, p)
			for cluster, slots := range p.Active.Remotes {
				if !slices.Equal(current[cluster], slots) {
					t.Errorf("%s, %s: to %s by %v, found %v", path, n.Name, cluster, slots, current[cluster])
				}
			}
			if len(p.Active.Gateways) > 0 && len(current) > 0 && len(current[top.Cluster]) != len(p.Active.Gateways) {
				t.Errorf("%s, %s: by %v, found %v", path, n.Name, p.Active.Gateways, current[top.Cluster])
			}
			// All die: what carried goes on.
			n.Current, n.Alive = current, map[string][]int{}
			if again := plan.For(top, n); strings.TrimSpace(again.String()) != strings.TrimSpace(p.String()) &&
				len(p.Active.Siblings) == 0 {
				t.Errorf("%s, %s: when all die the plan changes:\n%s", path, n.Name, texts(plan.Diff(again, p)))
			}
		}
	})
}
