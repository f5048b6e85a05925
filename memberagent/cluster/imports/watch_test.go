// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// unsteady is a client whose first lists fail, as those of a cache do that is not synced yet.
type unsteady struct {
	client.Client // nothing else is called
	bundles       []v1alpha1.Bundle
	made          []mcs.ServiceImport
	fails         int
}

func (u *unsteady) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.(*v1alpha1.Peering).Spec.Shards = 4
	return nil
}

func (u *unsteady) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if u.fails--; u.fails >= 0 {
		return errors.New("not synced")
	}
	switch list := list.(type) {
	case *v1alpha1.BundleList:
		list.Items = u.bundles
	case *mcs.ServiceImportList:
		list.Items = u.made
	}
	return nil
}

// TestHalvesAreLookedAtAgain: where a shard's own Bundle comes to list others, or comes back, its imports and those in
// its halves are looked at, also if these cannot be listed at once, and what was made of the shard's before; and where
// another Bundle comes back, what was made of it.
func TestHalvesAreLookedAtAgain(t *testing.T) {
	named := func(name string, imports ...string) v1alpha1.Bundle {
		b := v1alpha1.Bundle{}
		b.Name, b.Generation = name, 1
		for _, i := range imports {
			b.Spec.Imports = append(b.Spec.Imports, v1alpha1.Import{Namespace: "sample", Name: i})
		}
		return b
	}
	before := named("sealane-1", "own")
	after := named("sealane-1", "own")
	after.Generation, after.Spec.Halves = 2, []string{"0", "1"}
	there := []v1alpha1.Bundle{after, named("sealane-1-0", "a"), named("sealane-1-11", "b"), named("sealane-10-0", "c"),
		named("sealane-2", "d")}
	var made []mcs.ServiceImport
	for _, name := range []string{"web-2", "web-6", "web-7"} {
		made = append(made, mcs.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: name}})
	}
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	for _, c := range []struct {
		what string
		send func(handler.EventHandler, queue)
		want string
	}{
		// By their hashes, web-2 and web-6 are in shard 1, and web-6 in its half "11".
		{"lists others", func(h handler.EventHandler, q queue) {
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: &before, ObjectNew: &after}, q)
		}, "[a b own web-2 web-6]"},
		{"comes back", func(h handler.EventHandler, q queue) {
			h.Create(t.Context(), event.CreateEvent{Object: &after}, q)
		}, "[a b own web-2 web-6]"},
		{"a half comes back", func(h handler.EventHandler, q queue) {
			h.Create(t.Context(), event.CreateEvent{Object: &there[2]}, q)
		}, "[b web-6]"},
		{"the agent starts", func(h handler.EventHandler, q queue) {
			h.Create(t.Context(), event.CreateEvent{Object: &there[2], IsInInitialList: true}, q)
		}, "[b]"},
	} {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		r := &Reconciler{Client: &unsteady{bundles: there, made: made, fails: 2}}
		c.send(r.bundleHandler(), q)
		q.ShutDown()
		var got []string
		for {
			key, down := q.Get()
			if down {
				break
			}
			got = append(got, key.Name)
		}
		if slices.Sort(got); fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v are looked at, want %s", c.what, got, c.want)
		}
	}
}
