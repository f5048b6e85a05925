// SPDX-License-Identifier: Apache-2.0

// Package raced has reconcilers try again what lost a race: a write by an object that the cache has not caught up with,
// or that somebody else has just changed. That is how optimistic concurrency works, and no error to tell anybody of.
package raced

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Lag is when to look again: by then the event of what was written has reached the cache, or nearly.
const Lag = 20 * time.Millisecond

// Reconciler calls one whose errors may be of lost races. Where all that went wrong is that, it is called again after
// Lag; an error with anything else in it is handed on whole.
func Reconciler[R comparable](r reconcile.TypedReconciler[R]) reconcile.TypedReconciler[R] {
	return reconcile.TypedFunc[R](func(ctx context.Context, req R) (ctrl.Result, error) {
		result, err := r.Reconcile(ctx, req)
		if err == nil || !Lost(err) {
			return result, err
		}
		return ctrl.Result{RequeueAfter: Lag}, nil
	})
}

// Lost says that an error, and each of those that are joined in it, is of a write that lost a race: 409, Conflict or
// AlreadyExists.
func Lost(err error) bool {
	for e := err; e != nil; e = errors.Unwrap(e) {
		joined, ok := e.(interface{ Unwrap() []error })
		if !ok {
			continue
		}
		for _, part := range joined.Unwrap() {
			if !Lost(part) {
				return false
			}
		}
		return true
	}
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}
