// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/matrix"
)

// site is a member in which probes run.
type site struct {
	name   string
	member *v1alpha1.Member
	api    *api
	// nodes on which there are probes, by role; a cluster need not have a worker.
	nodes map[matrix.Role]string
	// image is that of the member's node agents, with which it was pulled by pullSecrets.
	image       string
	pullSecrets []corev1.LocalObjectReference
	servers     []matrix.Server
	clients     []matrix.Client
}

// survey finds a gateway and a worker whose node agents run, so that their image is there.
func (s *site) survey(ctx context.Context) error {
	var pods corev1.PodList
	err := s.api.List(ctx, &pods, client.InNamespace(v1alpha1.Namespace),
		client.MatchingLabels{"app.kubernetes.io/name": "sealane-node"})
	if err != nil {
		return fmt.Errorf("list the pods of the node agents: %w", err)
	}
	var nodes corev1.NodeList
	if err := s.api.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	gateways, err := s.api.gateways(ctx)
	if err != nil {
		return fmt.Errorf("list gateways: %w", err)
	}
	s.choose(nodes.Items, pods.Items, gateways)
	if len(s.nodes) == 0 {
		return &finding{
			expected: fmt.Sprintf("%s to have a node that is ready, takes pods, and has a node agent that is ready", s.name),
			found:    fmt.Sprintf("none of %d nodes, with %d node agents, is that", len(nodes.Items), len(pods.Items)),
			remedy: fmt.Sprintf("kubectl --context %s -n %s get pods -o wide; or leave the member out with -C", s.name,
				v1alpha1.Namespace),
		}
	}
	return nil
}

// choose takes the first node of each role, by name.
func (s *site) choose(nodes []corev1.Node, agents []corev1.Pod, gateways []v1alpha1.Gateway) {
	usable := map[string]bool{}
	for i := range nodes {
		usable[nodes[i].Name] = !nodes[i].Spec.Unschedulable && nodeReady(&nodes[i])
	}
	sort.Slice(agents, func(i, j int) bool { return agents[i].Spec.NodeName < agents[j].Spec.NodeName })
	s.nodes = map[matrix.Role]string{}
	for i := range agents {
		agent := &agents[i]
		node := agent.Spec.NodeName
		if !usable[node] || !podReady(agent) || agentImage(agent) == "" {
			continue
		}
		role := matrix.Worker
		if slices.ContainsFunc(gateways, func(g v1alpha1.Gateway) bool { return g.Name == node }) {
			role = matrix.Gateway
		}
		if s.nodes[role] == "" {
			s.nodes[role] = node
			s.image, s.pullSecrets = agentImage(agent), agent.Spec.ImagePullSecrets
		}
	}
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// place of a probe of the member.
func (s *site) place(kind matrix.Kind, role matrix.Role) matrix.Place {
	return matrix.Place{Cluster: s.name, Kind: kind, Role: role, Node: s.nodes[role]}
}

// roles that the member has nodes for.
func (s *site) roles() []matrix.Role {
	return slices.DeleteFunc(matrix.Roles(), func(r matrix.Role) bool { return s.nodes[r] == "" })
}

// knownGlobally says that another member knows this one by global addresses only.
func (s *site) knownGlobally(to string) bool {
	status := &s.member.Status
	return status.GlobalCIDR != "" &&
		(status.GlobalScope == v1alpha1.GlobalToAll || slices.Contains(status.OverlappingClusters, to))
}
