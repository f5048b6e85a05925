// SPDX-License-Identifier: Apache-2.0

// Package raced has reconcilers try again what lost a race: a write by an object that the cache has not caught up with,
// or that somebody else has just changed. That is how optimistic concurrency works, and no error to tell anybody of.
package raced

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// Lag is when to look again: by then the event of what was written has reached the cache, or nearly.
	Lag = 20 * time.Millisecond
	// maxLag is for what is lost again and again, as to an object that no cache shows.
	maxLag = 5 * time.Second
)

// Reconciler calls one whose errors may be of lost races. Where all that went wrong is that, it is called again after
// Lag, and after twice as long each time that it loses once more. Where something else went wrong too, that is handed
// on: of errors that are joined those that are not of lost races.
func Reconciler[R comparable](r reconcile.TypedReconciler[R]) reconcile.TypedReconciler[R] {
	var mu sync.Mutex
	last := map[R]time.Duration{}
	return reconcile.TypedFunc[R](func(ctx context.Context, req R) (ctrl.Result, error) {
		result, err := r.Reconcile(ctx, req)
		mu.Lock()
		defer mu.Unlock()
		if err == nil || !Lost(err) {
			delete(last, req)
			return result, others(err)
		}
		last[req] = min(max(Lag, 2*last[req]), maxLag)
		return ctrl.Result{RequeueAfter: last[req]}, nil
	})
}

// others returns what is joined in an error, less what is of lost races; any other error whole.
func others(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var out []error
	for _, part := range joined.Unwrap() {
		if !Lost(part) {
			out = append(out, others(part))
		}
	}
	return errors.Join(out...)
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
