// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"bytes"
	"context"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
	"github.com/sealane-io/sealane/internal/coarse"
	"github.com/sealane-io/sealane/propagation"
)

// measuredPace is how long a decision waits, of a ClusterSet, and the least time between two writes of a Member, where
// nothing is new but what members say to have measured: whatever they say, and however often.
const measuredPace = 10 * time.Second

// maxMeasuredBytes bounds what is decoded for each event to tell whether it has to wait. What is longer does not
// wait, and is decoded once for each decision.
const maxMeasuredBytes = 128 << 10

// measured is what a member says to have measured of its connection to another; nil if it says nothing, or what cannot
// be. No decision depends on it.
func measured(s *state, other string) *v1alpha1.Measurements {
	if c := s.heard[other].connection; c != nil {
		return coarse.Claimed(c.Measured)
	}
	return nil
}

// ofPeerings makes requests of the Works of Peerings. Where a report differs from the one before in nothing but what
// was measured, the request waits, and one does for all that come meanwhile.
func (r *Reconciler) ofPeerings() handler.EventHandler {
	sets := func(ctx context.Context, o client.Object) []string {
		if o.GetLabels()[propagation.LabelKind] != propagation.KindPeering {
			return nil
		}
		return fleet.SetOf(ctx, r.Client, propagation.ClusterOf(o))
	}
	atOnce := fleet.ToSet(sets)
	return handler.Funcs{
		CreateFunc: atOnce.Create, DeleteFunc: atOnce.Delete, GenericFunc: atOnce.Generic,
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent,
			queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if !onlyMeasured(e.ObjectOld, e.ObjectNew) {
				atOnce.Update(ctx, e, queue)
				return
			}
			for _, set := range sets(ctx, e.ObjectNew) {
				queue.AddAfter(ctrl.Request{NamespacedName: types.NamespacedName{Name: set}}, measuredPace)
			}
		},
	}
}

// onlyMeasured says whether a Work of a Peering has changed in nothing but what was measured of connections.
func onlyMeasured(before, after client.Object) bool {
	b, ok := before.(*workv1alpha1.Work)
	a, also := after.(*workv1alpha1.Work)
	if !ok || !also || b.UID != a.UID || b.Generation != a.Generation ||
		b.DeletionTimestamp.IsZero() != a.DeletionTimestamp.IsZero() ||
		!equality.Semantic.DeepEqual(b.Labels, a.Labels) ||
		!equality.Semantic.DeepEqual(b.Status.Conditions, a.Status.Conditions) {
		return false
	}
	was, is := propagation.Status(b), propagation.Status(a)
	if bytes.Equal(was, is) || max(len(was), len(is)) > maxMeasuredBytes {
		return false
	}
	rest, ok := unmeasured(was)
	same, also := unmeasured(is)
	return ok && also && equality.Semantic.DeepEqual(rest, same)
}

// unmeasured is a report without what was measured; it is not ok if it is one that is not used.
func unmeasured(raw []byte) (status v1alpha1.PeeringStatus, ok bool) {
	r := ParseReport("", raw, 0)
	r.Status.Connections = coarse.Without(r.Status.Connections)
	return r.Status, r.Known
}

// unhurried is how long the write of a record waits that has nothing new but what was measured; 0 is not at all.
func (m *memory) unhurried(before, after v1alpha1.MemberStatus, now time.Time) time.Duration {
	wait := measuredPace - now.Sub(m.recorded)
	if wait <= 0 {
		return 0
	}
	before.Connections, after.Connections = coarse.Without(before.Connections), coarse.Without(after.Connections)
	if !equality.Semantic.DeepEqual(before, after) {
		return 0
	}
	return wait
}
