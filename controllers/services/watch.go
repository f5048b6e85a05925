// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	networkingv1alpha1 "github.com/karmada-io/karmada/pkg/apis/networking/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
	"github.com/sealane-io/sealane/controllers/takeover"
	"github.com/sealane-io/sealane/internal/raced"
	"github.com/sealane-io/sealane/propagation"
)

// SetupWithManager starts the controller, once the caches show what was written before.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, before *takeover.Caches) error {
	if err := propagation.Register(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := r.setupDeltas(mgr, before); err != nil {
		return err
	}
	all := func(ctx context.Context, sets ...string) []Shard { return r.shards(ctx, sets) }
	return builder.TypedControllerManagedBy[Shard](mgr).Named("services").
		WithOptions(controller.TypedOptions[Shard]{MaxConcurrentReconciles: parallelShards}).
		Watches(&v1alpha1.ClusterSet{}, toShards(func(ctx context.Context, o client.Object) []Shard {
			return all(ctx, o.GetName())
		}), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Member{}, toShards(func(ctx context.Context, o client.Object) []Shard {
			return all(ctx, o.(*v1alpha1.Member).Spec.ClusterSet)
		}), builder.WithPredicates(decisive())).
		Watches(&workv1alpha1.Work{}, paced(r.shardsOfWork, r.restOf)).
		Watches(&v1alpha1.ExportRecord{}, toShards(r.shardsOfRecord), builder.WithPredicates(r.foreign())).
		Watches(&workv1alpha2.ClusterResourceBinding{}, toShards(func(ctx context.Context, _ client.Object) []Shard {
			return all(ctx, fleet.Sets(ctx, r.Client)...)
		}), builder.WithPredicates(fleet.Wire())).
		Watches(&workv1alpha2.ResourceBinding{}, toShards(r.shardsOfBinding),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ServicePolicy{}, toShards(r.shardsOfService),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&mcsv1alpha1.ServiceImport{}, toShards(r.shardsOfService),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&networkingv1alpha1.MultiClusterService{}, toShards(r.shardsOfService),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&clusterv1alpha1.Cluster{}, toShards(r.shardsOfCluster),
			builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&clusterv1alpha1.Cluster{}, paced(func(ctx context.Context, o client.Object) []Shard {
			return all(ctx, fleet.SetOf(ctx, r.Client, o.GetName())...)
		}, func(Shard) time.Duration { return readyPace }), builder.WithPredicates(turned())).
		WatchesRawSource(queued(r, &r.shardQueue)).
		WatchesRawSource(takeover.Shown[Shard](before)).
		Complete(raced.Reconciler(reconcile.TypedFunc[Shard](r.Reconcile)))
}

// setupDeltas starts the controller of the Bundles of deltas: one key for each cluster.
func (r *Reconciler) setupDeltas(mgr ctrl.Manager, before *takeover.Caches) error {
	return builder.TypedControllerManagedBy[string](mgr).Named("deltas").
		WithOptions(controller.TypedOptions[string]{MaxConcurrentReconciles: parallelWrites}).
		Watches(&workv1alpha1.Work{}, handler.TypedEnqueueRequestsFromMapFunc(clusterOfDeltas)).
		Watches(&clusterv1alpha1.Cluster{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(_ context.Context, o client.Object) []string { return []string{o.GetName()} }),
			builder.WithPredicates(turned())).
		WatchesRawSource(queued(r, &r.deltaQueue)).
		WatchesRawSource(takeover.Shown[string](before)).
		Complete(raced.Reconciler(reconcile.TypedFunc[string](r.Deliver)))
}

// queued is where a controller gets what another one has for it.
func queued[T comparable](r *Reconciler, in *workqueue.TypedInterface[T]) source.TypedSource[T] {
	return source.TypedFunc[T](func(_ context.Context, q workqueue.TypedRateLimitingInterface[T]) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		*in = q
		return nil
	})
}

// wakeDeltas has the deltas of a cluster looked at.
func (r *Reconciler) wakeDeltas(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deltaQueue != nil {
		r.deltaQueue.Add(cluster)
	}
}

// wakeShards has the first shards of a ClusterSet decided on again.
func (r *Reconciler) wakeShards(set string, number int32) {
	for n := range number {
		r.wake(set, n)
	}
}

// wake has shards of a ClusterSet decided on again.
func (r *Reconciler) wake(set string, shards ...int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range shards {
		if r.shardQueue != nil {
			r.shardQueue.Add(Shard{set, n})
		}
	}
}

// decisive passes Members that come and go, and changes of what services are decided by. The rest of a record changes
// with each report: where one cluster is lost, all others say so, and none of that concerns a service.
func decisive() predicate.Predicate {
	type basis struct {
		Member
		set         string
		takesPart   bool
		readsDeltas bool
	}
	of := func(o client.Object) (basis, bool) {
		record, ok := o.(*v1alpha1.Member)
		if !ok {
			return basis{}, false
		}
		return basis{memberOf(record), record.Spec.ClusterSet, takesPart(record), record.Status.ReadsDeltas}, true
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := of(e.ObjectOld)
		after, also := of(e.ObjectNew)
		return !ok || !also || !reflect.DeepEqual(before, after)
	}}
}

// readyPace is how long decisions wait on the shards of a cluster that Karmada begins or ceases to reach. A pull member
// that is cut off and back several times a second costs one each then; what it has not answered is not sent anew
// before it has had five seconds.
const readyPace = time.Second

// turned passes clusters that Karmada begins or ceases to reach: what they have not answered is sent anew.
func turned() predicate.Predicate {
	ready := func(o client.Object) bool {
		c, ok := o.(*clusterv1alpha1.Cluster)
		return ok && meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1alpha1.ClusterConditionReady)
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return ready(e.ObjectOld) != ready(e.ObjectNew) }}
}

func toShards(f handler.TypedMapFunc[client.Object, Shard]) handler.TypedEventHandler[client.Object, Shard] {
	return handler.TypedEnqueueRequestsFromMapFunc(f)
}

const (
	// restAfter is how many times as long as a decision took a shard rests after it, and longestRest at most: that bounds
	// what the decisions take of the processors, where reports and answers come all the time, and what is read of hundreds
	// of answers to one change.
	restAfter   = 9
	longestRest = 500 * time.Millisecond
)

// rests notes that a shard was decided on, which took so long.
func (r *Reconciler) rests(shard Shard, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rested == nil {
		r.rested = map[Shard]time.Time{}
	}
	r.rested[shard] = r.Now().Add(min(restAfter*took, longestRest))
}

// restOf is how long a shard rests still.
func (r *Reconciler) restOf(shard Shard) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.rested[shard].Sub(r.Now()), 0)
}

// paced makes requests that wait, one for all that come meanwhile.
func paced(f handler.TypedMapFunc[client.Object, Shard],
	wait func(Shard) time.Duration) handler.TypedEventHandler[client.Object, Shard] {
	type queue = workqueue.TypedRateLimitingInterface[Shard]
	add := func(ctx context.Context, o client.Object, q queue) {
		for _, shard := range f(ctx, o) {
			q.AddAfter(shard, wait(shard))
		}
	}
	return handler.TypedFuncs[client.Object, Shard]{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, e.Object, q) },
	}
}

// shardsOfWork is the one shard whose Bundle a Work carries.
func (r *Reconciler) shardsOfWork(ctx context.Context, o client.Object) []Shard {
	labels := o.GetLabels()
	if labels[propagation.LabelKind] != propagation.KindBundle {
		return nil
	}
	number, err := strconv.ParseInt(labels[propagation.LabelShard], 10, 32)
	if err != nil {
		return nil
	}
	var out []Shard
	for _, set := range fleet.SetOf(ctx, r.Client, propagation.ClusterOf(o)) {
		shard := Shard{Set: set, Number: int32(number)}
		r.arrived(shard, r.Now())
		out = append(out, shard)
	}
	return out
}

// shardsOfRecord is the one shard of which an ExportRecord tells.
func (r *Reconciler) shardsOfRecord(ctx context.Context, o client.Object) []Shard {
	record, ok := o.(*v1alpha1.ExportRecord)
	if !ok {
		return nil
	}
	var out []Shard
	for _, set := range fleet.SetOf(ctx, r.Client, record.Spec.Cluster) {
		out = append(out, Shard{Set: set, Number: record.Spec.Shard})
	}
	return out
}

// foreign passes ExportRecords that somebody else has deleted or written. What this controller writes it has decided.
func (r *Reconciler) foreign() predicate.Predicate {
	written := func(o client.Object) bool {
		record, ok := o.(*v1alpha1.ExportRecord)
		if !ok {
			return false
		}
		r.mu.Lock()
		own, known := r.records[record.Name]
		r.mu.Unlock()
		return known && sameRecord(&own, &record.Spec)
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !written(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return !written(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.records, e.Object.GetName())
			return true
		},
	}
}

// shardsOfService is, in every ClusterSet, the shard of the service that an object names by its own name.
func (r *Reconciler) shardsOfService(ctx context.Context, o client.Object) []Shard {
	var sets v1alpha1.ClusterSetList
	if r.Client.List(ctx, &sets) != nil {
		return nil
	}
	out := make([]Shard, 0, len(sets.Items))
	for i := range sets.Items {
		number := v1alpha1.Shard(o.GetNamespace(), o.GetName(), sets.Items[i].Spec.Shards)
		out = append(out, Shard{Set: sets.Items[i].Name, Number: number})
	}
	return out
}

// shardsOfBinding is, in every ClusterSet, the shard of the ServiceExport that a ResourceBinding places.
func (r *Reconciler) shardsOfBinding(ctx context.Context, o client.Object) []Shard {
	b, ok := o.(*workv1alpha2.ResourceBinding)
	if !ok || b.Spec.Resource.Kind != "ServiceExport" {
		return nil
	}
	return r.shardsOfService(ctx, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: b.Spec.Resource.Namespace, Name: b.Spec.Resource.Name,
	}})
}

// shardsOfCluster are the shards in which the labels of a member matter.
func (r *Reconciler) shardsOfCluster(ctx context.Context, o client.Object) []Shard {
	all := r.shards(ctx, fleet.SetOf(ctx, r.Client, o.GetName()))
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(all, func(s Shard) bool { return r.unlabelled[s] })
}

func (r *Reconciler) shards(ctx context.Context, sets []string) []Shard {
	var out []Shard
	for _, name := range sets {
		var set v1alpha1.ClusterSet
		if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, &set); err != nil {
			continue
		}
		for n := range set.Spec.Shards {
			out = append(out, Shard{Set: name, Number: n})
		}
	}
	return out
}
