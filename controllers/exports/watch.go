// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"context"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	networkingv1alpha1 "github.com/karmada-io/karmada/pkg/apis/networking/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
	"github.com/sealane-io/sealane/controllers/takeover"
	"github.com/sealane-io/sealane/internal/raced"
)

// Relevant says whether a ResourceBinding places something that this controller reads.
func Relevant(b *workv1alpha2.ResourceBinding) bool {
	return b.Spec.Resource.Kind == kindServiceExport || b.Spec.Resource.Kind == kindService
}

// Strip drops from a ResourceBinding, in place, what is not read here. Karmada has one for everything that
// it propagates.
func Strip(b *workv1alpha2.ResourceBinding) {
	b.ManagedFields, b.Annotations, b.Labels = nil, nil, nil
	spec := workv1alpha2.ResourceBindingSpec{Resource: workv1alpha2.ObjectReference{
		Kind: b.Spec.Resource.Kind, Namespace: b.Spec.Resource.Namespace, Name: b.Spec.Resource.Name,
	}}
	var status workv1alpha2.ResourceBindingStatus
	if Relevant(b) {
		spec.Clusters = b.Spec.Clusters
	}
	if b.Spec.Resource.Kind == kindServiceExport {
		status = workv1alpha2.ResourceBindingStatus{Conditions: b.Status.Conditions,
			AggregatedStatus: b.Status.AggregatedStatus}
	}
	b.Spec, b.Status = spec, status
}

// SetupWithManager starts the controller, once the caches show what was written before.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, before *takeover.Caches) error {
	sameName := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
	})
	all := handler.EnqueueRequestsFromMapFunc(r.all)
	return ctrl.NewControllerManagedBy(mgr).Named("exports").
		For(&mcsv1alpha1.ServiceExport{}).
		Watches(&workv1alpha1.Work{}, r.Verdicts.Handler()).
		Watches(&workv1alpha2.ResourceBinding{}, handler.EnqueueRequestsFromMapFunc(exportOfBinding)).
		Watches(&mcsv1alpha1.ServiceImport{}, sameName, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&networkingv1alpha1.MultiClusterService{}, sameName,
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Member{}, all, builder.WithPredicates(changed(sameMember))).
		Watches(&clusterv1alpha1.Cluster{}, all, builder.WithPredicates(changed(sameCluster))).
		WatchesRawSource(takeover.Shown[ctrl.Request](before)).
		Complete(raced.Reconciler(r))
}

func exportOfBinding(_ context.Context, o client.Object) []reconcile.Request {
	b, ok := o.(*workv1alpha2.ResourceBinding)
	if !ok || !Relevant(b) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: b.Spec.Resource.Namespace,
		Name: b.Spec.Resource.Name}}}
}

// all ServiceExports on the Karmada API.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var templates mcsv1alpha1.ServiceExportList
	if r.Client.List(ctx, &templates) != nil {
		return nil
	}
	requests := make([]reconcile.Request, 0, len(templates.Items))
	for i := range templates.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&templates.Items[i])})
	}
	return requests
}

// changed lets updates through that differ in what is read here.
func changed[T client.Object](same func(before, after T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(T)
		after, alike := e.ObjectNew.(T)
		return !ok || !alike || !same(before, after)
	}}
}

func sameMember(before, after *v1alpha1.Member) bool {
	a, b := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.MemberAccepted),
		meta.FindStatusCondition(after.Status.Conditions, v1alpha1.MemberAccepted)
	return before.Spec == after.Spec && (a == nil) == (b == nil) &&
		(a == nil || a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message)
}

func sameCluster(before, after *clusterv1alpha1.Cluster) bool {
	ready := func(c *clusterv1alpha1.Cluster) bool {
		return meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1alpha1.ClusterConditionReady)
	}
	return ready(before) == ready(after) && fleet.ServesExports(before) == fleet.ServesExports(after)
}
