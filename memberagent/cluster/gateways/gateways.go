// SPDX-License-Identifier: Apache-2.0

// Package gateways decides which nodes are gateways and gives each a slot that it keeps for life.
package gateways

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

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
	"github.com/sealane-io/sealane/internal/raced"
	"github.com/sealane-io/sealane/internal/reach"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
	"github.com/sealane-io/sealane/memberagent/cluster/pods"
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

// Input is all that decides which nodes are gateways.
type Input struct {
	Phase Phase
	Nodes []corev1.Node
	// Have are the Gateways, the oldest first.
	Have []v1alpha1.Gateway
	// Agents by node.
	Agents map[string]NodeAgent
	// Remotes is how many other clusters have gateways.
	Remotes int
	Now     time.Time
}

// Decide returns the slot of every node that should be a gateway, and after what time to decide anew although nothing
// has changed; 0 is never. Labelled nodes that run agents are gateways, and that one is not ready or cordoned changes
// nothing: whether its tunnels work is for the probes to say. Where none is labelled one is picked.
func (h *History) Decide(in Input) (slot map[string]int32, again time.Duration) {
	exists := map[string]bool{}
	for i := range in.Nodes {
		exists[in.Nodes[i].Name] = in.Nodes[i].DeletionTimestamp == nil
	}
	var want []string
	switch in.Phase {
	case Cleaned:
	case Active:
		if want = labelled(in.Nodes); len(want) == 0 {
			want, again = h.pick(in)
		} else if going := handOver(want, in); len(going) > 0 {
			want, again = append(want, going...), movePace
		}
	default:
		for i := range in.Have {
			if exists[in.Have[i].Name] {
				want = append(want, in.Have[i].Name)
			}
		}
	}
	return slots(want, in.Have), again
}

func labelled(nodes []corev1.Node) []string {
	var out []string
	for i := range nodes {
		if n := &nodes[i]; wants(n) && usable(n) {
			out = append(out, n.Name)
		}
	}
	slices.Sort(out)
	return out
}

// gatewayLabel is the value of v1alpha1.LabelGateway on a node that is to be a gateway.
const gatewayLabel = "true"

// wants says that a node is labelled to be a gateway.
func wants(n *corev1.Node) bool { return n.Labels[v1alpha1.LabelGateway] == gatewayLabel }

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
	// NodesCleaned says whether every node agent has cleaned its node, and NodeAgents what is known of them, by node.
	NodesCleaned func(context.Context) (bool, error)
	NodeAgents   func(context.Context) (map[string]NodeAgent, error)
	// Now is the clock.
	Now func() time.Time

	history History // one worker reconciles
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	o.MaxConcurrentReconciles = 1
	return ctrl.NewControllerManagedBy(m).Named("gateway").
		Watches(&corev1.Node{}, one, builder.WithPredicates(matters())).
		Watches(&v1alpha1.Gateway{}, one).
		Watches(&v1alpha1.Peering{}, one).
		Watches(&corev1.Pod{}, one, builder.WithPredicates(pods.Own())).
		WithOptions(o).Complete(raced.Reconciler(r))
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
	peering, err := index.Peering(ctx, r)
	if err != nil {
		return ctrl.Result{}, err
	}
	phase, err := r.phase(ctx, peering)
	if err != nil {
		return ctrl.Result{}, err
	}
	agents, err := r.NodeAgents(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	slices.SortFunc(have.Items, func(a, b v1alpha1.Gateway) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	in := Input{Phase: phase, Nodes: nodes.Items, Have: have.Items, Agents: agents, Remotes: remotes(peering),
		Now: r.Now()}
	slot, again := r.history.Decide(in)
	turn, later := r.history.turn(in)
	return ctrl.Result{RequeueAfter: reach.Sooner(again, later)}, r.apply(ctx, slot, turn, have.Items)
}

// remotes counts the clusters that have gateways.
func remotes(peering *v1alpha1.Peering) (n int) {
	if peering == nil {
		return 0
	}
	for i := range peering.Spec.RemoteClusters {
		if len(peering.Spec.RemoteClusters[i].Endpoints) > 0 {
			n++
		}
	}
	return n
}

func (r *Reconciler) phase(ctx context.Context, peering *v1alpha1.Peering) (Phase, error) {
	switch {
	case peering == nil:
		return Unknown, nil
	case peering.Spec.Phase != v1alpha1.MemberLeaving:
		return Active, nil
	}
	cleaned, err := r.NodesCleaned(ctx)
	if err != nil || !cleaned {
		return Cleaning, err
	}
	return Cleaned, nil
}

// apply makes the Gateways as wanted, and gives one of them the turn.
func (r *Reconciler) apply(ctx context.Context, want map[string]int32, turn string, have []v1alpha1.Gateway) error {
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
		case slot != g.Spec.Slot || g.Spec.Turn != (g.Name == turn):
			g.Spec.Slot, g.Spec.Turn = slot, g.Name == turn
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
