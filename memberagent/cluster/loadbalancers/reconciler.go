// SPDX-License-Identifier: Apache-2.0

package loadbalancers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/raced"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// Reasons of Events on a Gateway.
const (
	EventNotBalanced = "LoadBalancerNotUsed"
	EventBalanced    = "LoadBalancerUsed"
)

// Reconciler keeps the EndpointSlices of load balancers' Services.
type Reconciler struct {
	client.Client
	Events record.EventRecorder

	told map[string]string // problems by gateway, as said last; one worker reconciles
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	own := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetNamespace() == v1alpha1.Namespace })
	o.MaxConcurrentReconciles = 1
	return ctrl.NewControllerManagedBy(m).Named("loadbalancer").
		Watches(&corev1.Node{}, one, builder.WithPredicates(matters())).
		Watches(&v1alpha1.Gateway{}, one, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Peering{}, one, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Service{}, one, builder.WithPredicates(own)).
		Watches(&discoveryv1.EndpointSlice{}, one, builder.WithPredicates(predicate.NewPredicateFuncs(
			func(o client.Object) bool { return owns(o) }))).
		WithOptions(o).Complete(raced.Reconciler(r))
}

// matters passes nodes that come and go, and those whose annotation or addresses change.
func matters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, also := e.ObjectNew.(*corev1.Node)
		return !ok || !also || sources(before) != sources(after) ||
			!slices.Equal(before.Status.Addresses, after.Status.Addresses)
	}}
}

func sources(n *corev1.Node) string { return n.Annotations[v1alpha1.AnnotationPublicIP] }

// Reconcile writes the EndpointSlices that differ.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	in, err := r.read(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	decided := decide(in)
	r.tell(in.gateways, decided.problems)
	return ctrl.Result{}, r.write(ctx, decided.slices)
}

func (r *Reconciler) read(ctx context.Context) (input, error) {
	in := input{nodes: map[string]*corev1.Node{}, services: map[string]*corev1.Service{}}
	peering, err := index.Peering(ctx, r)
	if err != nil {
		return in, err
	}
	if peering != nil && peering.Spec.Phase != v1alpha1.MemberLeaving {
		in.port, in.dialled = peering.Spec.Cable.Port, dialled(&peering.Spec)
	}
	var gateways v1alpha1.GatewayList
	if err := r.List(ctx, &gateways, client.UnsafeDisableDeepCopy); err != nil {
		return in, fmt.Errorf("list Gateways: %w", err)
	}
	in.gateways = gateways.Items
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return in, fmt.Errorf("list Nodes: %w", err)
	}
	for i := range nodes.Items {
		in.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	var services corev1.ServiceList
	if err := r.List(ctx, &services, client.InNamespace(v1alpha1.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return in, fmt.Errorf("list Services: %w", err)
	}
	for i := range services.Items {
		in.services[services.Items[i].Name] = &services.Items[i]
	}
	return in, nil
}

// tell says once what keeps a load balancer from leading to a gateway, and when nothing does any more.
func (r *Reconciler) tell(gateways []v1alpha1.Gateway, problems map[string]string) {
	for i := range gateways {
		g := &gateways[i]
		switch was, is := r.told[g.Name], problems[g.Name]; {
		case was == is:
		case is != "":
			r.Events.Event(g, corev1.EventTypeWarning, EventNotBalanced, is)
		default:
			r.Events.Event(g, corev1.EventTypeNormal, EventBalanced,
				"the load balancers that the node names, if any, lead to the gateway")
		}
	}
	r.told = maps.Clone(problems)
}

// write brings the EndpointSlices to what is wanted. One that cannot be written holds up no other.
func (r *Reconciler) write(ctx context.Context, wanted map[string]*discoveryv1.EndpointSlice) error {
	var have discoveryv1.EndpointSliceList
	err := r.List(ctx, &have, client.InNamespace(v1alpha1.Namespace),
		client.MatchingLabels{discoveryv1.LabelManagedBy: v1alpha1.ManagedBy})
	if err != nil {
		return fmt.Errorf("list EndpointSlices: %w", err)
	}
	var failed []error
	for i := range have.Items {
		s := &have.Items[i]
		if !owns(s) {
			continue
		}
		want := wanted[s.Name]
		delete(wanted, s.Name)
		switch {
		case want == nil || want.AddressType != s.AddressType:
			failed = append(failed, client.IgnoreNotFound(r.Delete(ctx, s)))
		case !equality.Semantic.DeepEqual(want.Ports, s.Ports) || !equality.Semantic.DeepEqual(want.Endpoints, s.Endpoints) ||
			s.Labels[discoveryv1.LabelServiceName] != want.Labels[discoveryv1.LabelServiceName]:
			s.Labels, s.Ports, s.Endpoints = want.Labels, want.Ports, want.Endpoints
			failed = append(failed, r.Update(ctx, s))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		failed = append(failed, r.Create(ctx, wanted[name]))
	}
	return errors.Join(failed...)
}
