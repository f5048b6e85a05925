// SPDX-License-Identifier: Apache-2.0

// Package nodenetworks keeps the NodeNetworks: which node the pods are on whose addresses are not of a node's
// spec.podCIDRs.
package nodenetworks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/raced"
	"github.com/sealane-io/sealane/internal/reach"
	"github.com/sealane-io/sealane/memberagent/cluster/discovery"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
	"github.com/sealane-io/sealane/memberagent/cluster/pods"
)

// Reconciler keeps the NodeNetworks. Each pass decides on all of them: where a pod is depends on what other nodes have.
type Reconciler struct {
	client.Client
	// Ranges returns what CNI plugins give to the pods of one node, by its name, and when to ask again.
	Ranges func(context.Context) (map[string][]netip.Prefix, time.Duration, error)
	// State takes over whether all pods are routed.
	State *State
	// Now is the clock.
	Now func() time.Time
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	o.MaxConcurrentReconciles = 1
	return ctrl.NewControllerManagedBy(m).Named("nodenetwork").
		Watches(&corev1.Node{}, pods.Soon(), builder.WithPredicates(addresses())).
		Watches(&corev1.Pod{}, pods.Soon(), builder.WithPredicates(pods.Moved())).
		Watches(&v1alpha1.NodeNetwork{}, pods.Soon()).
		Watches(&v1alpha1.Peering{}, pods.Soon(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(o).Complete(raced.Reconciler(r))
}

// addresses passes nodes that come and go, and those whose addresses, or whose pods' ranges, change.
func addresses() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, also := e.ObjectNew.(*corev1.Node)
		return !ok || !also || before.UID != after.UID || before.Spec.PodCIDR != after.Spec.PodCIDR ||
			!slices.Equal(before.Spec.PodCIDRs, after.Spec.PodCIDRs) ||
			!slices.Equal(before.Status.Addresses, after.Status.Addresses)
	}}
}

// Reconcile writes the NodeNetworks that differ.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	peering, err := index.Peering(ctx, r)
	if err != nil || peering == nil {
		return ctrl.Result{}, err // nothing is known, so nothing changes
	}
	var have v1alpha1.NodeNetworkList
	if err := r.List(ctx, &have, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("list NodeNetworks: %w", err)
	}
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("list Nodes: %w", err)
	}
	if peering.Spec.Phase == v1alpha1.MemberLeaving {
		return ctrl.Result{}, r.write(ctx, have.Items, nodes.Items, nil)
	}
	in := input{nodes: nodes.Items, networks: discovery.Prefixes(peering.Spec.Networks.PodCIDRs)}
	var again time.Duration
	if in.ranges, again, err = r.Ranges(ctx); err != nil {
		return ctrl.Result{}, err
	}
	var list corev1.PodList
	if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("list Pods: %w", err)
	}
	in.pods = list.Items
	decided := decide(in)
	if err := r.write(ctx, have.Items, nodes.Items, decided); err != nil {
		return ctrl.Result{}, err
	}
	later := r.State.set(peering, notRouted(in, decided), r.Now())
	return ctrl.Result{RequeueAfter: reach.Sooner(again, later)}, nil
}

// write brings the objects to what is wanted, by the names of nodes. One that cannot be written holds up no other.
func (r *Reconciler) write(ctx context.Context, have []v1alpha1.NodeNetwork, nodes []corev1.Node,
	wanted map[string]v1alpha1.NodeNetworkSpec) error {
	var failed []error
	written := map[string]bool{}
	for i := range have {
		o := &have[i]
		spec, ok := wanted[o.Name]
		written[o.Name] = true
		switch owner := ownerOf(nodes, o.Name); {
		case !ok:
			failed = append(failed, client.IgnoreNotFound(r.Delete(ctx, o)))
		case !equality.Semantic.DeepEqual(o.Spec, spec) || !equality.Semantic.DeepEqual(o.OwnerReferences, owner):
			changed := o.DeepCopy()
			changed.Spec, changed.OwnerReferences = spec, owner
			failed = append(failed, r.Update(ctx, changed))
		}
	}
	for i := range nodes {
		name := nodes[i].Name
		spec, ok := wanted[name]
		if !ok || written[name] {
			continue
		}
		failed = append(failed, r.Create(ctx, &v1alpha1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}, OwnerReferences: ownerOf(nodes, name)},
			Spec: spec}))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("write NodeNetworks: %w", err)
	}
	return nil
}

// ownerOf refers to the node of a name: what is said of it goes with it.
func ownerOf(nodes []corev1.Node, name string) []metav1.OwnerReference {
	for i := range nodes {
		if n := &nodes[i]; n.Name == name {
			return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: n.UID}}
		}
	}
	return nil
}
