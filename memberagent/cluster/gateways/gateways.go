// SPDX-License-Identifier: Apache-2.0

// Package gateways decides which nodes are gateways and gives each a slot that it keeps for life.
package gateways

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// Phase of this cluster, as far as it concerns gateways.
type Phase int

const (
	// Unknown: there is no Peering. Gateways whose node is gone go, and nothing else changes.
	Unknown Phase = iota
	// Active: the gateways follow the nodes.
	Active
	// Cleaning: the nodes are being cleaned, and need their Gateways for it.
	Cleaning
	// Cleaned: no Gateway is left.
	Cleaned
)

// Decide returns the slot of every node that should be a gateway. Labelled nodes are; where none is
// labelled one is picked, and stays while it exists. That a node is not ready changes nothing: whether its
// tunnels work is for the probes to say.
func Decide(phase Phase, nodes []corev1.Node, have []v1alpha1.Gateway) map[string]int32 {
	exists := map[string]bool{}
	for i := range nodes {
		exists[nodes[i].Name] = nodes[i].DeletionTimestamp == nil
	}
	var want []string
	switch phase {
	case Cleaned:
	case Active:
		want = wanted(nodes, have)
	default:
		for i := range have {
			if exists[have[i].Name] {
				want = append(want, have[i].Name)
			}
		}
	}
	return slots(want, have)
}

func wanted(nodes []corev1.Node, have []v1alpha1.Gateway) []string {
	var labelled []string
	for i := range nodes {
		if nodes[i].Labels[v1alpha1.LabelGateway] == "true" && nodes[i].DeletionTimestamp == nil {
			labelled = append(labelled, nodes[i].Name)
		}
	}
	if len(labelled) > 0 {
		slices.Sort(labelled)
		return labelled
	}
	if name, ok := pick(nodes, have); ok {
		return []string{name}
	}
	return nil
}

// pick chooses one node: the present pick, else the best by readiness, by being free of the control plane,
// and by name.
func pick(nodes []corev1.Node, have []v1alpha1.Gateway) (string, bool) {
	var usable []*corev1.Node
	for i := range nodes {
		n := &nodes[i]
		if n.DeletionTimestamp == nil && (n.Labels[corev1.LabelOSStable] == "" ||
			n.Labels[corev1.LabelOSStable] == string(corev1.Linux)) {
			usable = append(usable, n)
		}
	}
	if len(usable) == 0 {
		return "", false
	}
	slot := map[string]int32{}
	for i := range have {
		slot[have[i].Name] = v1alpha1.MaxSlot + 1 - have[i].Spec.Slot
	}
	best := slices.MinFunc(usable, func(a, b *corev1.Node) int {
		return cmp.Or(-cmp.Compare(slot[a.Name], slot[b.Name]), cmp.Compare(demerits(a), demerits(b)),
			cmp.Compare(a.Name, b.Name))
	})
	return best.Name, true
}

func demerits(n *corev1.Node) int {
	out := 0
	if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}) {
		out += 4
	}
	if n.Spec.Unschedulable {
		out += 2
	}
	if _, ok := n.Labels["node-role.kubernetes.io/control-plane"]; ok {
		out++
	}
	return out
}

// slots keeps the slot of every gateway that stays, and gives the lowest free ones to the new, in the order
// of their names. Gateways beyond the last slot get none.
func slots(want []string, have []v1alpha1.Gateway) map[string]int32 {
	out, taken := map[string]int32{}, map[int32]bool{}
	for i := range have {
		if g := &have[i]; slices.Contains(want, g.Name) && !taken[g.Spec.Slot] {
			out[g.Name], taken[g.Spec.Slot] = g.Spec.Slot, true
		}
	}
	next := int32(0)
	for _, name := range want {
		if _, ok := out[name]; ok {
			continue
		}
		for taken[next] {
			next++
		}
		if next > v1alpha1.MaxSlot {
			break
		}
		out[name], taken[next] = next, true
	}
	return out
}

// Reconciler keeps the Gateway objects.
type Reconciler struct {
	client.Client
	// NodesCleaned says whether every node agent has cleaned its node.
	NodesCleaned func(context.Context) (bool, error)
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	pods := &metav1.PartialObjectMetadata{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return ctrl.NewControllerManagedBy(m).Named("gateway").
		Watches(&corev1.Node{}, one, builder.WithPredicates(matters())).
		Watches(&v1alpha1.Gateway{}, one, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Peering{}, one).
		Watches(pods, one).
		WithOptions(o).Complete(r)
}

// matters passes node events but heartbeats.
func matters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, b := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return a.Labels[v1alpha1.LabelGateway] != b.Labels[v1alpha1.LabelGateway] || demerits(a) != demerits(b) ||
			(a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil)
	}}
}

// Reconcile writes the Gateways that differ.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	nodes, have := &corev1.NodeList{}, &v1alpha1.GatewayList{}
	if err := r.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("list Nodes: %w", err)
	}
	if err := r.List(ctx, have); err != nil {
		return ctrl.Result{}, fmt.Errorf("list Gateways: %w", err)
	}
	phase, err := r.phase(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	slices.SortFunc(have.Items, func(a, b v1alpha1.Gateway) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return ctrl.Result{}, r.apply(ctx, Decide(phase, nodes.Items, have.Items), have.Items)
}

func (r *Reconciler) phase(ctx context.Context) (Phase, error) {
	peering, err := index.Peering(ctx, r)
	switch {
	case err != nil || peering == nil:
		return Unknown, err
	case peering.Spec.Phase != v1alpha1.MemberLeaving:
		return Active, nil
	}
	cleaned, err := r.NodesCleaned(ctx)
	if err != nil || !cleaned {
		return Cleaning, err
	}
	return Cleaned, nil
}

func (r *Reconciler) apply(ctx context.Context, want map[string]int32, have []v1alpha1.Gateway) error {
	for i := range have {
		g := &have[i]
		slot, ok := want[g.Name]
		delete(want, g.Name)
		switch {
		case !ok:
			log.FromContext(ctx).Info("the node is no gateway any more", "gateway", g.Name)
			if err := r.Delete(ctx, g); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("delete Gateway %s: %w", g.Name, err)
			}
		case slot != g.Spec.Slot:
			g.Spec.Slot = slot
			if err := r.Update(ctx, g); err != nil {
				return fmt.Errorf("update Gateway %s: %w", g.Name, err)
			}
		}
	}
	for name, slot := range want {
		log.FromContext(ctx).Info("the node is a gateway", "gateway", name, "slot", slot)
		g := &v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
		}}
		g.Spec.Slot = slot
		if err := r.Create(ctx, g); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create Gateway %s: %w", name, err)
		}
	}
	return nil
}
