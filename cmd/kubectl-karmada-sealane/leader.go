// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// leaderLost is how old the last renewal of the controller's Lease may be: a leader renews every 2 s, and another
// takes over after 15 s.
const leaderLost = 30 * time.Second

// reasonController is of problems with the controller itself.
const reasonController = "ControllerNotRunning"

// leaderSeen is when the controller last renewed its Lease on the Karmada API; zero where that cannot be known: it runs
// without leader election, has never run, or the user may not read Leases.
func (a *api) leaderSeen(ctx context.Context) (time.Time, error) {
	var lease coordinationv1.Lease
	err := a.Get(ctx, client.ObjectKey{Namespace: v1alpha1.Namespace, Name: controllerName}, &lease)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, fmt.Errorf("get the controller's Lease: %w", err)
	case lease.Spec.RenewTime == nil:
		return time.Time{}, nil
	}
	return lease.Spec.RenewTime.Time, nil
}

// leaderless says, where the controller does not run, since when and what to do; else it is empty. Everything else that
// the broker says is as old then.
func (f *fleet) leaderless() string {
	since := f.now.Sub(f.leaderSeen)
	if f.leaderSeen.IsZero() || since < leaderLost {
		return ""
	}
	return fmt.Sprintf("no sealane-controller has renewed the Lease %s/%s for %s: nothing that members report is passed "+
		"on, and what the Karmada API shows is as old; see that it runs, and its log; where the Karmada API rejects its "+
		"token, run install again", v1alpha1.Namespace, controllerName, since.Round(time.Second))
}
