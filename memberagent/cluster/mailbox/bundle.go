// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/raced"
	"github.com/sealane-io/sealane/memberagent/cluster/exports"
	"github.com/sealane-io/sealane/memberagent/cluster/globalips"
	"github.com/sealane-io/sealane/memberagent/cluster/imports"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// Bundles writes Bundle.status, one key per Bundle.
type Bundles struct {
	client.Client
	// Refusals of imports.
	Refusals *imports.Refusals
	// Limited is set where only v1alpha1 of the MCS API is served.
	Limited bool
	// Written is called for each write.
	Written func()

	pacer   *pacer
	exports exportsPacer
	mu      sync.Mutex
	// since when a report waits for imports, by the name of its Bundle.
	since map[string]time.Time
}

// SetupWithManager registers the controller.
func (r *Bundles) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	r.pacer, r.since = newPacer(), map[string]time.Time{}
	o.MaxConcurrentReconciles = 4
	return ctrl.NewControllerManagedBy(m).Named("bundle").
		For(&v1alpha1.Bundle{}).
		Watches(&v1alpha1.Bundle{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(answersThere())).
		Watches(&mcs.ServiceExport{}, handler.EnqueueRequestsFromMapFunc(r.shardOf)).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.shardOf)).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(r.shardOfSlice)).
		Watches(&mcs.ServiceImport{}, handler.EnqueueRequestsFromMapFunc(r.shardOfImport)).
		Watches(&v1alpha1.GlobalAllocation{}, handler.EnqueueRequestsFromMapFunc(r.shardOfAllocation)).
		Watches(metadataOf("Namespace"), handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(existence())).
		WatchesRawSource(source.Channel(r.Refusals.Changed(), handler.EnqueueRequestsFromMapFunc(r.all))).
		Watches(&v1alpha1.NodeNetwork{}, handler.EnqueueRequestsFromMapFunc(r.all)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(addresses())).
		Watches(&v1alpha1.Peering{}, handler.EnqueueRequestsFromMapFunc(r.all),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(o).Complete(raced.Reconciler(r))
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

func (r *Bundles) shardOfAllocation(ctx context.Context, o client.Object) []reconcile.Request {
	if service, ok := globalips.ServiceOf(o); ok {
		return r.shard(ctx, service, o)
	}
	return nil
}

// existence passes what appears and disappears.
func existence() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

// shardOfImport enqueues the Bundle that carries the import of a ServiceImport's name, and with it the report on it:
// that of its shard or half, also where deltas are newer.
func (r *Bundles) shardOfImport(ctx context.Context, o client.Object) []reconcile.Request {
	peering, err := index.SharedPeering(ctx, r)
	if err != nil || peering == nil {
		return nil
	}
	b, err := index.BundleOfImport(ctx, r, peering.Spec.Shards, client.ObjectKeyFromObject(o))
	if err != nil || b == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(b)}}
}

func (r *Bundles) shard(ctx context.Context, service types.NamespacedName, o client.Object) []reconcile.Request {
	if _, ok := o.(*mcs.ServiceExport); !ok && r.Get(ctx, service, &mcs.ServiceExport{}) != nil {
		return nil
	}
	peering, err := index.SharedPeering(ctx, r)
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
	peering, err := index.SharedPeering(ctx, r)
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
	if wait := r.settling(bundle, status, time.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	only := onlyExports(bundle.Status, status)
	if wait := r.wait(bundle.Name, only, time.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if err := replaceStatus(ctx, r, bundle, status); err != nil {
		return ctrl.Result{}, err
	}
	r.pacer.wrote(bundle.Name, time.Now())
	r.told(bundle.Name)
	if only {
		r.exports.wrote(bundle.Name, time.Now())
	}
	r.Written()
	return ctrl.Result{}, nil
}

// onlyExports says whether a report tells of nothing but exports. What is an answer to the broker does not wait for
// long, as that goes by answers.
func onlyExports(before, after v1alpha1.BundleStatus) bool {
	before.Exports, before.LeftOut = after.Exports, after.LeftOut
	return equality.Semantic.DeepEqual(before, after)
}

// wait returns how long the report of a Bundle must wait, 0 for not at all.
func (r *Bundles) wait(name string, onlyExports bool, now time.Time) time.Duration {
	wait := r.pacer.wait(name, now)
	if onlyExports {
		wait = max(wait, r.exports.wait(name, now))
	}
	return wait
}

// patience is how long a report waits for imports that are being made, so that new ones cost one write and not two.
const patience = time.Second

// settling returns how long to wait before a report that has nothing new but imports that are being made; 0 is not at
// all.
func (r *Bundles) settling(bundle *v1alpha1.Bundle, status v1alpha1.BundleStatus, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !pending(status.Imports) || !equality.Semantic.DeepEqual(bundle.Status.Exports, status.Exports) {
		delete(r.since, bundle.Name)
		return 0
	}
	if _, ok := r.since[bundle.Name]; !ok {
		r.since[bundle.Name] = now
	}
	return max(patience-now.Sub(r.since[bundle.Name]), 0)
}

// told has the next report wait anew for imports that are being made still: each write goes to the broker.
func (r *Bundles) told(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.since, name)
}

// partOf says whether a Bundle's name is that of a shard, of a half of one, or of deltas.
func partOf(name string, shards int32) bool {
	n, _, ok := v1alpha1.ParseBundleName(name)
	return ok && n < shards || v1alpha1.IsDelta(name)
}

// status lists the exports of a Bundle's shard; none while the cluster leaves, and none in a half. What is in deltas is
// reported with the Bundle of its shard or half.
func (r *Bundles) status(ctx context.Context, bundle *v1alpha1.Bundle,
	peering *v1alpha1.Peering) (v1alpha1.BundleStatus, error) {
	if apart, err := answeredApart(ctx, r, bundle); err != nil || apart {
		return v1alpha1.BundleStatus{}, err
	}
	out := v1alpha1.BundleStatus{ObservedRevision: bundle.Spec.Revision}
	if peering.Spec.Phase == v1alpha1.MemberLeaving || v1alpha1.IsDelta(bundle.Name) {
		return out, nil
	}
	list := &mcs.ServiceExportList{}
	if _, half, _ := v1alpha1.ParseBundleName(bundle.Name); half == "" {
		if err := r.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return out, fmt.Errorf("list ServiceExports: %w", err)
		}
	}
	routes := sync.OnceValues(func() (exports.Routes, error) { return r.routes(ctx, peering) })
	for i := range list.Items {
		e := &list.Items[i]
		if e.DeletionTimestamp != nil || v1alpha1.BundleName(v1alpha1.Shard(e.Namespace, e.Name,
			peering.Spec.Shards)) != bundle.Name {
			continue
		}
		export, ok, err := r.describe(ctx, e, bundle.Status.Exports, routes, peering.Spec)
		if err != nil {
			return out, err
		}
		if ok {
			out.Exports = append(out.Exports, export)
		}
	}
	verdicts, err := judge(onDemand(ctx, r), r.Refusals, r.Limited, *bundle)
	if err != nil {
		return out, err
	}
	out.Imports, out.ImportsLeftOut = fitProblems(imports.Problems(verdicts))
	out.Exports, out.LeftOut = fit(out.Exports)
	slices.SortFunc(out.Exports, func(a, b v1alpha1.Export) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// routes are where gateways send what is for the cluster's pods.
func (r *Bundles) routes(ctx context.Context, peering *v1alpha1.Peering) (exports.Routes, error) {
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return exports.Routes{}, fmt.Errorf("list Nodes: %w", err)
	}
	var networks v1alpha1.NodeNetworkList
	if err := r.List(ctx, &networks, client.UnsafeDisableDeepCopy); err != nil {
		return exports.Routes{}, fmt.Errorf("list NodeNetworks: %w", err)
	}
	apiServers, err := index.APIServers(ctx, r)
	if err != nil {
		return exports.Routes{}, err
	}
	return exports.RoutesTo(nodes.Items, networks.Items, &peering.Spec, apiServers), nil
}

// describe returns an export, unless its Service cannot be exported. last is what was reported last.
func (r *Bundles) describe(ctx context.Context, e *mcs.ServiceExport, last []v1alpha1.Export,
	routes func() (exports.Routes, error), peering v1alpha1.PeeringSpec) (v1alpha1.Export, bool, error) {
	key := client.ObjectKeyFromObject(e)
	service, err := index.Service(ctx, r, key)
	if err != nil || !exports.Exportable(e, service) {
		return v1alpha1.Export{}, false, err
	}
	endpoints, err := index.SlicesOf(ctx, r, key)
	if err != nil {
		return v1alpha1.Export{}, false, err
	}
	to, err := routes()
	if err != nil {
		return v1alpha1.Export{}, false, err
	}
	out := exports.Describe(e, service, endpoints, to, reported(last, e))
	return out, true, globalips.Tell(ctx, r, &out, peering)
}

// reported returns what a report, which is sorted, says of a ServiceExport: nil where it says nothing of it. One that
// was deleted and made anew is another.
func reported(report []v1alpha1.Export, e *mcs.ServiceExport) *v1alpha1.Export {
	i, found := slices.BinarySearchFunc(report, e, func(r v1alpha1.Export, e *mcs.ServiceExport) int {
		return cmp.Or(cmp.Compare(r.Namespace, e.Namespace), cmp.Compare(r.Name, e.Name))
	})
	if !found || !report[i].CreatedAt.Equal(&e.CreationTimestamp) {
		return nil
	}
	return &report[i]
}
