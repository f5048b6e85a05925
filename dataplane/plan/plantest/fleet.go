// SPDX-License-Identifier: Apache-2.0

// Package plantest makes large inputs of a plan, for the benchmarks of what is made from one.
package plantest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// Fleet is the input of a cluster, at most 1,000 nodes large, of which the first are gateways, with at most 250 remote
// clusters. Each has as many gateways.
func Fleet(clusters, gateways, nodes int) topology.Input {
	in := topology.Input{Peering: &v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{
		Phase: v1alpha1.MemberActive, ClusterID: "local",
		Networks: v1alpha1.Networks{PodCIDRs: []string{"12.0.0.0/14"}, ServiceCIDRs: []string{"11.255.0.0/16"}},
	}}}
	for i := range nodes {
		in.Nodes = append(in.Nodes, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)},
			Spec:       corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("12.%d.%d.0/24", i/250, i%250)}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.16.%d.%d", i/250, i%250+1)}}},
		})
	}
	for slot := range gateways {
		in.Gateways = append(in.Gateways, v1alpha1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", slot)}, Spec: v1alpha1.GatewaySpec{Slot: int32(slot)},
			Status: v1alpha1.GatewayStatus{Endpoint: &v1alpha1.Endpoint{MTU: 1420,
				PublicKey: topology.Key{2, byte(slot)}.String()}}})
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

// Alive are facts of a node to which all gateways of a topology are alive.
func Alive(t topology.Topology, n plan.NodeFacts) plan.NodeFacts {
	slots := func(gateways []topology.Gateway) (out []int) {
		for _, g := range gateways {
			if g.Node != n.Name {
				out = append(out, g.Slot)
			}
		}
		return out
	}
	n.Alive = map[string][]int{t.Cluster: slots(t.Local.Gateways)}
	for _, r := range t.Remotes {
		n.Alive[r.Name] = slots(r.Gateways)
	}
	return n
}
