// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/raced"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// SetupWithManager registers the controller: one key per import.
func (r *Reconciler) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	o.MaxConcurrentReconciles = 8
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return ctrl.NewControllerManagedBy(m).Named("serviceimport").
		For(&mcs.ServiceImport{}).
		Watches(&v1alpha1.Bundle{}, r.bundleHandler()).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(serviceKeys)).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(r.sliceKeys)).
		Watches(namespace, handler.EnqueueRequestsFromMapFunc(r.namespaceKeys), builder.WithPredicates(existence())).
		Watches(&v1alpha1.Peering{}, handler.EnqueueRequestsFromMapFunc(r.allKeys), builder.WithPredicates(identity())).
		WatchesRawSource(source.Channel(r.Reachability.changed, &handler.EnqueueRequestForObject{})).
		WithOptions(o).Complete(raced.Reconciler(r))
}

// bundleHandler enqueues the imports that differ between two versions of a Bundle, so that a change costs
// what changed: all imports of a shard where it lists other halves. Where what differs is which Bundle has an import as
// it is now, that import is enqueued, too. A Bundle that disappears changes nothing.
func (r *Reconciler) bundleHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			b := e.Object.(*v1alpha1.Bundle)
			for key := range changedImports(nil, b.Spec.Imports) {
				q.Add(reconcile.Request{NamespacedName: key})
			}
			if len(b.Spec.Halves) > 0 {
				// What has changed in them while nothing listed them.
				r.addHalves(ctx, b.Name, q)
			}
			if !e.IsInInitialList {
				r.addMade(ctx, b.Name, q)
				r.addHeld(ctx, b.Name, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetGeneration() == e.ObjectNew.GetGeneration() && e.ObjectOld.GetUID() == e.ObjectNew.GetUID() {
				return
			}
			name := e.ObjectNew.GetName()
			before, after := &e.ObjectOld.(*v1alpha1.Bundle).Spec, &e.ObjectNew.(*v1alpha1.Bundle).Spec
			for key := range changedImports(before.Imports, after.Imports) {
				q.Add(reconcile.Request{NamespacedName: key})
			}
			if !slices.Equal(before.Halves, after.Halves) {
				// Which of them has an import is another matter for each, also for one of which a half is gone already.
				for i := range after.Imports {
					q.Add(reconcile.Request{NamespacedName: keyOf(&after.Imports[i])})
				}
				r.addHalves(ctx, name, q)
				r.addMade(ctx, name, q)
			}
			if before.Sequence != after.Sequence {
				r.addOutdated(ctx, name, after.Imports, min(before.Sequence, after.Sequence), q)
			}
			if before.Deltas != after.Deltas && name == v1alpha1.BundleName(0) {
				r.addListed(ctx, before.Deltas, after.Deltas, q)
			}
		},
	}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// addOutdated enqueues those imports of a Bundle whose sequence has changed that are in another, too, which is newer
// than this one was: another of them may be the newest now, though both say what they did. One of these two is a Bundle
// of deltas. Where the Bundle has no sequence any more, or had none, deltas mattered to all or to none.
func (r *Reconciler) addOutdated(ctx context.Context, name string, imports []v1alpha1.Import, was int64, q queue) {
	var bundles v1alpha1.BundleList
	if !r.listed(ctx, &bundles, name) {
		return // the agent ends
	}
	changed := v1alpha1.IsDelta(name)
	var newer []*v1alpha1.BundleSpec
	for i := range bundles.Items {
		b := &bundles.Items[i]
		if b.Name != name && (changed || v1alpha1.IsDelta(b.Name)) && b.Spec.Sequence > was {
			newer = append(newer, &b.Spec)
		}
	}
	for i := range imports {
		key := keyOf(&imports[i])
		if was == 0 || slices.ContainsFunc(newer, func(s *v1alpha1.BundleSpec) bool {
			return s.Import(key.Namespace, key.Name) != nil
		}) {
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
}

// addListed enqueues what is in Bundles of deltas where others of them are listed; everything where one is not there
// that was listed, as all may have been held for it.
func (r *Reconciler) addListed(ctx context.Context, before, after int32, q queue) {
	own := v1alpha1.BundleName(0)
	var bundles v1alpha1.BundleList
	if !r.listed(ctx, &bundles, own) {
		return // the agent ends
	}
	missing := before - after
	for i := range bundles.Items {
		b := &bundles.Items[i]
		n, ok := v1alpha1.ParseDeltaName(b.Name)
		if !ok {
			continue
		}
		if after <= n && n < before {
			missing--
		}
		for j := range b.Spec.Imports {
			q.Add(reconcile.Request{NamespacedName: keyOf(&b.Spec.Imports[j])})
		}
	}
	if missing > 0 {
		r.addAll(ctx, own, &bundles, q)
	}
}

// addHeld enqueues everything where a Bundle appears without which nothing was known: one of deltas that is listed, or
// the one that lists these.
func (r *Reconciler) addHeld(ctx context.Context, name string, q queue) {
	n, delta := v1alpha1.ParseDeltaName(name)
	var bundles v1alpha1.BundleList
	if !delta && name != v1alpha1.BundleName(0) || !r.listed(ctx, &bundles, name) {
		return
	}
	for i := range bundles.Items {
		if b := &bundles.Items[i]; b.Name == v1alpha1.BundleName(0) && (!delta || n < b.Spec.Deltas) {
			r.addAll(ctx, name, &bundles, q)
		}
	}
}

// addAll enqueues all that is, or was, imported, for what has happened to a Bundle.
func (r *Reconciler) addAll(ctx context.Context, name string, bundles *v1alpha1.BundleList, q queue) {
	for i := range bundles.Items {
		for j := range bundles.Items[i].Spec.Imports {
			q.Add(reconcile.Request{NamespacedName: keyOf(&bundles.Items[i].Spec.Imports[j])})
		}
	}
	var made mcs.ServiceImportList
	if !r.listed(ctx, &made, name) {
		return // the agent ends
	}
	for i := range made.Items {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&made.Items[i])})
	}
}

// retryList is how often halves are listed again that could not be.
const retryList = 100 * time.Millisecond

// addHalves enqueues the imports in all halves that there are of a shard, listed or not. It waits until it can list
// them: no other event would tell of these imports.
func (r *Reconciler) addHalves(ctx context.Context, own string, q queue) {
	var bundles v1alpha1.BundleList
	if !r.listed(ctx, &bundles, own) {
		return // the agent ends
	}
	shard, _, _ := v1alpha1.ParseBundleName(own)
	for i := range bundles.Items {
		b := &bundles.Items[i]
		if n, bits, ok := v1alpha1.ParseBundleName(b.Name); !ok || n != shard || bits == "" {
			continue
		}
		for j := range b.Spec.Imports {
			q.Add(reconcile.Request{NamespacedName: keyOf(&b.Spec.Imports[j])})
		}
	}
}

// listed lists all objects of a kind for what has happened to a Bundle, and tries again where that fails. It is false
// when the agent ends.
func (r *Reconciler) listed(ctx context.Context, list client.ObjectList, bundle string) bool {
	return wait.PollUntilContextCancel(ctx, retryList, true, func(ctx context.Context) (bool, error) {
		err := r.List(ctx, list, client.UnsafeDisableDeepCopy)
		if err != nil {
			log.FromContext(ctx).Error(err, "list what is imported by a Bundle", "bundle", bundle)
		}
		return err == nil, nil
	}) == nil
}

// addMade enqueues what was made of the services in a Bundle that appears, or lists other halves. Some may have been
// withdrawn while it was gone, or with their half, which no other event tells of.
func (r *Reconciler) addMade(ctx context.Context, name string, q queue) {
	shard, bits, ok := v1alpha1.ParseBundleName(name)
	peering, err := index.SharedPeering(ctx, r)
	var made mcs.ServiceImportList
	if !ok || err != nil || peering == nil || !r.listed(ctx, &made, name) {
		return
	}
	for i := range made.Items {
		o := &made.Items[i]
		if v1alpha1.Shard(o.Namespace, o.Name, peering.Spec.Shards) == shard &&
			(bits == "" || v1alpha1.HalfOf([]string{bits}, o.Namespace, o.Name) != "") {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
	}
}

// changedImports returns the keys of imports that are in one list only, or differ.
func changedImports(before, after []v1alpha1.Import) map[types.NamespacedName]bool {
	old := make(map[types.NamespacedName]*v1alpha1.Import, len(before))
	for i := range before {
		old[keyOf(&before[i])] = &before[i]
	}
	out := map[types.NamespacedName]bool{}
	for i := range after {
		key := keyOf(&after[i])
		if was, ok := old[key]; !ok || !sameImport(was, &after[i]) {
			out[key] = true
		}
		delete(old, key)
	}
	for key := range old {
		out[key] = true
	}
	return out
}

// sameImport compares by reflection only what is small: one changed endpoint has all imports beside it compared.
func sameImport(a, b *v1alpha1.Import) bool {
	rest, other := *a, *b
	rest.Clusters, other.Clusters = nil, nil
	return slices.EqualFunc(a.Clusters, b.Clusters, sameCluster) && equality.Semantic.DeepEqual(rest, other)
}

func sameCluster(a, b v1alpha1.ImportCluster) bool {
	same := slices.EqualFunc(a.Backends, b.Backends, func(a, b v1alpha1.Backends) bool {
		return slices.Equal(a.Ports, b.Ports) && slices.Equal(a.Addresses, b.Addresses)
	})
	a.Backends, b.Backends = nil, nil
	return same && equality.Semantic.DeepEqual(a, b)
}

func keyOf(i *v1alpha1.Import) types.NamespacedName {
	return types.NamespacedName{Namespace: i.Namespace, Name: i.Name}
}

// serviceKeys: a derived Service stands for its import, any other for the import of its own name, whose
// local source it may be.
func serviceKeys(_ context.Context, o client.Object) []reconcile.Request {
	if key, ok := index.ImportOfService(o); ok {
		return []reconcile.Request{{NamespacedName: key}}
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

// sliceKeys: one of Sealane's stands for its import, one of a derived Service for that, too, and any other for the
// import of its Service's name.
func (r *Reconciler) sliceKeys(ctx context.Context, o client.Object) []reconcile.Request {
	if key, ok := index.ImportOfSlice(o); ok {
		return []reconcile.Request{{NamespacedName: key}}
	}
	if key, ok := index.ServiceOfSlice(o); ok {
		service, err := index.Service(ctx, r, key)
		if err == nil && service != nil {
			return serviceKeys(ctx, service)
		}
		return []reconcile.Request{{NamespacedName: key}}
	}
	return nil
}

func (r *Reconciler) namespaceKeys(ctx context.Context, o client.Object) []reconcile.Request {
	return r.keys(ctx, o.GetName())
}

func (r *Reconciler) allKeys(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.keys(ctx, metav1.NamespaceAll)
}

// keys of everything that is, or was, imported into a namespace.
func (r *Reconciler) keys(ctx context.Context, namespace string) []reconcile.Request {
	found := map[types.NamespacedName]bool{}
	bundles, imported, services := &v1alpha1.BundleList{}, &mcs.ServiceImportList{}, &corev1.ServiceList{}
	if r.List(ctx, bundles, client.UnsafeDisableDeepCopy) != nil ||
		r.List(ctx, imported, client.InNamespace(namespace), client.UnsafeDisableDeepCopy) != nil ||
		r.List(ctx, services, client.InNamespace(namespace), client.HasLabels{v1alpha1.LabelImport},
			client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	for i := range bundles.Items {
		for j := range bundles.Items[i].Spec.Imports {
			if key := keyOf(&bundles.Items[i].Spec.Imports[j]); namespace == metav1.NamespaceAll || key.Namespace == namespace {
				found[key] = true
			}
		}
	}
	for i := range imported.Items {
		found[client.ObjectKeyFromObject(&imported.Items[i])] = true
	}
	for i := range services.Items {
		if key, ok := index.ImportOfService(&services.Items[i]); ok {
			found[key] = true
		}
	}
	out := make([]reconcile.Request, 0, len(found))
	for key := range found {
		out = append(out, reconcile.Request{NamespacedName: key})
	}
	return out
}

// existence passes a namespace that appears, vanishes or starts to terminate.
func existence() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return (e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
	}}
}

// identity passes a Peering that appears, or whose fields that imports depend on have changed.
func identity() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			a, b := &e.ObjectOld.(*v1alpha1.Peering).Spec, &e.ObjectNew.(*v1alpha1.Peering).Spec
			return a.Phase != b.Phase || a.ClusterID != b.ClusterID || a.Shards != b.Shards ||
				!equality.Semantic.DeepEqual(a.Override, b.Override)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}
