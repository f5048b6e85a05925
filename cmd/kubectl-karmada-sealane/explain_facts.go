// SPDX-License-Identifier: Apache-2.0

package main

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/explain"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/nodeslice"
)

// dataPlane is what explain goes by, of all members.
func (s *snapshot) dataPlane(f *fleet) *explain.Fleet {
	out := &explain.Fleet{Now: s.taken, Plugin: s.invocation}
	for i := range f.members {
		m := &f.members[i]
		p := s.member(m.Name)
		member := explain.Member{Name: m.Name, Kubectl: "kubectl --context " + p.context, Unread: unreadOf(p),
			Bundles: m.bundles, Network: networkOf(p)}
		for _, si := range of[*mcsv1beta1.ServiceImport](p) {
			member.ServiceImports = append(member.ServiceImports, *si)
		}
		for _, slice := range of[*discoveryv1.EndpointSlice](p) {
			if _, imported := slice.Labels[mcsv1beta1.LabelServiceName]; imported {
				member.Slices = append(member.Slices, *slice)
			}
		}
		for _, pod := range of[*corev1.Pod](p) {
			if pod.Labels["app.kubernetes.io/name"] == nodeAgentName && pod.DeletionTimestamp == nil {
				member.Agents = append(member.Agents, *pod)
			}
		}
		out.Members = append(out.Members, member)
	}
	return out
}

// networkOf are the objects that the node agents of a member build their topology from.
func networkOf(p *place) topology.Input {
	var in topology.Input
	in.Peering, _ = one[*v1alpha1.Peering](p, "", v1alpha1.PeeringName)
	for _, g := range of[*v1alpha1.Gateway](p) {
		in.Gateways = append(in.Gateways, *g)
	}
	var nodes []corev1.Node
	for _, n := range of[*corev1.Node](p) {
		nodes = append(nodes, *n)
	}
	var told []v1alpha1.NodeSlice
	for _, s := range of[*v1alpha1.NodeSlice](p) {
		told = append(told, *s)
	}
	in.Nodes, _ = nodeslice.Settled(nodes, told)
	for _, n := range of[*v1alpha1.NodeNetwork](p) {
		in.NodeNetworks = append(in.NodeNetworks, *n)
	}
	for _, a := range of[*v1alpha1.GlobalAllocation](p) {
		in.GlobalAllocations = append(in.GlobalAllocations, *a)
	}
	in.ClusterGlobalEgressIP, _ = one[*v1alpha1.ClusterGlobalEgressIP](p, "", v1alpha1.ClusterEgressName)
	return in
}

// unreadOf says why a member's part of a way cannot be told; "" where it can.
func unreadOf(p *place) string {
	for _, kind := range []string{"Peering", "Gateway", "Node", "NodeNetwork", "Pod", "Namespace", "Service",
		"ServiceExport", "ServiceImport", "EndpointSlice", "ConfigMap", "Deployment"} {
		if why := p.lacks(kind); why != "" {
			return kind + ": " + why
		}
	}
	peering, found := one[*v1alpha1.Peering](p, "", v1alpha1.PeeringName)
	if !found || peering.Spec.GlobalCIDR == "" {
		return ""
	}
	for _, kind := range []string{"GlobalAllocation", "ClusterGlobalEgressIP"} {
		if why := p.lacks(kind); why != "" {
			return kind + ": " + why
		}
	}
	return ""
}
