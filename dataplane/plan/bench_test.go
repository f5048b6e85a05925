// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/plan/plantest"
	"github.com/sealane-io/sealane/dataplane/topology"
)

var gatewayFacts = plan.NodeFacts{Name: "node-0", ID: "node-0", UnderlayMTU: 1500, IPv6: true}

func forFleets(b *testing.B, f func(b *testing.B, in topology.Input)) {
	for _, clusters := range []int{10, 100, 250} {
		b.Run(fmt.Sprintf("clusters=%d/gateways=2", clusters), func(b *testing.B) {
			f(b, fleet(b, clusters, 10))
		})
	}
	b.Run("clusters=250/gateways=2/nodes=1000", func(b *testing.B) { f(b, fleet(b, 250, 1000)) })
}

// fleet is the input of a cluster with two gateways, and of as many remote ones.
func fleet(b *testing.B, clusters, nodes int) topology.Input {
	b.Helper()
	in := plantest.Fleet(clusters, 2, nodes)
	top := topology.Build(in)
	if len(top.Remotes) != clusters || len(top.Local.Nodes) != nodes || len(top.Problems) > 0 {
		b.Fatalf("%d remotes, %d nodes, problems %v", len(top.Remotes), len(top.Local.Nodes), top.Problems)
	}
	b.ReportAllocs()
	return in
}

// BenchmarkPlan goes from API objects to the plan of the active gateway.
func BenchmarkPlan(b *testing.B) {
	forFleets(b, func(b *testing.B, in topology.Input) {
		for b.Loop() {
			plan.For(topology.Build(in), gatewayFacts)
		}
	})
}

// BenchmarkPlanByVXLAN is the same where every cluster is reached by VXLAN too.
func BenchmarkPlanByVXLAN(b *testing.B) {
	forFleets(b, func(b *testing.B, in topology.Input) {
		for i := range in.Peering.Spec.RemoteClusters {
			r := &in.Peering.Spec.RemoteClusters[i]
			r.Cable = v1alpha1.CableVXLAN
			for j := range r.Endpoints {
				a := fmt.Sprintf("172.31.%d.%d", i, j+1)
				r.Endpoints[j].Addresses = []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPrivate, IP: a}}
			}
		}
		top := topology.Build(in).WithVXLAN(gatewayFacts.Name, nil)
		if p := plan.For(top, gatewayFacts); len(p.VXLAN) != 2 {
			b.Fatalf("%d cables by VXLAN, expected one for each of two slots", len(p.VXLAN))
		}
		for b.Loop() {
			plan.For(top, gatewayFacts)
		}
	})
}

// BenchmarkPlanOfARelay is the same where all pairs of the others reach each other by this cluster.
func BenchmarkPlanOfARelay(b *testing.B) {
	forFleets(b, func(b *testing.B, in topology.Input) {
		var names []string
		for _, r := range in.Peering.Spec.RemoteClusters {
			names = append(names, r.Name)
		}
		in.Peering.Spec.Relays = []v1alpha1.RelayedClusters{{Clusters: names, With: names}}
		for b.Loop() {
			plan.For(topology.Build(in), gatewayFacts)
		}
	})
}

// BenchmarkPlanBehindARelay is the same where all but the first of the others are behind that one.
func BenchmarkPlanBehindARelay(b *testing.B) {
	forFleets(b, func(b *testing.B, in topology.Input) {
		for i := range in.Peering.Spec.RemoteClusters[1:] {
			r := &in.Peering.Spec.RemoteClusters[i+1]
			r.Relay, r.Endpoints = in.Peering.Spec.RemoteClusters[0].Name, nil
		}
		for b.Loop() {
			plan.For(topology.Build(in), gatewayFacts)
		}
	})
}

// BenchmarkDiff compares the active gateway's plan with a kernel in which one cluster's routes are missing.
func BenchmarkDiff(b *testing.B) {
	forFleets(b, func(b *testing.B, in topology.Input) {
		want := plan.For(topology.Build(in), gatewayFacts)
		have := want
		have.Routes = have.Routes[2:]
		for b.Loop() {
			if changes := plan.Diff(want, have); len(changes) != 2 {
				b.Fatalf("%d changes", len(changes))
			}
		}
	})
}

// BenchmarkNodes has what a node of a cluster with 1,000 nodes spends, before the kernel is asked, for 250 remote
// clusters with two gateways each: on the topology, on the plan, on the difference of that to a kernel in which nothing
// differs, and on a remote gateway, or on a worker a local one, that is lost and is back.
func BenchmarkNodes(b *testing.B) {
	in := fleet(b, 250, 1000)
	top := topology.Build(in)
	for _, c := range []struct{ role, node, cluster string }{
		{"gateway", "node-0", "cluster-7"}, {"worker", "node-999", "local"},
	} {
		f := gatewayFacts
		f.Name, f.ID = c.node, plan.PeerID(c.node)
		f = plantest.Alive(top, f)
		all := plan.For(top, f)
		f.Current = plan.Current(top, all)
		b.Run(c.role+"/topology", func(b *testing.B) {
			for b.Loop() {
				topology.Build(in)
			}
		})
		b.Run(c.role+"/plan", func(b *testing.B) {
			for b.Loop() {
				plan.For(top, f)
			}
		})
		same := plan.For(top, f)
		b.Run(c.role+"/diff", func(b *testing.B) {
			for b.Loop() {
				if changes := plan.Diff(same, all); len(changes) != 0 {
					b.Fatal(changes)
				}
			}
		})
		dead := f
		dead.Alive = maps.Clone(f.Alive)
		dead.Alive[c.cluster] = []int{1}
		b.Run(c.role+"/liveness", func(b *testing.B) {
			fixed := plan.Fix(top, f)
			have, facts := fixed.For(f), [2]plan.NodeFacts{dead, f}
			for n := 0; b.Loop(); n++ {
				facts[n%2].Current = plan.Current(top, have)
				if !fixed.Is(facts[n%2]) {
					b.Fatal("more than liveness has changed")
				}
				want := fixed.For(facts[n%2])
				if len(plan.Diff(want, have)) == 0 {
					b.Fatal("nothing changes")
				}
				have = want
			}
		})
	}
}

// BenchmarkFailOver is what one gateway's death, or its return, costs before the kernel is asked: the plan and the
// changes, on a worker and on a gateway, for clusters that all know this one by its block, and it them by theirs. The
// changes are to grow with the clusters no faster than the routes that have to be moved.
func BenchmarkFailOver(b *testing.B) {
	for _, clusters := range []int{1, 10, 100} {
		in := fleet(b, clusters, 10)
		in.Peering.Spec.GlobalCIDR = "120.255.0.0/24"
		for i := range in.Peering.Spec.RemoteClusters {
			r := &in.Peering.Spec.RemoteClusters[i]
			r.Networks, r.GlobalCIDR, r.Translated = v1alpha1.Networks{}, fmt.Sprintf("120.%d.0.0/24", i), true
		}
		top := topology.Build(in)
		for _, node := range []string{"node-0", "node-9"} { // a gateway and a worker
			f := gatewayFacts
			f.Name, f.Alive = node, map[string][]int{"local": {0, 1}}
			dead := f
			dead.Alive = map[string][]int{"local": {1}}
			for _, r := range top.Remotes {
				f.Alive[r.Name], dead.Alive[r.Name] = []int{0, 1}, []int{1}
			}
			b.Run(fmt.Sprintf("clusters=%d/node=%s", clusters, node), func(b *testing.B) {
				have := plan.For(top, f)
				changes := 0
				for b.Loop() {
					changes = len(plan.Diff(plan.For(top, dead), have))
				}
				b.ReportMetric(float64(changes), "changes")
				b.ReportMetric(float64(len(plan.Diff(have, plan.For(top, dead)))), "changes-back")
			})
		}
	}
}
