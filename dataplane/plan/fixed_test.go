// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	order "cmp"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/plan/plantest"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// anyLiveness gives a node facts of gateways that are alive, current and so on, at random.
func anyLiveness(r *rand.Rand, t topology.Topology, n plan.NodeFacts) plan.NodeFacts {
	some := func(gateways []topology.Gateway) (out []int) {
		for _, g := range gateways {
			if r.IntN(3) > 0 {
				out = append(out, g.Slot)
			}
		}
		return out
	}
	for _, of := range []*map[string][]int{&n.Alive, &n.Held, &n.Shaken, &n.Current} {
		*of = map[string][]int{t.Cluster: some(t.Local.Gateways)}
		for _, remote := range t.Remotes {
			(*of)[remote.Name] = some(remote.Gateways)
		}
	}
	n.Withdrawn = r.IntN(4) == 0
	n.Straight, n.PathMTU = map[plan.PeerID]bool{}, nil
	if r.IntN(2) == 0 {
		n.PathMTU = map[plan.PeerID]int{}
	}
	for _, remote := range t.Remotes {
		for _, node := range remote.Nodes {
			n.Straight[plan.PeerID(node.PublicKey[:])] = r.IntN(2) == 0
		}
		for _, g := range remote.Gateways {
			if n.PathMTU != nil && r.IntN(3) == 0 {
				n.PathMTU[plan.PeerOf(g)] = 1280 + r.IntN(200)
			}
		}
	}
	return n
}

// TestWhatIsFixedIsNotMoved: whatever becomes of the gateways, a plan from what is fixed is the one that is made as a
// whole, and the plans before it stay as they were.
func TestWhatIsFixedIsNotMoved(t *testing.T) {
	eachCase(t, func(path string, _ *txtar.Archive, top topology.Topology, nodes []plan.NodeFacts) {
		r := rand.New(rand.NewPCG(1, uint64(len(path))))
		for _, n := range nodes {
			top := top.WithNextKeys(n.Replacement()).WithVXLAN(n.Name, nil)
			fixed := plan.Fix(top, n)
			before, text := plan.Plan{}, plan.Plan{}.String()
			for step := range 20 {
				moved := anyLiveness(r, top, n)
				if !fixed.Is(moved) {
					t.Fatalf("%s/%s: liveness is taken for something fixed", path, n.Name)
				}
				got, want := fixed.For(moved), plan.Whole(top, moved)
				if !reflect.DeepEqual(want, got) {
					t.Fatalf("%s/%s, step %d: (-from the topology +from what is fixed)\n%s", path, n.Name, step,
						cmp.Diff(want.String(), got.String()))
				}
				if before.String() != text {
					t.Fatalf("%s/%s, step %d: the plan before was changed", path, n.Name, step)
				}
				before, text = got, got.String()
				if !sortedRoutes(got.Routes) {
					t.Fatalf("%s/%s, step %d: routes are not sorted", path, n.Name, step)
				}
			}
			other := n
			other.UnderlayMTU++
			if fixed.Is(other) {
				t.Fatalf("%s/%s: another MTU is taken for liveness", path, n.Name)
			}
		}
	})
}

// TestEachFactIsFixedOrMoves: of a fact that is new somebody has to say which. What is fixed does not go for a node of
// which one of the fixed facts is another, if only in what it holds.
func TestEachFactIsFixedOrMoves(t *testing.T) {
	moving := []string{"Alive", "Held", "Shaken", "Withdrawn", "Current", "Straight", "PathMTU"}
	a, b := netip.MustParseAddr("10.7.0.1"), netip.MustParseAddr("10.7.0.2")
	narrow, wide := netip.MustParsePrefix("10.7.0.0/24"), netip.MustParsePrefix("10.7.0.0/16")
	values := map[reflect.Type][2]any{
		reflect.TypeFor[string]():               {"a", "b"},
		reflect.TypeFor[plan.PeerID]():          {plan.PeerID("a"), plan.PeerID("b")},
		reflect.TypeFor[int]():                  {1500, 1501},
		reflect.TypeFor[bool]():                 {false, true},
		reflect.TypeFor[[]netip.Addr]():         {[]netip.Addr{a}, []netip.Addr{b}},
		reflect.TypeFor[[]netip.Prefix]():       {[]netip.Prefix{narrow}, []netip.Prefix{wide}},
		reflect.TypeFor[map[string][]int]():     {map[string][]int{"c": {0}}, map[string][]int{"c": {1}}},
		reflect.TypeFor[map[plan.PeerID]bool](): {map[plan.PeerID]bool{"a": true}, map[plan.PeerID]bool{"b": true}},
		reflect.TypeFor[map[plan.PeerID]int]():  {map[plan.PeerID]int{"a": 1400}, map[plan.PeerID]int{"a": 1401}},
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[plan.NodeFacts]()) {
		pair, known := values[f.Type]
		if !known {
			t.Fatalf("%s: no values of %s here", f.Name, f.Type)
		}
		var before, after plan.NodeFacts
		reflect.ValueOf(&before).Elem().FieldByIndex(f.Index).Set(reflect.ValueOf(pair[0]))
		reflect.ValueOf(&after).Elem().FieldByIndex(f.Index).Set(reflect.ValueOf(pair[1]))
		fixed := plan.Fix(topology.Topology{}, before)
		if got, want := fixed.Is(after), slices.Contains(moving, f.Name); got != want || !fixed.Is(before) {
			t.Errorf("with another %s what is fixed goes: %v, want %v", f.Name, got, want)
		}
	}
}

// TestSortedOrNotTheChangesAreTheSame, of routes, which the kernel lists in an order of its own.
func TestSortedOrNotTheChangesAreTheSame(t *testing.T) {
	all := states(t)
	r := rand.New(rand.NewPCG(1, 2))
	sorted := func(changes []plan.Change) []string {
		var out []string
		for _, c := range changes {
			if c.Kind == plan.KindRoute {
				out = append(out, c.String())
			}
		}
		return slices.Sorted(slices.Values(out))
	}
	for range 200 {
		want, have := all[r.IntN(len(all))], all[r.IntN(len(all))].plan
		changes := sorted(plan.Diff(want.plan, have))
		have.Routes = slices.Clone(have.Routes)
		r.Shuffle(len(have.Routes), func(i, j int) {
			have.Routes[i], have.Routes[j] = have.Routes[j], have.Routes[i]
		})
		if diff := cmp.Diff(changes, sorted(plan.Diff(want.plan, have))); diff != "" {
			t.Fatalf("%s: (-sorted +not)\n%s", want.name, diff)
		}
	}
}

// TestSortedOrNotCurrentIsTheSame: in the kernel, too, there are other routes to where traffic goes.
func TestSortedOrNotCurrentIsTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	eachCase(t, func(path string, _ *txtar.Archive, top topology.Topology, nodes []plan.NodeFacts) {
		for _, n := range nodes {
			top := top.WithNextKeys(n.Replacement()).WithVXLAN(n.Name, nil)
			have := plan.For(top, n)
			want := plan.Current(top, have)
			found += len(want)
			r.Shuffle(len(have.Routes), func(i, j int) {
				have.Routes[i], have.Routes[j] = have.Routes[j], have.Routes[i]
			})
			if diff := cmp.Diff(want, plan.Current(top, have)); diff != "" {
				t.Errorf("%s/%s: (-sorted +not)\n%s", path, n.Name, diff)
			}
		}
	})
	if found == 0 {
		t.Error("traffic goes nowhere in any case")
	}
}

// TestOneGatewayIsFewChanges, however many nodes and clusters there are, and what has not moved is not even copied.
func TestOneGatewayIsFewChanges(t *testing.T) {
	top := topology.Build(plantest.Fleet(50, 2, 200))
	for node, lost := range map[string]string{"node-0": "cluster-7", "node-199": "local"} {
		f := plan.NodeFacts{Name: node, ID: plan.PeerID(node), UnderlayMTU: 1500, IPv6: true}
		f = plantest.Alive(top, f)
		fixed := plan.Fix(top, f)
		before := fixed.For(f)
		f.Alive[lost] = []int{1}
		after := fixed.For(f)
		want := 2 // the cluster's networks
		if lost == "local" {
			want = 2 * len(top.Remotes)
		}
		if changes := plan.Diff(after, before); len(changes) != want {
			t.Errorf("%s: %d changes, want %d: %v", node, len(changes), want, changes)
		}
		for what, same := range map[string]bool{
			"neighbours": &before.Neighbours[0] == &after.Neighbours[0], "entries": &before.FDB[0] == &after.FDB[0],
			"tables": &before.Tables[0] == &after.Tables[0],
		} {
			if !same {
				t.Errorf("%s: the %s were made anew", node, what)
			}
		}
		// A copy of each route, and little else.
		few := float64(20*len(top.Remotes) + 200)
		if allocations := testing.AllocsPerRun(5, func() { fixed.For(f) }); allocations > few {
			t.Errorf("%s: %.0f allocations, want %.0f at most", node, allocations, few)
		}
	}
}

func sortedRoutes(routes []plan.Route) bool {
	return slices.IsSortedFunc(routes, func(a, b plan.Route) int {
		return order.Or(order.Compare(a.Table, b.Table), netfacts.Compare(a.Dst, b.Dst), order.Compare(a.Metric, b.Metric))
	})
}
