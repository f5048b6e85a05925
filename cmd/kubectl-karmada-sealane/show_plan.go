// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// planned is what a node agent says of its node. The agent's own type depends on packages of Linux alone.
type planned struct {
	Holds   []string `json:"holds"`
	Changes []string `json:"changes"`
	Problem string   `json:"problem"`
}

// planRow is an element of what a node's kernel is to hold, or something that differs from it.
type planRow struct {
	// State is "planned", or "differs" of what the agent would change.
	State string `json:"state"`
	// Element as the agent prints it, with what is to be done before one that differs; one that begins with spaces belongs
	// to the one above it.
	Element string `json:"element"`
}

const (
	statePlanned = "planned"
	stateDiffers = "differs"
	stateProblem = "problem"
)

func (r planRow) cells() []string { return []string{r.State, r.Element} }

func newShowPlan(s *show) *cobra.Command {
	differing := false
	cmd := &cobra.Command{
		Use: "plan NODE", Short: "Show what a node's kernel is to hold, and where it differs", Args: cobra.ExactArgs(1),
		Long: `Show what a node's kernel is to hold: links, addresses, tunnels, routes, rules and tables, as the node's agent
has worked it out of the objects and of which gateways answer; and what there differs from it, which the agent changes
within moments, unless its last change has failed. The agent is asked by executing "sealane-agent plan" in its pod, as
gather does, for which the right to do so is needed; nothing is changed.`,
		Example: `  ` + s.invocation + ` show plan worker-1
  ` + s.invocation + ` show plan worker-1 -C c2 --differing`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.present(cmd, func(ctx context.Context) ([]table, error) {
				rows, err := s.planOf(ctx, args[0])
				if differing {
					rows = slices.DeleteFunc(rows, func(r planRow) bool { return r.State == statePlanned })
				}
				return []table{newTable("plan", rows, 2, "STATE", "ELEMENT")}, err
			})
		},
	}
	cmd.Flags().BoolVar(&differing, "differing", false, "show only where the kernel differs")
	return cmd
}

// agentAt is a node agent and the member that it is in.
type agentAt struct {
	cluster string
	member  *api
	pod     *corev1.Pod
}

// planOf asks the agent of a node.
func (s *show) planOf(ctx context.Context, node string) ([]planRow, error) {
	karmada, err := s.karmada()
	if err != nil {
		return nil, err
	}
	if err := s.installed(ctx, karmada); err != nil {
		return nil, err
	}
	f, err := s.gather(ctx, karmada, subjects{}, s.scope)
	if err != nil {
		return nil, err
	}
	if err := f.known(s.clusters, s.invocation); err != nil {
		return nil, err
	}
	agent, err := s.agentOf(ctx, karmada, f, node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 4*s.memberTimeout)
	defer cancel()
	text, err := inAgent(ctx, agent.member, agent.pod, "plan", "-o", "json")
	var p planned
	if err == nil {
		err = json.Unmarshal([]byte(text), &p)
	}
	if err != nil {
		return nil, &finding{expected: "the agent of " + node + " in " + agent.cluster + " to say what it has planned",
			found:  err.Error(),
			remedy: "see that the pod is of this version, and that you may execute in it: " + describeAgent(agent)}
	}
	return planRows(p), nil
}

func describeAgent(a *agentAt) string {
	return fmt.Sprintf("kubectl --context %s -n %s exec %s -c node -- /sealane-agent plan", a.member.context,
		a.pod.Namespace, a.pod.Name)
}

func planRows(p planned) []planRow {
	var rows []planRow
	for _, element := range p.Holds {
		rows = append(rows, planRow{statePlanned, element})
	}
	if p.Problem != "" {
		rows = append(rows, planRow{stateProblem, "the last sync failed: " + p.Problem})
	}
	for _, change := range p.Changes {
		rows = append(rows, planRow{stateDiffers, change})
	}
	return rows
}

// agentOf finds the agent that runs on a node, in whichever member the node is.
func (s *show) agentOf(ctx context.Context, karmada *api, f *fleet, node string) (*agentAt, error) {
	var found []*agentAt
	var unasked, nodes []string
	for i := range f.members {
		m := &f.members[i].Member
		member, pods, err := s.agentsIn(ctx, karmada, m)
		if err != nil {
			unasked = append(unasked, m.Name+": "+err.Error())
			continue
		}
		var here []*agentAt
		for j := range pods {
			nodes = append(nodes, pods[j].Spec.NodeName)
			if pods[j].Spec.NodeName == node {
				here = append(here, &agentAt{m.Name, member, &pods[j]})
			}
		}
		if len(here) > 0 {
			// Of two, one waits beside the other for its turn.
			found = append(found, slices.MinFunc(here, func(a, b *agentAt) int {
				return cmp.Or(cmp.Compare(waits(a.pod), waits(b.pod)),
					a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time))
			}))
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		var clusters []string
		for _, a := range found {
			clusters = append(clusters, a.cluster)
		}
		return nil, &finding{expected: "one node of the name " + node,
			found: "one in each of " + strings.Join(clusters, ", "), remedy: "name the cluster with -C"}
	}
	slices.Sort(nodes)
	text := "no node agent runs on a node of that name"
	if len(unasked) > 0 {
		text += "; not asked: " + strings.Join(unasked, "; ")
	}
	return nil, &finding{expected: fmt.Sprintf("%q to be a node of a member, with a node agent", node), found: text,
		remedy: didYouMean(node, slices.Compact(nodes)) + "check the name, and see diagnose deployment"}
}

// waits is 1 for a pod that is not ready.
func waits(pod *corev1.Pod) int {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return 0
		}
	}
	return 1
}

// agentsIn lists the node agents of a member.
func (s *show) agentsIn(ctx context.Context, karmada *api, m *v1alpha1.Member) (*api, []corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, s.memberTimeout)
	defer cancel()
	member, err := s.member(ctx, karmada, m)
	if err != nil {
		return nil, nil, err
	}
	var list corev1.PodList
	err = member.List(ctx, &list, client.InNamespace(v1alpha1.Namespace),
		client.MatchingLabels{"app.kubernetes.io/name": nodeAgentName})
	return member, list.Items, err
}
