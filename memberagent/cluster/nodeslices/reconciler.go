// SPDX-License-Identifier: Apache-2.0

// Package nodeslices keeps the NodeSlices: what node agents read of all nodes of their cluster.
package nodeslices

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/nodeslice"
	"github.com/sealane-io/sealane/internal/raced"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
	"github.com/sealane-io/sealane/memberagent/cluster/pods"
)

// Reconciler keeps the NodeSlices.
type Reconciler struct {
	client.Client
	// NodesCleaned says whether every node agent of a cluster that leaves has cleaned its node.
	NodesCleaned func(context.Context) (bool, error)
	Events       record.EventRecorder
	// told are the disputes that there were.
	told []nodeslice.Dispute
}

// EventAddressTaken is the reason of the event that a Node names an address of another one.
const EventAddressTaken = "AddressTaken"

// tell has an event for each dispute that is new.
func (r *Reconciler) tell(nodes []corev1.Node, disputes []nodeslice.Dispute) {
	for _, d := range disputes {
		if slices.Contains(r.told, d) {
			continue
		}
		if at := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == d.Node }); at >= 0 {
			r.Events.Eventf(&nodes[at], corev1.EventTypeWarning, EventAddressTaken, "the InternalIP %s is the address of node "+
				"%s, which had it first: other nodes do not send there for this one; if that node is gone, delete it",
				clip.Quote(d.Address), d.Owner)
		}
	}
	r.told = disputes
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	o.MaxConcurrentReconciles = 1
	return ctrl.NewControllerManagedBy(m).Named("nodeslice").
		Watches(&corev1.Node{}, pods.Soon(), builder.WithPredicates(matters())).
		Watches(&v1alpha1.NodeSlice{}, pods.Soon()).
		Watches(&v1alpha1.Peering{}, pods.Soon(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Pod{}, pods.Soon(), builder.WithPredicates(pods.Own())).
		WithOptions(o).Complete(raced.Reconciler(r))
}

// matters passes nodes that come and go, and those of which a slice would say something else.
func matters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, also := e.ObjectNew.(*corev1.Node)
		return !ok || !also || before.Spec.PodCIDR != after.Spec.PodCIDR ||
			!slices.Equal(before.Spec.PodCIDRs, after.Spec.PodCIDRs) ||
			!slices.Equal(before.Status.Addresses, after.Status.Addresses) ||
			before.Annotations[v1alpha1.AnnotationPublicIP] != after.Annotations[v1alpha1.AnnotationPublicIP]
	}}
}

// Reconcile writes the NodeSlices that differ. Those of a cluster that leaves go when its nodes need them no more, and
// without a Peering, as after that, they stay as they are.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	peering, err := index.Peering(ctx, r)
	if err != nil || peering == nil {
		return ctrl.Result{}, err
	}
	var have v1alpha1.NodeSliceList
	if err := r.List(ctx, &have, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("list NodeSlices: %w", err)
	}
	if peering.Spec.Phase == v1alpha1.MemberLeaving {
		cleaned, err := r.NodesCleaned(ctx)
		if err != nil || !cleaned {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, r.write(ctx, have.Items, nil)
	}
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("list Nodes: %w", err)
	}
	wanted, disputes := nodeslice.Divide(nodes.Items, have.Items)
	r.tell(nodes.Items, disputes)
	return ctrl.Result{}, r.write(ctx, have.Items, wanted)
}

// write brings the objects to what is wanted, by their names. One that cannot be written holds up no other.
func (r *Reconciler) write(ctx context.Context, have []v1alpha1.NodeSlice,
	wanted map[string]v1alpha1.NodeSliceSpec) error {
	var failed []error
	written := map[string]bool{}
	for i := range have {
		o := &have[i]
		spec, ok := wanted[o.Name]
		written[o.Name] = true
		switch {
		case !ok:
			failed = append(failed, client.IgnoreNotFound(r.Delete(ctx, o)))
		case !equality.Semantic.DeepEqual(o.Spec, spec):
			changed := o.DeepCopy()
			changed.Spec = spec
			failed = append(failed, r.Update(ctx, changed))
		}
	}
	for name, spec := range wanted {
		if written[name] {
			continue
		}
		failed = append(failed, r.Create(ctx, &v1alpha1.NodeSlice{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}}, Spec: spec}))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("write NodeSlices: %w", err)
	}
	return nil
}
