// SPDX-License-Identifier: Apache-2.0

package globalegress

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// Reconciler keeps the ClusterGlobalEgressIP and the status of all GlobalEgressIPs. They share one pool, so they are
// decided together.
type Reconciler struct {
	client.Client
	// Live reads past the caches: what the leader before wrote last may not be in them.
	Live client.Reader
	// Now is the clock.
	Now func() time.Time

	pods *pods
	// block is that of allocations, which are what was written last.
	block       netip.Prefix
	allocations []v1alpha1.EgressAllocation
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	changed := make(chan event.GenericEvent, 1)
	var err error
	if r.pods, err = newPods(m, changed); err != nil {
		return err
	}
	o.MaxConcurrentReconciles = 1
	return ctrl.NewControllerManagedBy(m).Named("globalegressip").
		Watches(&v1alpha1.GlobalEgressIP{}, soon()).
		Watches(&v1alpha1.ClusterGlobalEgressIP{}, soon()).
		Watches(&v1alpha1.Gateway{}, soon(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Peering{}, soon(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(changed, soon())).
		WithOptions(o).Complete(r)
}

// Reconcile decides anew, and writes what has changed: first who has which addresses, then who uses them.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	peering, err := index.Peering(ctx, r)
	if err != nil || peering == nil {
		return ctrl.Result{}, err // nothing is known, so nothing changes
	}
	var in input
	leaving := peering.Spec.Phase == v1alpha1.MemberLeaving
	if block, err := netfacts.ParseGlobal(peering.Spec.GlobalCIDR); err == nil && !leaving {
		in.block = block
	}
	cluster, err := r.cluster(ctx, in.block.IsValid(), leaving)
	if err != nil {
		return ctrl.Result{}, err
	}
	if cluster != nil {
		in.cluster = *cluster
	}
	if err := r.gather(ctx, &in); err != nil {
		return ctrl.Result{}, err
	}
	d := decide(in)
	if cluster != nil && !equality.Semantic.DeepEqual(cluster.Status, d.cluster) {
		changed := cluster.DeepCopy()
		changed.Status = d.cluster
		if err := r.Status().Patch(ctx, changed, client.MergeFrom(cluster)); err != nil {
			return ctrl.Result{}, fmt.Errorf("write the status of ClusterGlobalEgressIP %s: %w", cluster.Name, err)
		}
	}
	r.allocations = d.cluster.Allocations
	if err := r.write(ctx, in.objects, d.objects); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: d.again}, nil
}

// cluster returns the ClusterGlobalEgressIP, which is made where there is a block, and removed when the cluster leaves
// if it was made here. It is nil while there is none.
func (r *Reconciler) cluster(ctx context.Context, wanted, leaving bool) (*v1alpha1.ClusterGlobalEgressIP, error) {
	o := &v1alpha1.ClusterGlobalEgressIP{}
	err := r.Get(ctx, types.NamespacedName{Name: v1alpha1.ClusterEgressName}, o)
	switch {
	case apierrors.IsNotFound(err) && !wanted:
		return nil, nil
	case apierrors.IsNotFound(err):
		o = &v1alpha1.ClusterGlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterEgressName,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}}}
		if err := r.Create(ctx, o); apierrors.IsAlreadyExists(err) { // the cache does not know yet
			err = r.Live.Get(ctx, client.ObjectKeyFromObject(o), o)
			if err != nil {
				return nil, fmt.Errorf("get ClusterGlobalEgressIP %s: %w", o.Name, err)
			}
		} else if err != nil {
			return nil, fmt.Errorf("create ClusterGlobalEgressIP %s: %w", o.Name, err)
		}
	case err != nil:
		return nil, fmt.Errorf("get ClusterGlobalEgressIP %s: %w", v1alpha1.ClusterEgressName, err)
	case leaving && v1alpha1.OwnsClusterEgress(o):
		if err := r.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("delete ClusterGlobalEgressIP %s: %w", o.Name, err)
		}
		return nil, nil
	}
	return o, nil
}

// gather reads what decides, pods only where somebody asks for addresses.
func (r *Reconciler) gather(ctx context.Context, in *input) error {
	in.now = r.Now()
	var objects v1alpha1.GlobalEgressIPList
	if err := r.List(ctx, &objects); err != nil {
		return fmt.Errorf("list GlobalEgressIPs: %w", err)
	}
	in.objects = objects.Items
	var gateways v1alpha1.GatewayList
	if err := r.List(ctx, &gateways, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Gateways: %w", err)
	}
	in.gateways = gateways.Items
	if !in.block.IsValid() {
		r.block, r.allocations = netip.Prefix{}, nil
		return nil
	}
	if r.block != in.block {
		if err := r.restore(ctx, in.block); err != nil {
			return err
		}
	}
	in.allocations = r.allocations
	var err error
	in.pods, err = r.pods.of(ctx, in.objects)
	return err
}

// restore reads what the objects say of a block's addresses.
func (r *Reconciler) restore(ctx context.Context, block netip.Prefix) error {
	var cluster v1alpha1.ClusterGlobalEgressIP
	err := r.Live.Get(ctx, types.NamespacedName{Name: v1alpha1.ClusterEgressName}, &cluster)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get ClusterGlobalEgressIP %s: %w", v1alpha1.ClusterEgressName, err)
	}
	var objects v1alpha1.GlobalEgressIPList
	if err := r.Live.List(ctx, &objects); err != nil {
		return fmt.Errorf("list GlobalEgressIPs: %w", err)
	}
	var allocations []v1alpha1.EgressAllocation
	if cluster.Status.CIDR == block.String() {
		allocations = cluster.Status.Allocations
	}
	r.block, r.allocations = block, recovered(allocations, block, objects.Items)
	return nil
}

// write brings the status of GlobalEgressIPs up to date.
func (r *Reconciler) write(ctx context.Context, have, want []v1alpha1.GlobalEgressIP) error {
	before := make(map[types.UID]*v1alpha1.GlobalEgressIP, len(have))
	for i := range have {
		before[have[i].UID] = &have[i]
	}
	for i := range want {
		was := before[want[i].UID]
		if equality.Semantic.DeepEqual(was.Status, want[i].Status) {
			continue
		}
		if err := r.Status().Patch(ctx, &want[i], client.MergeFrom(was)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("write the status of GlobalEgressIP %s: %w", ownerOf(want[i]), err)
		}
	}
	return nil
}
