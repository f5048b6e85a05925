// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/raced"
	"github.com/sealane-io/sealane/internal/reach"
)

// Hearing is what is remembered of one Lease. Times are of this process's clock: a node's may be wrong.
type Hearing struct {
	// renewed is the renewTime of the Lease, and at when it was first seen.
	renewed, at time.Time
	// asked is when the API server first confirmed that there is no newer one; zero if it has not.
	asked time.Time
	// deaf says that the API server did not answer when it was last asked.
	deaf bool
}

// Step is what to do next about a Lease.
type Step int

const (
	// Wait for the next renewal.
	Wait Step = iota
	// Ask the API server whether the Lease has been renewed.
	Ask
	// Silent: the agent is not heard of any more.
	Silent
)

// Next returns what to do, and if that is Wait or Ask again, after what time to look again.
func (h *Hearing) Next(now time.Time) (Step, time.Duration) {
	if h.deaf {
		return Ask, time.Second
	}
	if left := h.at.Add(reach.SilentAfter).Sub(now); left > 0 {
		return Wait, left
	}
	if h.asked.IsZero() {
		return Ask, reach.SilentConfirm
	}
	if left := h.asked.Add(reach.SilentConfirm).Sub(now); left > 0 {
		return Wait, left
	}
	return Silent, 0
}

// Renewed takes in the Lease's renewTime.
func (h *Hearing) Renewed(renewed, now time.Time) {
	if !h.renewed.Equal(renewed) {
		*h = Hearing{renewed: renewed, at: now}
	}
}

// Answered takes in what the API server itself says of the Lease. An API server that does not answer has kept the
// agent from renewing it as well: the wait begins anew with its next answer.
func (h *Hearing) Answered(renewed time.Time, err error, now time.Time) {
	switch {
	case err != nil:
		h.deaf = true
	case h.deaf || !h.renewed.Equal(renewed):
		*h = Hearing{renewed: renewed, at: now}
	case h.asked.IsZero():
		h.asked = now
	}
}

// Reasons of Events on a Gateway.
const (
	EventSilent = "NodeAgentSilent"
	EventHeard  = "NodeAgentHeard"
)

// Silence says in the status of a Gateway since when its node agent is silent.
type Silence struct {
	client.Client
	// Live reads what is not cached.
	Live   client.Reader
	Events record.EventRecorder
	// Now is the clock.
	Now func() time.Time

	heard map[string]*Hearing // one worker reconciles
}

// SetupWithManager registers the controller.
func (r *Silence) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	r.heard, o.MaxConcurrentReconciles = map[string]*Hearing{}, 1
	return ctrl.NewControllerManagedBy(m).Named("silence").
		For(&v1alpha1.Gateway{}).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(
			func(_ context.Context, o client.Object) []reconcile.Request {
				gateway, ok := strings.CutPrefix(o.GetName(), v1alpha1.GatewayLeasePrefix)
				if !ok {
					return nil
				}
				return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: gateway}}}
			})).
		WithOptions(o).Complete(raced.Reconciler(r))
}

// Reconcile looks at the Lease of one Gateway. The mark names the renewal after which there was none, so that any
// other one, even while nobody looked, takes it away.
func (r *Silence) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	gateway := &v1alpha1.Gateway{}
	if err := r.Get(ctx, req.NamespacedName, gateway); err != nil {
		delete(r.heard, req.Name)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	renewed, ok, err := renewal(ctx, r, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !ok { // an agent of an earlier version has none
		delete(r.heard, req.Name)
		return ctrl.Result{}, r.mark(ctx, gateway, nil)
	}
	if since := gateway.Status.SilentSince; since != nil && since.Time.Equal(renewed.Truncate(time.Second)) {
		return ctrl.Result{}, nil
	}
	if err := r.mark(ctx, gateway, nil); err != nil {
		return ctrl.Result{}, err
	}
	if r.heard[req.Name] == nil {
		r.heard[req.Name] = &Hearing{}
	}
	h := r.heard[req.Name]
	h.Renewed(renewed, r.Now())
	step, again := h.Next(r.Now())
	switch step {
	case Silent:
		// Whatever follows is told by the mark.
		delete(r.heard, req.Name)
		since := metav1.NewTime(renewed.Truncate(time.Second))
		return ctrl.Result{}, r.mark(ctx, gateway, &since)
	case Ask:
		renewed, _, err := renewal(ctx, r.Live, req.Name)
		if err != nil {
			log.FromContext(ctx).V(1).Info("not known whether the node agent is silent", "gateway", req.Name, "why",
				err.Error())
		}
		h.Answered(renewed, err, r.Now())
		_, again = h.Next(r.Now())
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// renewal returns the renewTime of a gateway's Lease; false if there is no such Lease.
func renewal(ctx context.Context, reader client.Reader, gateway string) (time.Time, bool, error) {
	lease := &coordinationv1.Lease{}
	key := types.NamespacedName{Namespace: v1alpha1.Namespace, Name: v1alpha1.GatewayLeasePrefix + gateway}
	if err := reader.Get(ctx, key, lease); apierrors.IsNotFound(err) {
		return time.Time{}, false, nil
	} else if err != nil {
		return time.Time{}, false, fmt.Errorf("read Lease %s: %w", key.Name, err)
	}
	if lease.Spec.RenewTime == nil {
		return time.Time{}, true, nil
	}
	return lease.Spec.RenewTime.Time, true, nil
}

// mark writes since when an agent is silent, nil for one that is not, if the Gateway says something else.
func (r *Silence) mark(ctx context.Context, g *v1alpha1.Gateway, since *metav1.Time) error {
	if g.Status.SilentSince.Equal(since) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": g.UID}, "status": map[string]any{"silentSince": since},
	})
	if err != nil {
		return fmt.Errorf("encode the status of Gateway %s: %w", g.Name, err)
	}
	err = r.Status().Patch(ctx, g.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the status of Gateway %s: %w", g.Name, err)
	}
	if since == nil {
		log.FromContext(ctx).Info("the node agent is heard of again", "gateway", g.Name)
		r.Events.Event(g, corev1.EventTypeNormal, EventHeard, "the gateway's node agent is heard of again")
		return nil
	}
	r.Events.Eventf(g, corev1.EventTypeWarning, EventSilent, "nothing is heard of the gateway's node agent since %s: "+
		"what its Gateway reports is unknown",
		since.UTC().Format(time.RFC3339))
	log.FromContext(ctx).Info("the node agent is silent: what its gateway reports is unknown", "gateway", g.Name,
		"since", since.UTC().Format(time.RFC3339))
	return nil
}
