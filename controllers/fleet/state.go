// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"slices"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// State is what Karmada holds of ClusterSets, clusters and members.
type State struct {
	Sets     []v1alpha1.ClusterSet
	Clusters []clusterv1alpha1.Cluster
	Members  []v1alpha1.Member
	// Bindings of the CRDs that the wire needs; nil stands for one that does not exist.
	Bindings []*workv1alpha2.ClusterResourceBinding
}

// Gather reads the State, with options for its lists.
func Gather(ctx context.Context, c client.Reader, opts ...client.ListOption) (State, error) {
	var sets v1alpha1.ClusterSetList
	var clusters clusterv1alpha1.ClusterList
	var members v1alpha1.MemberList
	for _, list := range []client.ObjectList{&sets, &clusters, &members} {
		if err := c.List(ctx, list, opts...); err != nil {
			return State{}, fmt.Errorf("list %T: %w", list, err)
		}
	}
	s := State{Sets: sets.Items, Clusters: clusters.Items, Members: members.Items}
	for _, name := range propagation.WireBindings() {
		binding := new(workv1alpha2.ClusterResourceBinding)
		err := c.Get(ctx, types.NamespacedName{Name: name}, binding)
		if client.IgnoreNotFound(err) != nil {
			return State{}, fmt.Errorf("read binding %s: %w", name, err)
		}
		if err != nil {
			binding = nil
		}
		s.Bindings = append(s.Bindings, binding)
	}
	return s, nil
}

// Cluster returns the Karmada Cluster of that name, nil if there is none.
func (s State) Cluster(name string) *clusterv1alpha1.Cluster {
	i := slices.IndexFunc(s.Clusters, func(c clusterv1alpha1.Cluster) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Clusters[i]
}

// Member returns the Member of that name, nil if there is none.
func (s State) Member(name string) *v1alpha1.Member {
	i := slices.IndexFunc(s.Members, func(m v1alpha1.Member) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Members[i]
}

// Set returns the ClusterSet of that name, nil if there is none.
func (s State) Set(name string) *v1alpha1.ClusterSet {
	i := slices.IndexFunc(s.Sets, func(set v1alpha1.ClusterSet) bool { return set.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Sets[i]
}

// WireApplied says whether a cluster serves the kinds of the wire.
func (s State) WireApplied(cluster string) bool {
	return !slices.ContainsFunc(s.Bindings, func(b *workv1alpha2.ClusterResourceBinding) bool {
		return b == nil || !propagation.Applied(b, cluster)
	})
}

// ToSet makes requests for the ClusterSets that an object concerns.
func ToSet(sets func(context.Context, client.Object) []string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		var requests []reconcile.Request
		for _, name := range sets(ctx, o) {
			if name != "" {
				requests = append(requests, ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
			}
		}
		return requests
	})
}

// SetOf returns the ClusterSet that a cluster is a member of, in a list of at most one.
func SetOf(ctx context.Context, c client.Reader, cluster string) []string {
	var m v1alpha1.Member
	if cluster == "" || c.Get(ctx, types.NamespacedName{Name: cluster}, &m) != nil {
		return nil
	}
	return []string{m.Spec.ClusterSet}
}

// Sets returns the names of all ClusterSets.
func Sets(ctx context.Context, c client.Reader) []string {
	var sets v1alpha1.ClusterSetList
	if c.List(ctx, &sets) != nil {
		return nil
	}
	var names []string
	for _, set := range sets.Items {
		names = append(names, set.Name)
	}
	return names
}
