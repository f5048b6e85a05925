// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// readiness of one member, as install and join see it.
type readiness struct {
	name string
	// ready: accepted, connected to every other member, all of its nodes are programmed, and its cluster DNS
	// forwards our names.
	ready bool
	// refused: it will not become ready by waiting.
	refused bool
	// text says what it waits for, or why it was refused.
	text string
}

// stage is a condition of a member on its way to being ready.
type stage struct{ condition, waiting, reached string }

// stages in the order in which they come true.
func stages() []stage {
	return []stage{
		{v1alpha1.MemberAccepted, "waiting for the facts of its agent", "accepted"},
		{v1alpha1.MemberConnected, "accepted, waiting for its tunnels", "connected"},
		{v1alpha1.PeeringNodesProgrammed, "connected, waiting for its nodes", "connected, its nodes are programmed"},
		{v1alpha1.PeeringDNSConfigured, "connected, waiting for its cluster DNS to forward the clusterset's names",
			"connected, its cluster DNS forwards the clusterset's names"},
	}
}

// memberReadiness judges a member by its conditions, in the order in which they come true.
func memberReadiness(m *v1alpha1.Member) readiness {
	return memberReaches(m, v1alpha1.PeeringDNSConfigured)
}

// memberReaches judges a member by the conditions up to one.
func memberReaches(m *v1alpha1.Member, last string) readiness {
	r := readiness{name: m.Name}
	if m.Spec.Phase == v1alpha1.MemberLeaving {
		r.refused, r.text = true, "is leaving; wait until it left, then join it again"
		return r
	}
	for _, stage := range stages() {
		c := meta.FindStatusCondition(m.Status.Conditions, stage.condition)
		if c != nil && c.Status == metav1.ConditionTrue {
			r.text = stage.reached
			if stage.condition == last {
				break
			}
			continue
		}
		r.text = stage.waiting
		if c == nil {
			return r
		}
		r.refused = stage.condition == v1alpha1.MemberAccepted && v1alpha1.MemberRefused(c)
		if r.refused {
			r.text = "refused"
		}
		if c.Message != "" {
			r.text += ": " + c.Message
		}
		return r
	}
	r.ready = true
	return r
}

// waitConnected waits until the members of a ClusterSet, or those of them that only names, are connected.
func (o *options) waitConnected(ctx context.Context, karmada *api, p *progress, set string, only []string) error {
	var last []readiness
	found := "the controller has not seen the ClusterSet"
	following, done := context.WithCancel(ctx)
	defer done()
	pods := o.followBlocked(following, karmada, set)
	err := until(ctx, func(ctx context.Context) (bool, error) {
		var cs v1alpha1.ClusterSet
		if err := karmada.Get(ctx, client.ObjectKey{Name: set}, &cs); err != nil {
			return false, fmt.Errorf("get ClusterSet %s: %w", set, err)
		}
		if cs.Status.ObservedGeneration < cs.Generation {
			p.state("ClusterSet "+set, "waiting for the controller")
			return false, nil
		}
		states, complete, err := karmada.readiness(ctx, &cs, only)
		if err != nil {
			return false, err
		}
		for i := range states {
			if why := pods.of(states[i].name); why != "" && !states[i].ready {
				states[i].text += "; " + why
			}
		}
		last = states
		found = describeReadiness(states)
		return complete && decided(states, p), nil
	})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if err == nil && allReady(last) {
		return o.confirmDNS(ctx, karmada, p, set, last)
	}
	return &finding{
		expected: fmt.Sprintf("every member to be connected and to resolve the clusterset's names within %s", o.timeout),
		found:    found,
		remedy: fmt.Sprintf("see %s show all; kubectl get members -o wide on the Karmada API; the logs of "+
			"sealane-controller, and of the pods in %s of the member", o.invocation, v1alpha1.Namespace),
	}
}

// confirmDNS looks a name up through the cluster DNS of each member that was waited for.
func (o *options) confirmDNS(ctx context.Context, karmada *api, p *progress, set string, states []readiness) error {
	var cs v1alpha1.ClusterSet
	if err := karmada.Get(ctx, client.ObjectKey{Name: set}, &cs); err != nil {
		return fmt.Errorf("get ClusterSet %s: %w", set, err)
	}
	all, err := karmada.members(ctx)
	if err != nil {
		return err
	}
	var waited []v1alpha1.Member
	for i := range all {
		if slices.ContainsFunc(states, func(s readiness) bool { return s.name == all[i].Name }) {
			waited = append(waited, all[i])
		}
	}
	return o.lookUp(ctx, karmada, p, &cs, waited)
}

// readiness of the ClusterSet's members; complete says that every expected member has a record.
func (a *api) readiness(ctx context.Context, cs *v1alpha1.ClusterSet, only []string) (states []readiness,
	complete bool, err error) {
	members, err := a.members(ctx)
	if err != nil {
		return nil, false, err
	}
	wanted := map[string]bool{}
	for _, name := range only {
		wanted[name] = true
	}
	for i := range members {
		m := &members[i]
		if m.Spec.ClusterSet == cs.Name && (len(only) == 0 || wanted[m.Name]) {
			states = append(states, memberReadiness(m))
			delete(wanted, m.Name)
		}
	}
	if len(only) > 0 {
		for name := range wanted {
			states = append(states, readiness{name: name, text: "waiting for the controller to take it in"})
		}
		return states, true, nil
	}
	return states, len(states) >= int(cs.Status.Members), nil
}

// members are all Members, sorted by name.
func (a *api) members(ctx context.Context) ([]v1alpha1.Member, error) {
	var list v1alpha1.MemberList
	if err := a.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	sort.Slice(list.Items, func(i, j int) bool { return list.Items[i].Name < list.Items[j].Name })
	return list.Items, nil
}

// decided prints changes and tells whether each member is ready or refused.
func decided(states []readiness, p *progress) bool {
	done := true
	for _, s := range states {
		p.state(s.name, s.text)
		done = done && (s.ready || s.refused)
	}
	return done
}

func allReady(states []readiness) bool {
	for _, s := range states {
		if !s.ready {
			return false
		}
	}
	return true
}

// describeReadiness lists the members that are not ready.
func describeReadiness(states []readiness) string {
	var lines []string
	for _, s := range states {
		if !s.ready {
			lines = append(lines, s.name+": "+s.text)
		}
	}
	if len(lines) == 0 {
		return "no member yet"
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}
