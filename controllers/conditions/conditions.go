// SPDX-License-Identifier: Apache-2.0

// Package conditions writes the conditions of an object on the Karmada API.
package conditions

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/internal/transitions"
)

// Writer writes conditions, and tells people of those that change.
type Writer struct {
	Client client.StatusClient
	Events record.EventRecorder
	// Now is the clock.
	Now func() time.Time
}

// retry is the delay after a write that the cache was too old for.
const retry = 20 * time.Millisecond

// Write sets conditions in the status of after, which in is a part of, and patches the status if it differs from
// that of before: a server of an older version of the kind is sent no field that it does not know. An object that
// is gone needs no status, and one that somebody else has just written is tried again soon: neither is an error.
func (w Writer) Write(
	ctx context.Context, before, after client.Object, in *[]metav1.Condition, want ...metav1.Condition,
) (ctrl.Result, error) {
	was := slices.Clone(*in)
	for _, c := range want {
		c.ObservedGeneration, c.LastTransitionTime = after.GetGeneration(), metav1.NewTime(w.Now())
		meta.SetStatusCondition(in, c)
	}
	if equality.Semantic.DeepEqual(before, after) {
		return ctrl.Result{}, nil
	}
	told := slices.Clone(*in)
	err := w.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: retry}, nil
	case err != nil:
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	transitions.Tell(w.Events, after, was, told)
	return ctrl.Result{}, nil
}
