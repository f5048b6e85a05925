// SPDX-License-Identifier: Apache-2.0

package raced

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestReconciler(t *testing.T) {
	resource := schema.GroupResource{Group: "sealane.io", Resource: "gateways"}
	conflict := fmt.Errorf("update Gateway a: %w", apierrors.NewConflict(resource, "a", errors.New("modified")))
	exists := apierrors.NewAlreadyExists(resource, "b")
	refused := apierrors.NewForbidden(resource, "c", errors.New("no"))
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"nothing went wrong":     {nil, time.Hour},
		"a conflict":             {conflict, Lag},
		"exists already":         {exists, Lag},
		"all lost":               {fmt.Errorf("apply: %w", errors.Join(conflict, exists)), Lag},
		"one of them is refused": {fmt.Errorf("apply: %w", errors.Join(conflict, refused)), 0},
		"refused":                {refused, 0},
		"the API server is gone": {context.DeadlineExceeded, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := Reconciler(reconcile.TypedFunc[string](func(_ context.Context, req string) (ctrl.Result, error) {
				if req != "request" {
					t.Errorf("request %q", req)
				}
				if c.err != nil {
					return ctrl.Result{}, c.err
				}
				return ctrl.Result{RequeueAfter: time.Hour}, nil
			}))
			got, err := r.Reconcile(t.Context(), "request")
			if failed := c.want == 0; errors.Is(err, c.err) != failed && c.err != nil {
				t.Errorf("error %v, handed on: %v", err, failed)
			}
			if got.RequeueAfter != c.want {
				t.Errorf("again after %s, want %s", got.RequeueAfter, c.want)
			}
		})
	}
}

// TestOfJoinedErrorsWhatIsLostIsNotToldOf, at whatever depth, and the rest is.
func TestOfJoinedErrorsWhatIsLostIsNotToldOf(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "clustersets"}, "a", errors.New("modified"))
	deleting, gone := errors.New("the Work is being deleted"), errors.New("the API server is gone")
	r := Reconciler(reconcile.TypedFunc[string](func(context.Context, string) (ctrl.Result, error) {
		return ctrl.Result{}, errors.Join(deleting, errors.Join(conflict, gone), conflict)
	}))
	_, err := r.Reconcile(t.Context(), "request")
	if !errors.Is(err, deleting) || !errors.Is(err, gone) || errors.Is(err, conflict) {
		t.Errorf("handed on: %v", err)
	}
}

// TestWhatIsLostAgainAndAgainWaitsLonger: an object that no cache shows is not asked for fifty times a second.
func TestWhatIsLostAgainAndAgainWaitsLonger(t *testing.T) {
	exists := apierrors.NewAlreadyExists(schema.GroupResource{Resource: "services"}, "a")
	loses := true
	r := Reconciler(reconcile.TypedFunc[string](func(context.Context, string) (ctrl.Result, error) {
		if loses {
			return ctrl.Result{}, exists
		}
		return ctrl.Result{}, nil
	}))
	expect := func(req string, want time.Duration) {
		t.Helper()
		if got, err := r.Reconcile(t.Context(), req); err != nil || got.RequeueAfter != want {
			t.Errorf("%s again after %s, %v; want %s", req, got.RequeueAfter, err, want)
		}
	}
	expect("one", Lag)
	expect("one", 2*Lag)
	expect("another", Lag)
	for range 10 {
		if _, err := r.Reconcile(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
	}
	expect("one", maxLag)
	loses = false
	expect("one", 0)
	loses = true
	expect("one", Lag)
}
