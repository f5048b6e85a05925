// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// fleet is the input of a cluster of ten nodes, with gateways and remote clusters.
func fleet(clusters, gateways int) topology.Input {
	in := topology.Input{Peering: &v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{
		Phase: v1alpha1.MemberActive, ClusterID: "local",
		Networks: v1alpha1.Networks{PodCIDRs: []string{"10.255.0.0/16"}, ServiceCIDRs: []string{"11.255.0.0/16"}},
	}}}
	for i := range 10 {
		in.Nodes = append(in.Nodes, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)},
			Spec:       corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.255.%d.0/24", i)}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.16.0.%d", i+1)}}},
		})
	}
	for slot := range gateways {
		in.Gateways = append(in.Gateways, v1alpha1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", slot)}, Spec: v1alpha1.GatewaySpec{Slot: int32(slot)}})
	}
	for c := range clusters {
		r := v1alpha1.RemoteCluster{Name: fmt.Sprintf("cluster-%d", c), Networks: v1alpha1.Networks{
			PodCIDRs: []string{fmt.Sprintf("10.%d.0.0/16", c)}, ServiceCIDRs: []string{fmt.Sprintf("11.%d.0.0/16", c)}}}
		for slot := range gateways {
			r.Endpoints = append(r.Endpoints, v1alpha1.Endpoint{
				Gateway: fmt.Sprintf("gw-%d", slot), Slot: int32(slot), MTU: 1420,
				PublicKey: topology.Key{1, byte(c), byte(slot)}.String(),
				Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPublic, IP: fmt.Sprintf("198.18.%d.%d", c, slot+1)}},
			})
		}
		in.Peering.Spec.RemoteClusters = append(in.Peering.Spec.RemoteClusters, r)
	}
	return in
}

var gatewayFacts = plan.NodeFacts{Name: "node-0", ID: "node-0", UnderlayMTU: 1500, IPv6: true}

func forFleets(b *testing.B, f func(b *testing.B, in topology.Input)) {
	for _, clusters := range []int{10, 100, 250} {
		b.Run(fmt.Sprintf("clusters=%d/gateways=2", clusters), func(b *testing.B) {
			in := fleet(clusters, 2)
			if top := topology.Build(in); len(top.Remotes) != clusters || len(top.Problems) > 0 {
				b.Fatalf("%d remotes, problems %v", len(top.Remotes), top.Problems)
			}
			b.ReportAllocs()
			f(b, in)
		})
	}
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

// BenchmarkFailOver is what one gateway's death, or its return, costs before the kernel is asked: the plan and the
// changes, on a worker and on a gateway, for clusters that all know this one by its block, and it them by theirs. The
// changes are to grow with the clusters no faster than the routes that have to be moved.
func BenchmarkFailOver(b *testing.B) {
	for _, clusters := range []int{1, 10, 100} {
		in := fleet(clusters, 2)
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
