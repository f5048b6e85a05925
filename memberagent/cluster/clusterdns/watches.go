// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// watches of single objects, each by its name: that is how far the agent's rights go.
type watches struct {
	manager ctrl.Manager
	watch   controller.Controller
	handler handler.EventHandler
	started map[string]bool
}

func newWatches(m ctrl.Manager, c controller.Controller, h handler.EventHandler) *watches {
	return &watches{manager: m, watch: c, handler: h, started: map[string]bool{}}
}

// add watches for the objects that have none yet.
func (w *watches) add(objects []client.Object) error {
	for _, o := range objects {
		name := fmt.Sprintf("%T %s", o, client.ObjectKeyFromObject(o))
		if w.started[name] {
			continue
		}
		of := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, o.GetName())}
		if o.GetNamespace() != "" {
			of.Namespaces = map[string]cache.Config{o.GetNamespace(): {}}
		}
		kind := o.DeepCopyObject().(client.Object)
		c, err := cache.New(w.manager.GetConfig(), cache.Options{
			HTTPClient: w.manager.GetHTTPClient(), Scheme: w.manager.GetScheme(), Mapper: w.manager.GetRESTMapper(),
			ByObject: map[client.Object]cache.ByObject{kind: of}, DefaultTransform: unmanaged,
		})
		if err != nil {
			return fmt.Errorf("make a cache for %s: %w", name, err)
		}
		if err := w.manager.Add(c); err != nil {
			return fmt.Errorf("start a cache for %s: %w", name, err)
		}
		if err := w.watch.Watch(source.Kind(c, kind, w.handler)); err != nil {
			return fmt.Errorf("watch %s: %w", name, err)
		}
		if err := w.watch.Watch(w.listed(c, o)); err != nil {
			return fmt.Errorf("watch %s: %w", name, err)
		}
		w.started[name] = true
	}
	return nil
}

// listed is an event when a cache has been filled: an object that was deleted before that is not in it, and no other
// event says so.
func (w *watches) listed(c cache.Cache, o client.Object) source.Source {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return source.Func(func(ctx context.Context, q queue) error {
		go func() {
			if c.WaitForCacheSync(ctx) {
				w.handler.Generic(ctx, event.GenericEvent{Object: o}, q)
			}
		}()
		return nil
	})
}

// unmanaged drops what nobody reads from these caches.
func unmanaged(in any) (any, error) {
	if o, ok := in.(client.Object); ok {
		o.SetManagedFields(nil)
	}
	return in, nil
}
