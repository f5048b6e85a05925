// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"reflect"
	"slices"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/coarse"
	"github.com/sealane-io/sealane/propagation"
)

// Decisive passes Clusters but for updates in which nothing is new that a decision depends on: Karmada writes the
// status of each one every few seconds, to say what room there is for workloads.
func Decisive() predicate.Predicate {
	type basis struct {
		labels  map[string]string
		spec    clusterv1alpha1.ClusterSpec
		deleted bool
		// ready and since when, as Echo goes by both.
		ready  metav1.ConditionStatus
		since  metav1.Time
		serves bool
	}
	of := func(o client.Object) (out basis, ok bool) {
		c, ok := o.(*clusterv1alpha1.Cluster)
		if !ok {
			return out, false
		}
		out = basis{labels: c.Labels, spec: c.Spec, deleted: !c.DeletionTimestamp.IsZero(), serves: ServesExports(c)}
		if ready := meta.FindStatusCondition(c.Status.Conditions, clusterv1alpha1.ClusterConditionReady); ready != nil {
			out.ready, out.since = ready.Status, ready.LastTransitionTime
		}
		return out, true
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := of(e.ObjectOld)
		after, also := of(e.ObjectNew)
		return !ok || !also || !reflect.DeepEqual(before, after)
	}}
}

// Wire passes the bindings of the CRDs that the wire needs, and of their updates those by which other clusters have
// applied them: no decision depends on what else Karmada says of CRDs, nor on anybody else's bindings.
func Wire() predicate.Predicate {
	names := propagation.WireBindings()
	of := predicate.NewPredicateFuncs(func(o client.Object) bool { return slices.Contains(names, o.GetName()) })
	return predicate.And(of, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*workv1alpha2.ClusterResourceBinding)
		after, also := e.ObjectNew.(*workv1alpha2.ClusterResourceBinding)
		return !ok || !also || !slices.Equal(propagation.AppliedBy(before), propagation.AppliedBy(after))
	}})
}

// Unmeasured passes Members but for updates in which nothing is new but what was measured of connections: no decision
// depends on that.
func Unmeasured() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.Member)
		after, also := e.ObjectNew.(*v1alpha1.Member)
		return !ok || !also || !onlyMeasured(*before, *after)
	}}
}

func onlyMeasured(before, after v1alpha1.Member) bool {
	if reflect.DeepEqual(before.Status.Connections, after.Status.Connections) {
		return false
	}
	before.ResourceVersion, before.ManagedFields = after.ResourceVersion, after.ManagedFields
	before.Status.Connections = coarse.Without(before.Status.Connections)
	after.Status.Connections = coarse.Without(after.Status.Connections)
	return equality.Semantic.DeepEqual(before, after)
}
