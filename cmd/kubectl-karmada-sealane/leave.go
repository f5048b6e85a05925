// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

type leave struct {
	*options
	clusters   []string
	clusterSet string
	force      bool
	wait       bool
}

func newLeave(o *options) *cobra.Command {
	l := &leave{options: o}
	cmd := &cobra.Command{
		Use:   "leave " + clusterArguments,
		Short: "Take clusters out of a ClusterSet",
		Long: `Take clusters out of a ClusterSet by editing its cluster names, and wait until their nodes are clean and
nothing of Sealane is left in them but its CRDs. The other members release them at once. Where the
ClusterSet selects by label, say which label to remove instead.

--force does not wait for a cluster's acknowledgement: for one that is lost. Clean it, should it come
back, with uninstall --context.`,
		Example: "  " + o.invocation + " leave c3",
		RunE: func(cmd *cobra.Command, args []string) error {
			l.clusters = append(l.clusters, args...)
			return l.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringSliceVarP(&l.clusters, "clusters", "C", nil, "clusters, besides those given as arguments")
	f.StringVar(&l.clusterSet, "clusterset", defaultClusterSet, "name of the ClusterSet")
	f.BoolVar(&l.force, "force", false, "do not wait for the clusters' acknowledgement")
	f.BoolVar(&l.wait, "wait", true, "wait until they left")
	return cmd
}

func (l *leave) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	p := newProgress(l.ErrOut)
	karmada, err := l.karmada()
	if err != nil {
		return err
	}
	if err := l.installed(ctx, karmada); err != nil {
		return err
	}
	clusters, err := l.karmadaClusters(ctx, karmada)
	if err != nil {
		return err
	}
	if err := named(l.clusters); err != nil {
		return err
	}
	if err := l.checkMembership(ctx, karmada, clusters, p); err != nil {
		return err
	}
	changed, err := karmada.editAffinity(ctx, l.clusterSet, l.clusters, labelsOf(clusters), dismiss)
	if err != nil {
		return err
	}
	if changed {
		p.say("ClusterSet %s: took out %s", l.clusterSet, strings.Join(l.clusters, ", "))
	} else {
		p.warn("ClusterSet %s does not select %s: nothing to change", l.clusterSet, strings.Join(l.clusters, ", "))
	}
	if l.force {
		if err := karmada.forceLeave(ctx, l.clusters, p); err != nil {
			return err
		}
	}
	if !l.wait {
		return nil
	}
	if err := l.waitLeft(ctx, karmada, l.clusters, p); err != nil || l.force {
		return err
	}
	return l.waitWithdrawn(ctx, karmada)
}

// checkMembership refuses names that stand for nothing: neither for a cluster of Karmada, nor for a member or a
// name in the ClusterSet that outlived its cluster. A member of another ClusterSet leaves that one. Of the canary it
// warns.
func (l *leave) checkMembership(ctx context.Context, karmada *api, clusters []clusterv1alpha1.Cluster,
	p *progress) error {
	var set v1alpha1.ClusterSet
	if err := karmada.Get(ctx, client.ObjectKey{Name: l.clusterSet}, &set); err != nil {
		return karmada.explainClusterSet(ctx, l.clusterSet, err)
	}
	members, err := karmada.members(ctx)
	if err != nil {
		return err
	}
	known := slices.Clone(set.Spec.ClusterAffinity.ClusterNames)
	for i := range members {
		m := &members[i]
		known = append(known, m.Name)
		if m.Spec.ClusterSet != l.clusterSet && slices.Contains(l.clusters, m.Name) {
			return &finding{
				expected: fmt.Sprintf("%s to be a member of ClusterSet %s", m.Name, l.clusterSet),
				found:    "it is a member of ClusterSet " + m.Spec.ClusterSet,
				remedy:   fmt.Sprintf("%s leave %s --clusterset %s", l.invocation, m.Name, m.Spec.ClusterSet),
			}
		}
	}
	if err := chosen(withoutAll(l.clusters, known), clusters); err != nil {
		return err
	}
	for i, relay := range set.Spec.Relays {
		if slices.Contains(l.clusters, relay.Through) {
			p.warn("%s is the relay of pairs of ClusterSet %s by spec.relays[%d]: these dial each other, and are not connected "+
				"where they cannot, until you name another there, or take the entry out", relay.Through, l.clusterSet, i)
		}
	}
	if canary := set.Spec.RollOut.Canary; slices.Contains(l.clusters, canary) {
		p.warn("%s is the canary of ClusterSet %s by spec.rollOut.canary: name another there, or clear the field; "+
			"until then the first member by name is it", canary, l.clusterSet)
	}
	return nil
}

// waitWithdrawn waits until Karmada took the agents back. A cluster that joined again before would keep
// pods whose service accounts are made anew, and the API server refuses such pods.
func (l *leave) waitWithdrawn(ctx context.Context, karmada *api) error {
	workloads, err := manifests("artifacts/deploy/*.yaml")
	if err != nil {
		return err
	}
	var left []string
	err = until(ctx, func(ctx context.Context) (bool, error) {
		carried, err := karmada.carried(ctx, workloads)
		if err != nil {
			return false, err
		}
		members, err := karmada.members(ctx)
		if err != nil && !gone(err) {
			return false, err
		}
		// Another ClusterSet may have taken it.
		for i := range members {
			delete(carried, members[i].Name)
		}
		left = slices.DeleteFunc(slices.Clone(l.clusters), func(name string) bool { return !carried[name] })
		return len(left) == 0, nil
	})
	if err != nil {
		return &finding{
			expected: "Karmada to have removed Sealane's agents from the clusters that left",
			found:    fmt.Sprintf("something is left in: %s (%v)", strings.Join(left, ", "), err),
			remedy:   "see that Karmada reaches these clusters; clean a lost one with uninstall --context",
		}
	}
	return nil
}

// forceLeave tells the controller not to wait for the members' acknowledgement.
func (a *api) forceLeave(ctx context.Context, clusters []string, p *progress) error {
	for _, name := range clusters {
		m := &v1alpha1.Member{}
		m.Name = name
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, v1alpha1.AnnotationForceLeave)
		err := a.Patch(ctx, m, client.RawPatch("application/merge-patch+json", patch), client.FieldOwner(fieldManager))
		if gone(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("mark member %s: %w", name, err)
		}
		p.warn("%s: not waiting for its acknowledgement; clean it with uninstall --context %s when it can be reached", name,
			name)
	}
	return nil
}

// waitLeft waits until the members' records are gone: all of them for nil.
func (o *options) waitLeft(ctx context.Context, karmada *api, clusters []string, p *progress) error {
	wanted, seen := map[string]bool{}, map[string]bool{}
	for _, name := range clusters {
		wanted[name] = true
	}
	var left []string
	err := until(ctx, func(ctx context.Context) (bool, error) {
		members, err := karmada.members(ctx)
		if gone(err) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		left = left[:0]
		for i := range members {
			if m := &members[i]; clusters == nil || wanted[m.Name] {
				text := leavingState(m)
				left = append(left, m.Name+": "+text)
				p.state(m.Name, text)
				seen[m.Name] = true
			}
		}
		return len(left) == 0, nil
	})
	if err != nil {
		return &finding{
			expected: fmt.Sprintf("the clusters to have left within %s", o.timeout),
			found:    fmt.Sprintf("%s (%v)", strings.Join(left, "\n"), err),
			remedy: "see that sealane-controller runs and that Karmada reaches the clusters; for a lost one use " +
				o.invocation + " leave --force",
		}
	}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		p.say("%s: left", name)
	}
	for _, name := range clusters {
		if !seen[name] {
			p.say("%s: is no member", name)
		}
	}
	return nil
}

func leavingState(m *v1alpha1.Member) string {
	if m.Spec.Phase != v1alpha1.MemberLeaving {
		return "waiting for the controller to tell it"
	}
	return "leaving, its agents clean the nodes"
}
