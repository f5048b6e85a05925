// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/sealane-io/sealane/memberagent/cluster/exports"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// Bundles writes Bundle.status, one key per Bundle.
type Bundles struct {
	client.Client
	// Written is called for each write.
	Written func()

	pacer *pacer
}

// SetupWithManager registers the controller.
func (r *Bundles) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	r.pacer = newPacer()
	o.MaxConcurrentReconciles = 4
	return ctrl.NewControllerManagedBy(m).Named("bundle").
		For(&v1alpha1.Bundle{}).
		Watches(&mcs.ServiceExport{}, handler.EnqueueRequestsFromMapFunc(r.shardOf)).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.shardOf)).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(r.shardOfSlice)).
		Watches(&v1alpha1.Peering{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(o).Complete(r)
}

// shardOf enqueues the Bundle that carries a ServiceExport, or a Service that has one.
func (r *Bundles) shardOf(ctx context.Context, o client.Object) []reconcile.Request {
	return r.shard(ctx, client.ObjectKeyFromObject(o), o)
}

func (r *Bundles) shardOfSlice(ctx context.Context, o client.Object) []reconcile.Request {
	if key, ok := index.ServiceOfSlice(o); ok {
		return r.shard(ctx, key, o)
	}
	return nil
}

func (r *Bundles) shard(ctx context.Context, service types.NamespacedName, o client.Object) []reconcile.Request {
	if _, ok := o.(*mcs.ServiceExport); !ok && r.Get(ctx, service, &mcs.ServiceExport{}) != nil {
		return nil
	}
	peering, err := index.Peering(ctx, r)
	if err != nil || peering == nil {
		return nil
	}
	name := v1alpha1.BundleName(v1alpha1.Shard(service.Namespace, service.Name, peering.Spec.Shards))
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

func (r *Bundles) all(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &v1alpha1.BundleList{}
	if err := r.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// Reconcile writes the status of one Bundle if it differs. Every read waits until its cache is synced, so
// there is no half report.
func (r *Bundles) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	bundle, shared := &v1alpha1.Bundle{}, true
	if err := r.Get(ctx, req.NamespacedName, bundle, &client.GetOptions{UnsafeDisableDeepCopy: &shared}); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	peering, err := index.Peering(ctx, r)
	if err != nil || peering == nil || bundle.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	if !partOf(bundle.Name, peering.Spec.Shards) {
		return ctrl.Result{}, nil
	}
	status, err := r.status(ctx, bundle, peering)
	if err != nil || equality.Semantic.DeepEqual(bundle.Status, status) {
		return ctrl.Result{}, err
	}
	if wait := r.pacer.wait(bundle.Name, time.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if err := replaceStatus(ctx, r, bundle, status); err != nil {
		return ctrl.Result{}, err
	}
	r.pacer.wrote(bundle.Name, time.Now())
	r.Written()
	return ctrl.Result{}, nil
}

// partOf says whether a Bundle's name is one of the shards'.
func partOf(name string, shards int32) bool {
	n, err := strconv.ParseInt(name[strings.LastIndexByte(name, '-')+1:], 10, 32)
	return err == nil && n >= 0 && int32(n) < shards && name == v1alpha1.BundleName(int32(n))
}

// status lists the exports of a Bundle's shard; none while the cluster leaves.
func (r *Bundles) status(ctx context.Context, bundle *v1alpha1.Bundle, peering *v1alpha1.Peering) (v1alpha1.BundleStatus, error) {
	out := v1alpha1.BundleStatus{ObservedRevision: bundle.Spec.Revision}
	if peering.Spec.Phase == v1alpha1.MemberLeaving {
		return out, nil
	}
	list := &mcs.ServiceExportList{}
	if err := r.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("list ServiceExports: %w", err)
	}
	for i := range list.Items {
		e := &list.Items[i]
		if e.DeletionTimestamp != nil || v1alpha1.BundleName(v1alpha1.Shard(e.Namespace, e.Name, peering.Spec.Shards)) != bundle.Name {
			continue
		}
		export, ok, err := r.describe(ctx, e)
		if err != nil {
			return out, err
		}
		if ok {
			out.Exports = append(out.Exports, export)
		}
	}
	out.Exports, out.LeftOut = fit(out.Exports)
	slices.SortFunc(out.Exports, func(a, b v1alpha1.Export) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

func (r *Bundles) describe(ctx context.Context, e *mcs.ServiceExport) (v1alpha1.Export, bool, error) {
	key := client.ObjectKeyFromObject(e)
	service, err := index.Service(ctx, r, key)
	if err != nil || exports.Verdict(e, service).Status != metav1.ConditionTrue {
		return v1alpha1.Export{}, false, err
	}
	endpoints, err := index.SlicesOf(ctx, r, key)
	if err != nil {
		return v1alpha1.Export{}, false, err
	}
	export, err := exports.Describe(e, service, endpoints)
	return export, err == nil, nil
}
