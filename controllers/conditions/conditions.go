// SPDX-License-Identifier: Apache-2.0

// Package conditions writes the conditions of an object on the Karmada API.
package conditions

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// retry is the delay after a write that the cache was too old for.
const retry = 20 * time.Millisecond

// Write sets conditions in the status of after, which in is a part of, and patches the status if it differs from
// that of before: a server of an older version of the kind is sent no field that it does not know. An object that
// is gone needs no status, and one that somebody else has just written is tried again soon: neither is an error.
func Write(
	ctx context.Context, c client.StatusClient, before, after client.Object, in *[]metav1.Condition, now time.Time,
	want ...metav1.Condition,
) (ctrl.Result, error) {
	for _, w := range want {
		w.ObservedGeneration, w.LastTransitionTime = after.GetGeneration(), metav1.NewTime(now)
		meta.SetStatusCondition(in, w)
	}
	if equality.Semantic.DeepEqual(before, after) {
		return ctrl.Result{}, nil
	}
	err := c.Status().Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: retry}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}
