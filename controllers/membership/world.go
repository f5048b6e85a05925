// SPDX-License-Identifier: Apache-2.0

package membership

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

// World is what membership depends on.
type World struct {
	Sets     []v1alpha1.ClusterSet
	Clusters []clusterv1alpha1.Cluster
	Members  []v1alpha1.Member
	// Bindings of the CRDs that the wire needs; nil stands for one that does not exist.
	Bindings []*workv1alpha2.ClusterResourceBinding
}

// Gather reads the World.
func Gather(ctx context.Context, c client.Reader) (World, error) {
	var sets v1alpha1.ClusterSetList
	var clusters clusterv1alpha1.ClusterList
	var members v1alpha1.MemberList
	for _, list := range []client.ObjectList{&sets, &clusters, &members} {
		if err := c.List(ctx, list); err != nil {
			return World{}, fmt.Errorf("list %T: %w", list, err)
		}
	}
	w := World{Sets: sets.Items, Clusters: clusters.Items, Members: members.Items}
	for _, name := range propagation.WireBindings() {
		binding := new(workv1alpha2.ClusterResourceBinding)
		err := c.Get(ctx, types.NamespacedName{Name: name}, binding)
		if client.IgnoreNotFound(err) != nil {
			return World{}, fmt.Errorf("read binding %s: %w", name, err)
		}
		if err != nil {
			binding = nil
		}
		w.Bindings = append(w.Bindings, binding)
	}
	return w, nil
}

// Cluster returns the Karmada Cluster of that name, nil if there is none.
func (w World) Cluster(name string) *clusterv1alpha1.Cluster {
	i := slices.IndexFunc(w.Clusters, func(c clusterv1alpha1.Cluster) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &w.Clusters[i]
}

// Set returns the ClusterSet of that name, nil if there is none.
func (w World) Set(name string) *v1alpha1.ClusterSet {
	i := slices.IndexFunc(w.Sets, func(s v1alpha1.ClusterSet) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &w.Sets[i]
}

// WireApplied says whether a cluster serves the kinds of the wire.
func (w World) WireApplied(cluster string) bool {
	return !slices.ContainsFunc(w.Bindings, func(b *workv1alpha2.ClusterResourceBinding) bool {
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
	for _, s := range sets.Items {
		names = append(names, s.Name)
	}
	return names
}
