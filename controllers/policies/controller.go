// SPDX-License-Identifier: Apache-2.0

// Package policies tells in the status of every ServicePolicy whether it is in force. The policies
// themselves are followed where services are decided.
package policies

import (
	"context"
	"fmt"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/conditions"
	"github.com/sealane-io/sealane/controllers/services"
	"github.com/sealane-io/sealane/controllers/takeover"
	"github.com/sealane-io/sealane/controllers/verdicts"
	"github.com/sealane-io/sealane/internal/raced"
)

// Reconciler keeps the condition of ServicePolicies.
type Reconciler struct {
	Client     client.Client
	Verdicts   *verdicts.Reader
	Conditions conditions.Writer
}

// Reconcile brings the condition of one policy up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var policy v1alpha1.ServicePolicy
	if err := r.Client.Get(ctx, req.NamespacedName, &policy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	members, exporters, err := r.gather(ctx, req)
	if err != nil {
		return ctrl.Result{}, err
	}
	updated := policy.DeepCopy()
	updated.Status.Choice, updated.Status.Importers = policy.Spec.Choice.Text(), policy.Spec.Importers.Text()
	return r.Conditions.Write(ctx, &policy, updated, &updated.Status.Conditions, Accept(&policy, members, exporters))
}

// gather returns the members of all ClusterSets, and those that export a policy's service.
func (r *Reconciler) gather(ctx context.Context, req ctrl.Request) (members, exporters []string, err error) {
	var sets v1alpha1.ClusterSetList
	var records v1alpha1.MemberList
	for _, list := range []client.ObjectList{&sets, &records} {
		if err := r.Client.List(ctx, list); err != nil {
			return nil, nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	byName := make(map[string]*v1alpha1.ClusterSet, len(sets.Items))
	for i := range sets.Items {
		byName[sets.Items[i].Name] = &sets.Items[i]
	}
	for i := range records.Items {
		m := &records.Items[i]
		members = append(members, m.Name)
		set := byName[m.Spec.ClusterSet]
		if set == nil {
			continue
		}
		said, err := r.Verdicts.For(ctx, r.Client, m, set, req.NamespacedName)
		if err != nil {
			return nil, nil, fmt.Errorf("read what %s exports: %w", m.Name, err)
		}
		ready := meta.FindStatusCondition(said, string(mcsv1beta1.ServiceExportConditionReady))
		if ready != nil && ready.Reason != string(mcsv1beta1.ServiceExportReasonFailed) &&
			ready.Reason != services.ReasonNotPermitted {
			exporters = append(exporters, m.Name)
		}
	}
	return members, exporters, nil
}

// SetupWithManager starts the controller, once the caches show what was written before.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, before *takeover.Caches) error {
	return ctrl.NewControllerManagedBy(mgr).Named("policies").
		For(&v1alpha1.ServicePolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Member{}, handler.EnqueueRequestsFromMapFunc(r.all),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&workv1alpha1.Work{}, r.Verdicts.Handler()).
		WatchesRawSource(takeover.Shown[ctrl.Request](before)).
		Complete(raced.Reconciler(r))
}

func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var policies v1alpha1.ServicePolicyList
	if r.Client.List(ctx, &policies) != nil {
		return nil
	}
	requests := make([]reconcile.Request, 0, len(policies.Items))
	for i := range policies.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&policies.Items[i])})
	}
	return requests
}
