// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/transitions"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// Wiring says which objects are involved.
type Wiring struct {
	// ConfigMap with the Corefile, where a person named it; it is found otherwise.
	ConfigMap types.NamespacedName
	// Service of Sealane's DNS.
	Service types.NamespacedName
	// ClusterDomain of the cluster's own names as the kubelet has it, "" where that is unknown.
	ClusterDomain string
	// Nameserver that the kubelet names to pods, not valid where that is unknown.
	Nameserver netip.Addr
}

// fieldManager of what is created.
const fieldManager = "sealane-cluster-agent"

// Reconciler keeps the cluster's DNS forwarding Sealane's domains.
type Reconciler struct {
	// Client reads caches, Live the API server.
	client.Client
	Live   client.Client
	Events record.EventRecorder
	Wiring Wiring
	Now    func() time.Time

	state   State
	putBack *putBack
	watches *watches
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	services := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return client.ObjectKeyFromObject(o) == r.Wiring.Service ||
			o.GetNamespace() == metav1.NamespaceSystem && o.GetLabels()[labelApp] == dnsLabel
	})
	r.putBack = newPutBack()
	c, err := ctrl.NewControllerManagedBy(m).Named("clusterdns").
		Watches(&corev1.Service{}, one, builder.WithPredicates(services)).
		Watches(&v1alpha1.Peering{}, one, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(o).Build(r)
	if err != nil {
		return fmt.Errorf("build the controller: %w", err)
	}
	r.watches = newWatches(m, c, one)
	return nil
}

// State of the cluster's DNS, for whoever reports it.
func (r *Reconciler) State() *State { return &r.state }

const (
	// cacheLag is the delay after a write that lost a race.
	cacheLag = 20 * time.Millisecond
	// lookAgain is how often the cluster's DNS is looked for: Deployments are not watched.
	lookAgain = time.Minute
)

// Reconcile changes what configures the cluster's DNS if it should be another.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	peering, err := index.Peering(ctx, r)
	if err != nil || peering == nil {
		return ctrl.Result{}, err
	}
	found, err := r.Wiring.Find(ctx, reader{Reader: r.Live, cached: r})
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.watches.add(found.seen); err != nil {
		return ctrl.Result{}, err
	}
	to, err := r.Wiring.Address(ctx, r)
	if err != nil {
		return ctrl.Result{}, err
	}
	plan := r.Wiring.Plan(found, peering, to)
	for i := range plan.Changes {
		refused, err := r.change(ctx, &plan, &plan.Changes[i])
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
			return ctrl.Result{RequeueAfter: cacheLag}, nil
		}
		if err != nil {
			r.state.set(peering, no(ReasonPending, "%s is about to be changed", plan.Changes[i].What))
			return ctrl.Result{}, err
		}
		if refused != nil {
			if plan.Condition = *refused; peering.Spec.Phase == v1alpha1.MemberLeaving {
				// It is not removed until it is.
				plan.Condition.Reason = ReasonPending
			}
		}
	}
	r.state.set(peering, plan.Condition)
	return ctrl.Result{RequeueAfter: lookAgain}, nil
}

// Reasons of Events on what configures the cluster's DNS.
const (
	EventForwarding = "ForwardingClusterSet"
	EventRepaired   = "ForwardingRepaired"
	EventRemoved    = "ForwardingRemoved"
)

// say tells people what was done to an object that is theirs.
func (r *Reconciler) say(o client.Object, reason, message string) {
	transitions.Say(r.Events, o, corev1.EventTypeNormal, reason, message)
}

// change one object, or say why not.
func (r *Reconciler) change(ctx context.Context, p *Plan, c *Change) (*metav1.Condition, error) {
	removal := p.leaving || c.Off
	text := p.forward.byHand("")
	undone := r.putBack.undone(c.Have, text)
	if !removal {
		if since := r.putBack.found(c.Have, text, r.Now()); !since.IsZero() {
			refused := no(ReasonPutBack, "%s was put back %d times since %s by %s; Sealane leaves it alone. Where it is "+
				"kept, add this %s", c.What, maxPutBack, since.UTC().Format(time.RFC3339), keeper(c.Have, fieldManager),
				c.driver.byHand(c.Have, p.forward))
			return &refused, nil
		}
	}
	log.FromContext(ctx).Info("changing the cluster's DNS", "what", c.What, "removal", removal)
	written, err := r.write(ctx, c)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		refused := no(ReasonNotAllowed, "%s could not be changed: %v; add this by hand %s", c.What, err,
			c.driver.byHand(c.Have, p.forward))
		return &refused, nil
	}
	if err != nil {
		return nil, fmt.Errorf("change %s: %w", c.What, err)
	}
	switch {
	case removal:
		r.say(written, EventRemoved, "what forwarded the clusterset's names is removed")
		return nil, nil
	case undone:
		r.say(written, EventRepaired, fmt.Sprintf("somebody had undone it: the clusterset's names are forwarded to %s again",
			p.forward.To))
	default:
		r.say(written, EventForwarding, fmt.Sprintf("the clusterset's names are forwarded to %s", p.forward.To))
	}
	r.putBack.note(written, text)
	return nil, nil
}

// write an object as it should be. What there was must still be as it was read.
func (r *Reconciler) write(ctx context.Context, c *Change) (client.Object, error) {
	switch {
	case c.Want == nil:
		uid, version := c.Have.GetUID(), c.Have.GetResourceVersion()
		err := r.Live.Delete(ctx, c.Have, client.Preconditions{UID: &uid, ResourceVersion: &version})
		return c.Have, client.IgnoreNotFound(err) //nolint:wrapcheck // wrapped by the caller
	case c.Have.GetResourceVersion() == "":
		return r.create(ctx, c.Want)
	}
	want := c.Want.DeepCopyObject().(client.Object)
	err := r.Live.Patch(ctx, want, client.MergeFromWithOptions(c.Have, client.MergeFromWithOptimisticLock{}))
	return want, err //nolint:wrapcheck // wrapped by the caller
}

// create a ConfigMap by server-side apply: for that, the right to create can be one to create this name alone.
func (r *Reconciler) create(ctx context.Context, o client.Object) (client.Object, error) {
	cm, ok := o.(*corev1.ConfigMap)
	if !ok {
		return nil, errors.New("there is no other kind of object that Sealane creates")
	}
	want := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name, Annotations: cm.Annotations,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Data: cm.Data,
	}
	err := r.Live.Patch(ctx, want, client.Apply, client.FieldOwner(fieldManager), client.ForceOwnership)
	return want, err //nolint:wrapcheck // wrapped by the caller
}

// Address of Sealane's DNS, not valid where there is none yet.
func (w Wiring) Address(ctx context.Context, c client.Reader) (netip.Addr, error) {
	s, err := index.Service(ctx, c, w.Service)
	if err != nil || s == nil {
		return netip.Addr{}, err
	}
	addr, err := netip.ParseAddr(s.Spec.ClusterIP)
	if err != nil {
		return netip.Addr{}, nil //nolint:nilerr // headless or not allocated yet: not there
	}
	return addr, nil
}

// reader reads Services from a cache, of which there may be many, and all else from the API server.
type reader struct {
	client.Reader
	cached client.Reader
}

func (r reader) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	if _, ok := list.(*corev1.ServiceList); ok {
		return r.cached.List(ctx, list, o...) //nolint:wrapcheck // a reader like the ones it stands for
	}
	return r.Reader.List(ctx, list, o...) //nolint:wrapcheck // a reader like the ones it stands for
}
