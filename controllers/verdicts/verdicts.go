// SPDX-License-Identifier: Apache-2.0

// Package verdicts reads what the broker last told the members of their exports, from the Works that carry
// the Bundles. It decodes each version of a Work once.
package verdicts

import (
	"context"
	"slices"
	"sync"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// Verdicts of the broker on the exports in one Bundle. A condition on Ready is said of every export that
// the member reports, refused ones included.
type Verdicts map[types.NamespacedName][]metav1.Condition

// Reader reads verdicts. The zero value is ready for use, by many at once.
type Reader struct {
	mu sync.Mutex
	// read holds the two versions of each Work that were asked for last: an event has both.
	read map[types.NamespacedName][2]version
}

// version is what one version of a Work says.
type version struct {
	uid        types.UID
	generation int64
	verdicts   Verdicts
}

// Of returns the verdicts in a Work; none if it does not carry a shard's own Bundle, as those of halves and of deltas
// have none.
func (r *Reader) Of(work *workv1alpha1.Work) Verdicts {
	if work.Labels[propagation.LabelKind] != propagation.KindBundle || work.Labels[propagation.LabelHalf] != "" ||
		work.Labels[propagation.LabelDelta] != "" {
		return nil
	}
	key := client.ObjectKeyFromObject(work)
	r.mu.Lock()
	known := r.read[key]
	r.mu.Unlock()
	for _, v := range known {
		if v.verdicts != nil && v.uid == work.UID && v.generation == work.Generation {
			return v.verdicts
		}
	}
	now := version{work.UID, work.Generation, decode(work)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read == nil {
		r.read = map[types.NamespacedName][2]version{}
	}
	r.read[key] = [2]version{now, r.read[key][0]}
	return now.verdicts
}

func decode(work *workv1alpha1.Work) Verdicts {
	out := Verdicts{}
	// Of an import nothing is needed, and it is most of a Bundle.
	var spec struct {
		ExportConditions []v1alpha1.ExportCondition `json:"exportConditions"`
	}
	if propagation.Spec(work, &spec) != nil {
		return out
	}
	for _, c := range spec.ExportConditions {
		key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
		out[key] = append(out[key], metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
	}
	return out
}

// For returns the verdicts on one export of a member, nil if its Bundle does not tell of it.
func (r *Reader) For(ctx context.Context, c client.Reader, member *v1alpha1.Member, set *v1alpha1.ClusterSet,
	export types.NamespacedName) ([]metav1.Condition, error) {
	var work workv1alpha1.Work
	shard := v1alpha1.Shard(export.Namespace, export.Name, set.Spec.Shards)
	if err := c.Get(ctx, propagation.BundleKey(member.Name, shard), &work); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return r.Of(&work)[export], nil
}

// Handler makes a request for every export of which a Work's verdict has changed.
func (r *Reader) Handler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	changed := func(q queue, before, after Verdicts) {
		for key, conditions := range after {
			if !slices.Equal(before[key], conditions) {
				q.Add(reconcile.Request{NamespacedName: key})
			}
		}
		for key := range before {
			if after[key] == nil {
				q.Add(reconcile.Request{NamespacedName: key})
			}
		}
	}
	of := func(o client.Object) Verdicts {
		work, ok := o.(*workv1alpha1.Work)
		if !ok {
			return nil
		}
		return r.Of(work)
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { changed(q, nil, of(e.Object)) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			// What the member reports is no verdict.
			if e.ObjectOld.GetGeneration() == e.ObjectNew.GetGeneration() && e.ObjectOld.GetUID() == e.ObjectNew.GetUID() {
				return
			}
			changed(q, of(e.ObjectOld), of(e.ObjectNew))
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			changed(q, of(e.Object), nil)
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.read, client.ObjectKeyFromObject(e.Object))
		},
	}
}
