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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// corefileKey of the ConfigMap.
const corefileKey = "Corefile"

// Reasons of the condition DNSConfigured.
const (
	ReasonConfigured     = "Configured"
	ReasonPending        = "Pending"
	ReasonRemoved        = "Removed"
	ReasonNoCorefile     = v1alpha1.ReasonNoCorefile
	ReasonServiceMissing = "DNSServiceMissing"
	ReasonMarkersBroken  = v1alpha1.ReasonMarkersBroken
	ReasonDomainTaken    = v1alpha1.ReasonDomainTaken
	ReasonInvalidFile    = v1alpha1.ReasonInvalidCorefile
)

// Wiring says which objects are involved.
type Wiring struct {
	// ConfigMap with the Corefile, and Service of Sealane's DNS.
	ConfigMap, Service types.NamespacedName
	// ClusterDomain of the cluster's own names as the kubelet has it, "" where that is unknown.
	ClusterDomain string
}

// Reconciler keeps the block in the Corefile.
type Reconciler struct {
	client.Client
	Wiring Wiring
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	only := func(key types.NamespacedName) builder.Predicates {
		return builder.WithPredicates(predicate.NewPredicateFuncs(
			func(o client.Object) bool { return client.ObjectKeyFromObject(o) == key }))
	}
	return ctrl.NewControllerManagedBy(m).Named("clusterdns").
		Watches(&corev1.ConfigMap{}, one, only(r.Wiring.ConfigMap)).
		Watches(&corev1.Service{}, one, only(r.Wiring.Service)).
		Watches(&v1alpha1.Peering{}, one, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(o).Complete(r)
}

// Reconcile writes the Corefile if it should be another.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	peering, err := index.Peering(ctx, r)
	if err != nil || peering == nil {
		return ctrl.Result{}, err
	}
	have, want, _, err := r.Wiring.decide(ctx, r, peering)
	if err != nil || have == nil || have.Data[corefileKey] == want {
		return ctrl.Result{}, err
	}
	changed := have.DeepCopy()
	changed.Data[corefileKey] = want
	log.FromContext(ctx).Info("changing the Corefile", "configMap", r.Wiring.ConfigMap.String(), "phase",
		peering.Spec.Phase)
	err = r.Patch(ctx, changed, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		// The cache is behind what somebody wrote a moment ago.
		return ctrl.Result{RequeueAfter: cacheLag}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("change the Corefile: %w", err)
	}
	return ctrl.Result{}, nil
}

// cacheLag is the delay after a write that lost a race against the cache.
const cacheLag = 20 * time.Millisecond

// Condition returns DNSConfigured as the cluster is now.
func (w Wiring) Condition(ctx context.Context, c client.Reader, peering *v1alpha1.Peering) (metav1.Condition, error) {
	have, want, condition, err := w.decide(ctx, c, peering)
	if err != nil {
		return metav1.Condition{}, err
	}
	if have != nil && have.Data[corefileKey] != want {
		condition = no(ReasonPending, "the Corefile is about to be changed")
	}
	return condition, nil
}

// decide returns the ConfigMap as it is, nil where it must not be changed, with the Corefile that it should
// hold, and the condition that is true once it does.
func (w Wiring) decide(ctx context.Context, c client.Reader,
	peering *v1alpha1.Peering) (have *corev1.ConfigMap, want string, condition metav1.Condition, err error) {
	have = &corev1.ConfigMap{}
	if err := c.Get(ctx, w.ConfigMap, have); client.IgnoreNotFound(err) != nil {
		return nil, "", metav1.Condition{}, fmt.Errorf("get ConfigMap %s: %w", w.ConfigMap, err)
	}
	domains := peering.Spec.DNS.Domains
	corefile, ok := have.Data[corefileKey]
	if !ok {
		return nil, "", no(ReasonNoCorefile, "there is no Corefile in ConfigMap %s; make the cluster's DNS forward %v to "+
			"the Service %s, "+
			"or name the right ConfigMap with the agent's --coredns-configmap", w.ConfigMap, domains, w.Service), nil
	}
	if peering.Spec.Phase == v1alpha1.MemberLeaving {
		want, err := Remove(corefile)
		if err != nil {
			return nil, "", w.refused(err), nil
		}
		return have, want, no(ReasonRemoved, "the cluster leaves; Sealane's block is out of the Corefile"), nil
	}
	to, err := w.address(ctx, c)
	if err != nil {
		return nil, "", metav1.Condition{}, err
	}
	if !to.IsValid() {
		return nil, "", no(ReasonServiceMissing, "the Service %s does not exist or has no ClusterIP; it comes with "+
			"Sealane's install bundle", w.Service), nil
	}
	forward := Forward{Domains: domains, To: to, ClusterDomain: w.ClusterDomain, Networks: peering.Spec.Networks}
	want, unforwarded, err := Add(corefile, forward)
	if err != nil {
		if without, broken := Remove(corefile); broken == nil && TakesClusterDomain(corefile, w.ClusterDomain) {
			return have, without, w.refused(err), nil
		}
		return nil, "", w.refused(err), nil
	}
	message := fmt.Sprintf("the cluster's DNS forwards %v to %s", domains, to)
	if unforwarded != nil {
		message += fmt.Sprintf("; it names ClusterSetIPs by their derived Services, since %v", unforwarded)
	}
	return have, want, metav1.Condition{
		Type: v1alpha1.PeeringDNSConfigured, Status: metav1.ConditionTrue, Reason: ReasonConfigured, Message: message,
	}, nil
}

func (w Wiring) refused(err error) metav1.Condition {
	switch {
	case errors.Is(err, ErrDomainTaken):
		return no(ReasonDomainTaken, "the Corefile in ConfigMap %s was left as it is: %v; "+
			"use another domain in spec.dns.domains of the ClusterSet, or take that zone out of the Corefile", w.ConfigMap, err)
	case errors.Is(err, ErrInvalidCorefile):
		return no(ReasonInvalidFile, "the Corefile in ConfigMap %s was left as it is: %v; correct it", w.ConfigMap, err)
	}
	return no(ReasonMarkersBroken, "the Corefile in ConfigMap %s was left as it is: %v; remove every line from %q to "+
		"%q, and lone ones of these, and Sealane adds its block anew",
		w.ConfigMap, err, begin, end)
}

func no(reason, format string, args ...any) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.PeeringDNSConfigured, Status: metav1.ConditionFalse, Reason: reason,
		Message: fmt.Sprintf(format, args...),
	}
}

func (w Wiring) address(ctx context.Context, c client.Reader) (netip.Addr, error) {
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
