// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/raced"
	"github.com/sealane-io/sealane/internal/transitions"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// Reconciler keeps the conditions of ServiceExports.
type Reconciler struct {
	client.Client
	Events record.EventRecorder
	// WithoutGeneration is set where only v1alpha1 is served: there, an observedGeneration is dropped
	// by the API server, and would look like a difference for ever.
	WithoutGeneration bool
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	return ctrl.NewControllerManagedBy(m).Named("serviceexport").
		For(&mcs.ServiceExport{}).
		Watches(&corev1.Service{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.Bundle{}, handler.EnqueueRequestsFromMapFunc(verdictKeys),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Bundle{}, handler.EnqueueRequestsFromMapFunc(r.allKeys), builder.WithPredicates(leftOutChanged())).
		Watches(&v1alpha1.Peering{}, handler.EnqueueRequestsFromMapFunc(r.allKeys),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(o).Complete(raced.Reconciler(r))
}

// leftOutChanged lets through what changes which exports the cluster's own report has no room for.
func leftOutChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.(*v1alpha1.Bundle).Status.LeftOut != e.ObjectNew.(*v1alpha1.Bundle).Status.LeftOut
	}}
}

func verdictKeys(_ context.Context, o client.Object) []reconcile.Request {
	var out []reconcile.Request
	for _, c := range o.(*v1alpha1.Bundle).Spec.ExportConditions {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: c.Name}})
	}
	return out
}

func (r *Reconciler) allKeys(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &mcs.ServiceExportList{}
	if err := r.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// Reconcile writes the conditions of one ServiceExport if they differ.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	export := &mcs.ServiceExport{}
	if err := r.Get(ctx, req.NamespacedName, export); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if export.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	service, err := index.Service(ctx, r, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	peering, err := index.Peering(ctx, r)
	if err != nil {
		return ctrl.Result{}, err
	}
	verdicts, err := r.verdicts(ctx, peering, export)
	if err != nil {
		return ctrl.Result{}, err
	}
	leaving := peering != nil && peering.Spec.Phase == v1alpha1.MemberLeaving
	want := conditions(export, service, verdicts, leaving)
	if r.WithoutGeneration {
		for i := range want {
			want[i].ObservedGeneration = 0
		}
	}
	if equality.Semantic.DeepEqual(want, export.Status.Conditions) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.write(ctx, export, want)
}

// verdicts returns the broker's conditions of an export. A missing Peering or Bundle is unknown, and unknown
// changes no verdict: it is the one that the export shows already.
func (r *Reconciler) verdicts(ctx context.Context, peering *v1alpha1.Peering,
	export *mcs.ServiceExport) ([]v1alpha1.ExportCondition, error) {
	var bundle *v1alpha1.Bundle
	if peering != nil {
		var err error
		if bundle, err = index.Bundle(ctx, r, peering.Spec.Shards, client.ObjectKeyFromObject(export)); err != nil {
			return nil, err
		}
	}
	var out []v1alpha1.ExportCondition
	if bundle == nil {
		for _, c := range export.Status.Conditions {
			out = append(out, v1alpha1.ExportCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
		return out, nil
	}
	for _, c := range bundle.Spec.ExportConditions {
		if c.Namespace == export.Namespace && c.Name == export.Name {
			out = append(out, c)
		}
	}
	if len(out) == 0 && leftOut(bundle, export) {
		out = append(out, noRoom(export))
	}
	return out, nil
}

// leftOut says whether the cluster's report, having no room for all exports, lacks this one.
func leftOut(bundle *v1alpha1.Bundle, export *mcs.ServiceExport) bool {
	return bundle.Status.LeftOut > 0 && !slices.ContainsFunc(bundle.Status.Exports, func(e v1alpha1.Export) bool {
		return e.Namespace == export.Namespace && e.Name == export.Name
	})
}

func (r *Reconciler) write(ctx context.Context, export *mcs.ServiceExport, want []metav1.Condition) error {
	changed := export.DeepCopy()
	changed.Status.Conditions = want
	patch := client.MergeFromWithOptions(export, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, changed, patch); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("write the conditions of ServiceExport %s: %w", client.ObjectKeyFromObject(export), err)
	}
	transitions.Tell(r.Events, changed, export.Status.Conditions, want)
	return nil
}
