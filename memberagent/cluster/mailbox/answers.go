// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
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

// Answers writes the status of the one Bundle that has the answers to Bundles of deltas: which of these the member has,
// of those to be answered apart. A broker that wants them has it there.
type Answers struct {
	client.Client
	// Written is called for each write.
	Written func()

	pacer *pacer
}

// SetupWithManager registers the controller, which has one key.
func (r *Answers) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	r.pacer = newPacer()
	o.MaxConcurrentReconciles = 1
	concerned := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetName() == v1alpha1.AnswersName || v1alpha1.IsDelta(o.GetName())
	})
	one := func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: v1alpha1.AnswersName}}}
	}
	return ctrl.NewControllerManagedBy(m).Named("answers").
		Watches(&v1alpha1.Bundle{}, handler.EnqueueRequestsFromMapFunc(one), builder.WithPredicates(concerned)).
		WithOptions(o).Complete(raced.Reconciler(r))
}

// Reconcile writes the answers if they differ. It does so too while the cluster leaves.
func (r *Answers) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	bundle, shared := &v1alpha1.Bundle{}, true
	if err := r.Get(ctx, req.NamespacedName, bundle, &client.GetOptions{UnsafeDisableDeepCopy: &shared}); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if bundle.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	status := v1alpha1.BundleStatus{ObservedRevision: bundle.Spec.Revision}
	var err error
	if status.Deltas, err = answers(ctx, r); err != nil || equality.Semantic.DeepEqual(bundle.Status, status) {
		return ctrl.Result{}, err
	}
	if wait := r.pacer.wait(bundle.Name, time.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if err := replaceStatus(ctx, r, bundle, status); err != nil {
		return ctrl.Result{}, err
	}
	r.pacer.wrote(bundle.Name, time.Now())
	r.Written()
	return ctrl.Result{}, nil
}

// answers are the revisions of the Bundles of deltas that there are, of those to be answered apart, by their numbers.
func answers(ctx context.Context, c client.Reader) ([]int64, error) {
	var out []int64
	for n := range int32(v1alpha1.MaxDeltas) {
		b, err := index.BundleNamed(ctx, c, v1alpha1.DeltaName(n))
		if err != nil {
			return nil, err
		}
		if b == nil || !b.Spec.AnswerApart || b.DeletionTimestamp != nil {
			continue
		}
		for len(out) < int(n) {
			out = append(out, 0)
		}
		out = append(out, b.Spec.Revision)
	}
	return out, nil
}

// answeredApart says that a Bundle of deltas is to be answered apart, and can be.
func answeredApart(ctx context.Context, c client.Reader, b *v1alpha1.Bundle) (bool, error) {
	if !v1alpha1.IsDelta(b.Name) || !b.Spec.AnswerApart {
		return false, nil
	}
	in, err := index.BundleNamed(ctx, c, v1alpha1.AnswersName)
	return in != nil && in.DeletionTimestamp == nil, err
}

// answersThere passes the Bundle for answers when it comes, goes, and is about to go.
func answersThere() predicate.Predicate {
	named := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == v1alpha1.AnswersName })
	return predicate.And(named, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return (e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
	}})
}
