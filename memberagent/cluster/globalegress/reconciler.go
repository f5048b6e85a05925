// SPDX-License-Identifier: Apache-2.0

package globalegress

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
	"github.com/sealane-io/sealane/internal/netfacts"
	"github.com/sealane-io/sealane/internal/raced"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
	"github.com/sealane-io/sealane/memberagent/cluster/pods"
)

// Reconciler keeps the ClusterGlobalEgressIP, and of all GlobalEgressIPs the allocation and the status. They share one
// pool, so they are decided together.
type Reconciler struct {
	client.Client
	// Live reads past the caches: what the leader before wrote last may not be in them.
	Live client.Reader
	// Now is the clock.
	Now func() time.Time

	// block is that of allocations, which are what was written last.
	block       netip.Prefix
	allocations []v1alpha1.EgressAllocation
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	o.MaxConcurrentReconciles = 1
	return ctrl.NewControllerManagedBy(m).Named("globalegressip").
		Watches(&v1alpha1.GlobalEgressIP{}, pods.Soon()).
		Watches(&v1alpha1.ClusterGlobalEgressIP{}, pods.Soon()).
		Watches(&v1alpha1.GlobalAllocation{}, pods.Soon(), builder.WithPredicates(predicate.NewPredicateFuncs(ofEgress))).
		Watches(&v1alpha1.Gateway{}, pods.Soon(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Peering{}, pods.Soon(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Pod{}, pods.Soon(), builder.WithPredicates(matters())).
		WithOptions(o).Complete(raced.Reconciler(r))
}

// Reconcile decides anew, and writes what has changed: first who has which addresses, then which pods use them, by
// which gateways translate, and then what their owners are told.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	peering, err := index.Peering(ctx, r)
	if err != nil || peering == nil {
		return ctrl.Result{}, err // nothing is known, so nothing changes
	}
	var in input
	leaving := peering.Spec.Phase == v1alpha1.MemberLeaving
	if block, err := netfacts.ParseGlobal(peering.Spec.GlobalCIDR); err == nil && !leaving {
		in.block = block
		if in.ipv6, err = globalnet.ParseIPv6(peering.Spec.GlobalIPv6CIDR, block); err != nil {
			in.ipv6 = netip.Prefix{}
		}
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
	if err := r.allocate(ctx, d.objects); err != nil {
		return ctrl.Result{}, err
	}
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
	in.pods, err = podsFor(ctx, r, in.objects)
	return err
}

func ofEgress(o client.Object) bool {
	a, ok := o.(*v1alpha1.GlobalAllocation)
	return ok && a.Spec.Owner.Kind == v1alpha1.GlobalEgress
}

// restore reads what is written of a block's addresses where nobody but the agent writes.
func (r *Reconciler) restore(ctx context.Context, block netip.Prefix) error {
	var cluster v1alpha1.ClusterGlobalEgressIP
	err := r.Live.Get(ctx, types.NamespacedName{Name: v1alpha1.ClusterEgressName}, &cluster)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get ClusterGlobalEgressIP %s: %w", v1alpha1.ClusterEgressName, err)
	}
	var ledger v1alpha1.GlobalAllocationList
	if err := r.Live.List(ctx, &ledger); err != nil {
		return fmt.Errorf("list GlobalAllocations: %w", err)
	}
	var allocations []v1alpha1.EgressAllocation
	if cluster.Status.CIDR == block.String() {
		allocations = cluster.Status.Allocations
	}
	r.block, r.allocations = block, recovered(allocations, ledger.Items)
	return nil
}

// allocate brings the allocations of GlobalEgressIPs up to date: those that nobody has any more go first.
func (r *Reconciler) allocate(ctx context.Context, objects []v1alpha1.GlobalEgressIP) error {
	var list v1alpha1.GlobalAllocationList
	if err := r.List(ctx, &list); err != nil {
		return fmt.Errorf("list GlobalAllocations: %w", err)
	}
	want := make(map[string]*v1alpha1.GlobalAllocation, len(objects))
	for _, o := range objects {
		if a := allocationOf(o); a != nil {
			want[a.Name] = a
		}
	}
	have := make(map[string]*v1alpha1.GlobalAllocation, len(want))
	for i := range list.Items {
		a := &list.Items[i]
		switch {
		case !ofEgress(a):
		case want[a.Name] != nil:
			have[a.Name] = a
		default:
			if err := r.Delete(ctx, a); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("delete GlobalAllocation %s: %w", a.Name, err)
			}
		}
	}
	for _, o := range objects {
		if a := allocationOf(o); a != nil {
			if err := r.put(ctx, have[a.Name], a); err != nil {
				return fmt.Errorf("write GlobalAllocation %s: %w", a.Name, err)
			}
		}
	}
	return nil
}

// allocationOf returns what gateways translate by for an object, nil if it has no addresses.
func allocationOf(o v1alpha1.GlobalEgressIP) *v1alpha1.GlobalAllocation {
	if o.Status.Range == nil {
		return nil
	}
	a := v1alpha1.NewGlobalAllocation(v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalEgress, Namespace: o.Namespace,
		Name: o.Name})
	a.Spec.Egress = &v1alpha1.PodEgressAllocation{EgressRange: *o.Status.Range, Selected: o.Spec.Selects(),
		Pods: o.Status.Pods}
	return a
}

// put writes an allocation, of which the cache has what there is, or nil.
func (r *Reconciler) put(ctx context.Context, have, want *v1alpha1.GlobalAllocation) error {
	if have == nil {
		err := r.Create(ctx, want)
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		have = &v1alpha1.GlobalAllocation{} // the cache does not know yet
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(want), have); err != nil {
			return err
		}
	}
	if equality.Semantic.DeepEqual(have.Spec, want.Spec) {
		return nil
	}
	changed := have.DeepCopy()
	changed.Spec = want.Spec
	return r.Patch(ctx, changed, client.MergeFrom(have))
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
