// SPDX-License-Identifier: Apache-2.0

package hijack

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/raced"
	"github.com/sealane-io/sealane/memberagent/cluster/discovery"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// every is how often Spiderpool's settings are looked at. They are not watched: they change once in a cluster's life.
const every = time.Minute

// maxNamed is how many networks a message names.
const maxNamed = 16

// Reconciler keeps the networks of the other clusters among Spiderpool's settings.
type Reconciler struct {
	client.Client
	// Live reads and writes the settings.
	Live client.Client
	// Find returns the cluster's networks.
	Find func(context.Context) (discovery.Found, time.Duration, error)
	// State takes over whether they are there.
	State *State
}

// State is the latest condition UnderlayRouted.
type State struct {
	mu        sync.Mutex
	known     bool
	condition *metav1.Condition
	changed   chan event.GenericEvent
}

// NewState knows nothing.
func NewState() *State { return &State{changed: make(chan event.GenericEvent, 1)} }

// Changed returns the channel that receives an event after a change; several changes may share one.
func (s *State) Changed() <-chan event.GenericEvent { return s.changed }

// Condition UnderlayRouted; nil where the cluster is none of which it can be said. It is false while that is not known.
func (s *State) Condition() (*metav1.Condition, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.condition == nil {
		return nil, s.known
	}
	c := *s.condition
	return &c, s.known
}

func (s *State) set(p *v1alpha1.Peering, c *metav1.Condition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := s.known && (s.condition == nil) == (c == nil) && (c == nil || *c == *s.condition)
	s.known, s.condition = true, c
	if same {
		return
	}
	select {
	case s.changed <- event.GenericEvent{Object: p}:
	default:
	}
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	o.MaxConcurrentReconciles = 1
	return ctrl.NewControllerManagedBy(m).Named("hijack").
		Watches(&v1alpha1.Peering{}, &handler.EnqueueRequestForObject{},
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(o).Complete(raced.Reconciler(r))
}

// Reconcile writes the settings if they differ.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	peering, err := index.Peering(ctx, r)
	if err != nil || peering == nil {
		return ctrl.Result{}, err // nothing is known, so nothing changes
	}
	have, err := Coordinator(ctx, r.Live)
	if err != nil {
		return ctrl.Result{}, err
	}
	networks := Networks(peering)
	if have == nil {
		found, _, err := r.Find(ctx)
		if err != nil {
			return ctrl.Result{}, err
		}
		r.State.set(peering, byHand(found.Underlay, networks))
		return ctrl.Result{RequeueAfter: every}, nil
	}
	refused, err := r.write(ctx, have, networks)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.State.set(peering, published(refused, networks))
	return ctrl.Result{RequeueAfter: every}, nil
}

// write returns an error of which more attempts can be hoped for, and apart from it one by which the write is refused.
func (r *Reconciler) write(ctx context.Context, have *unstructured.Unstructured,
	networks []string) (refused, err error) {
	want, err := Want(have, networks)
	if err != nil {
		return err, nil
	}
	if want == nil {
		return nil, nil
	}
	err = Write(ctx, r.Live, have, want)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err) {
		return err, nil
	}
	return nil, client.IgnoreNotFound(err)
}

// byHand is the condition where Sealane knows of nobody to tell.
func byHand(underlay bool, networks []string) *metav1.Condition {
	if !underlay || len(networks) == 0 {
		return nil
	}
	return &metav1.Condition{Type: v1alpha1.PeeringUnderlayRouted, Status: metav1.ConditionUnknown,
		Reason: v1alpha1.ReasonNotPublished, Message: "pods share networks with nodes, and there is no " + Name +
			" here that may be read: unless they route everything by their nodes anyhow, the CNI plugin has to " +
			"have them route " + clip.List(networks, maxNamed) + " by these"}
}

// published is the condition where Spiderpool is told.
func published(refused error, networks []string) *metav1.Condition {
	if refused != nil {
		return &metav1.Condition{Type: v1alpha1.PeeringUnderlayRouted, Status: metav1.ConditionFalse,
			Reason: v1alpha1.ReasonPublishRefused, Message: "spec.hijackCIDR of " + Name + " cannot be changed (" +
				clip.Text(refused.Error(), 256) + "), and should have " + clip.List(networks, maxNamed)}
	}
	return &metav1.Condition{Type: v1alpha1.PeeringUnderlayRouted, Status: metav1.ConditionTrue, Reason: "Published",
		Message: "spec.hijackCIDR of " + Name + " has the networks of the other clusters; pods route by those that it had " +
			"when they were made"}
}
