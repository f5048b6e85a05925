// SPDX-License-Identifier: Apache-2.0

package globalips

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/raced"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
	"github.com/sealane-io/sealane/memberagent/cluster/pods"
)

// SetupWithManager registers the controller. One service is looked at at a time.
func (r *Reconciler) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	o.MaxConcurrentReconciles = 1
	return ctrl.NewControllerManagedBy(m).Named("globalingressip").
		For(&v1alpha1.GlobalIngressIP{}).
		Watches(&v1alpha1.GlobalAllocation{}, handler.EnqueueRequestsFromMapFunc(ownerRequest)).
		Watches(&mcs.ServiceExport{}, &handler.EnqueueRequestForObject{}).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.exported)).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(r.exportedSlice)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.beforePod), builder.WithPredicates(pods.Moved())).
		Watches(&v1alpha1.Peering{}, handler.EnqueueRequestsFromMapFunc(r.all),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(o).Complete(raced.Reconciler(r))
}

func (r *Reconciler) exported(ctx context.Context, o client.Object) []reconcile.Request {
	return r.ifExported(ctx, client.ObjectKeyFromObject(o))
}

func (r *Reconciler) exportedSlice(ctx context.Context, o client.Object) []reconcile.Request {
	if key, ok := index.ServiceOfSlice(o); ok {
		return r.ifExported(ctx, key)
	}
	return nil
}

// beforePod are the headless services of a pod's namespace that are exported, if pods have addresses at all: the pod
// may be heard of later than the EndpointSlice that it is in.
func (r *Reconciler) beforePod(ctx context.Context, o client.Object) []reconcile.Request {
	peering, err := index.Peering(ctx, r)
	if err != nil || peering == nil || peering.Spec.GlobalCIDR == "" {
		return nil
	}
	var list mcs.ServiceExportList
	if r.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		key := client.ObjectKeyFromObject(&list.Items[i])
		if s, err := index.Service(ctx, r, key); err == nil && s != nil && s.Spec.ClusterIP == corev1.ClusterIPNone {
			out = append(out, reconcile.Request{NamespacedName: key})
		}
	}
	return out
}

func (r *Reconciler) ifExported(ctx context.Context, key types.NamespacedName) []reconcile.Request {
	if r.Get(ctx, key, &mcs.ServiceExport{}) != nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// ownerRequest is the service that an allocation is for.
func ownerRequest(_ context.Context, o client.Object) []reconcile.Request {
	if service, ok := ServiceOf(o); ok {
		return []reconcile.Request{{NamespacedName: service}}
	}
	return nil
}

// ServiceOf returns the service that an allocation is for, if it is one of a service.
func ServiceOf(o client.Object) (types.NamespacedName, bool) {
	a, ok := o.(*v1alpha1.GlobalAllocation)
	if !ok || a.Spec.Owner.Kind != v1alpha1.GlobalIngress {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: a.Spec.Owner.Namespace, Name: a.Spec.Owner.Name}, true
}

// all are the services that are exported, those that have an address, and those that are said to have one.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var list mcs.ServiceExportList
	var ips v1alpha1.GlobalIngressIPList
	var allocations v1alpha1.GlobalAllocationList
	for _, l := range []client.ObjectList{&list, &ips, &allocations} {
		if r.List(ctx, l, client.UnsafeDisableDeepCopy) != nil {
			return nil
		}
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	for i := range ips.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&ips.Items[i])})
	}
	for i := range allocations.Items {
		out = append(out, ownerRequest(ctx, &allocations.Items[i])...)
	}
	return out
}
