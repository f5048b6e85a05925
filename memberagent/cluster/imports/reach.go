// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"context"
	"fmt"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/raced"
	"github.com/sealane-io/sealane/internal/reach"
)

// Reachability follows which remote clusters can be reached, and announces the imports that a change
// concerns.
type Reachability struct {
	reader  client.Reader
	changed chan event.GenericEvent

	mu    sync.Mutex
	known reach.Clusters // nil before the first look
}

// NewReachability reads Gateways and Bundles.
func NewReachability(reader client.Reader) *Reachability {
	return &Reachability{reader: reader, changed: make(chan event.GenericEvent, 256)}
}

// SetupWithManager registers the controller.
func (r *Reachability) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	o.MaxConcurrentReconciles = 1
	one := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} }
	return ctrl.NewControllerManagedBy(m).Named("reachability").
		Watches(&v1alpha1.Gateway{}, handler.EnqueueRequestsFromMapFunc(one)).
		WithOptions(o).Complete(raced.Reconciler(r))
}

// Reconcile looks at the Gateways' reports.
func (r *Reachability) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	before, after, again, err := r.look(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	for cluster := range after {
		if was, is := before.Connected(cluster), after.Connected(cluster); was != is {
			log.FromContext(ctx).Info("a remote cluster's reachability changed", "remoteCluster", cluster, "connected", is)
		}
	}
	if !before.Equal(after) {
		if err := r.announce(ctx, before, after); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// Current returns what is known, looking for the first time if need be.
func (r *Reachability) Current(ctx context.Context) (reach.Clusters, error) {
	r.mu.Lock()
	known := r.known
	r.mu.Unlock()
	if known != nil {
		return known, nil
	}
	_, known, _, err := r.look(ctx)
	return known, err
}

func (r *Reachability) look(ctx context.Context) (before, after reach.Clusters, again time.Duration, err error) {
	list := &v1alpha1.GatewayList{}
	if err := r.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, 0, fmt.Errorf("list Gateways: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before = r.known
	r.known, again = before.Next(list.Items, time.Now())
	return before, r.known, again, nil
}

// announce pokes every import that has a cluster whose state changed.
func (r *Reachability) announce(ctx context.Context, before, after reach.Clusters) error {
	bundles := &v1alpha1.BundleList{}
	if err := r.reader.List(ctx, bundles, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Bundles: %w", err)
	}
	for i := range bundles.Items {
		if v1alpha1.IsDelta(bundles.Items[i].Name) {
			continue // of the same clusters, and each import is in another Bundle, too
		}
		for _, imported := range bundles.Items[i].Spec.Imports {
			for _, c := range imported.Clusters {
				if before.Connected(c.Cluster) == after.Connected(c.Cluster) {
					continue
				}
				poke := event.GenericEvent{Object: &mcs.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: imported.Namespace,
					Name: imported.Name}}}
				select {
				case r.changed <- poke:
				case <-ctx.Done():
					return ctx.Err()
				}
				break
			}
		}
	}
	return nil
}
