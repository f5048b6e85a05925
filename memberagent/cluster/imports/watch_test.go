// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// unsteady is a client whose first lists fail, as those of a cache do that is not synced yet.
type unsteady struct {
	client.Client // nothing else is called
	bundles       []v1alpha1.Bundle
	fails         int
}

func (u *unsteady) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if u.fails--; u.fails >= 0 {
		return errors.New("not synced")
	}
	list.(*v1alpha1.BundleList).Items = u.bundles
	return nil
}

// TestHalvesAreLookedAtAgain: where a shard's own Bundle comes to list others, or comes back, the imports in its halves
// are looked at, also if these cannot be listed at once.
func TestHalvesAreLookedAtAgain(t *testing.T) {
	named := func(name string, imports ...string) v1alpha1.Bundle {
		b := v1alpha1.Bundle{}
		b.Name, b.Generation = name, 1
		for _, i := range imports {
			b.Spec.Imports = append(b.Spec.Imports, v1alpha1.Import{Namespace: "sample", Name: i})
		}
		return b
	}
	before := named("sealane-1")
	after := named("sealane-1")
	after.Generation, after.Spec.Halves = 2, []string{"0", "1"}
	there := []v1alpha1.Bundle{after, named("sealane-1-0", "a"), named("sealane-1-11", "b"), named("sealane-10-0", "c"),
		named("sealane-2", "d")}
	for what, send := range map[string]func(r *Reconciler, q workqueue.TypedRateLimitingInterface[reconcile.Request]){
		"lists others": func(r *Reconciler, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			r.bundleHandler().Update(t.Context(), event.UpdateEvent{ObjectOld: &before, ObjectNew: &after}, q)
		},
		"comes back": func(r *Reconciler, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			r.bundleHandler().Create(t.Context(), event.CreateEvent{Object: &after}, q)
		},
	} {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		send(&Reconciler{Client: &unsteady{bundles: there, fails: 2}}, q)
		q.ShutDown()
		var got []string
		for {
			key, down := q.Get()
			if down {
				break
			}
			got = append(got, key.Name)
		}
		if slices.Sort(got); fmt.Sprint(got) != "[a b]" {
			t.Errorf("%s: %v are looked at, want a and b", what, got)
		}
	}
}
