// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sealane-io/sealane/memberagent/cluster/mcscrds"
)

// lookEvery is how often the MCS API is looked at.
const lookEvery = 10 * time.Second

// servedVersion restores the MCS kinds when somebody deletes them, and ends the agent when another version
// of them is served than the caches were made for.
type servedVersion struct {
	live   client.Client
	served string
}

// SetupWithManager registers the loop.
func (s *servedVersion) SetupWithManager(m ctrl.Manager, _ controller.Options) error { return m.Add(s) }

// NeedLeaderElection is true: one agent restores the kinds. Another notices when it comes to lead.
func (s *servedVersion) NeedLeaderElection() bool { return true }

// Start looks until the context ends.
func (s *servedVersion) Start(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := mcscrds.Ensure(ctx, s.live); err != nil {
			log.FromContext(ctx).Error(err, "cannot install the MCS API; trying again")
			continue
		}
		if v, err := mcscrds.Version(ctx, s.live); err == nil && v != s.served {
			log.FromContext(ctx).Info("the cluster serves another version of the MCS API", "was", s.served, "is", v)
			return errAPIChanged
		}
	}
}
