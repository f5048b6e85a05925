// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// abandonAfter is how long a forced uninstall leaves the controller to do its part.
const abandonAfter = 30 * time.Second

// abandon makes the members leave without waiting for their acknowledgement; what the controller, which
// may be gone, does not do in time is done in its place.
func (u *uninstall) abandon(ctx context.Context, karmada *api, p *progress) error {
	members, err := karmada.members(ctx)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	clusters := make([]string, 0, len(members))
	for i := range members {
		clusters = append(clusters, members[i].Name)
	}
	if err := karmada.forceLeave(ctx, clusters, p); err != nil {
		return err
	}
	patient, cancel := context.WithTimeout(ctx, abandonAfter)
	defer cancel()
	if until(patient, karmada.noClusterSets) == nil {
		return nil
	}
	p.warn("the controller did not let the members go within %s; going on without it", abandonAfter)
	return karmada.dropMembers(ctx)
}

// dropMembers deletes our Works and the Members, and takes the controller's hold off the ClusterSets.
func (a *api) dropMembers(ctx context.Context) error {
	var works workv1alpha1.WorkList
	if err := a.List(ctx, &works, client.MatchingLabels{labelManagedBy: v1alpha1.ManagedBy}); err != nil {
		return fmt.Errorf("list works: %w", err)
	}
	for i := range works.Items {
		if err := a.removeOne(ctx, &works.Items[i]); err != nil {
			return err
		}
	}
	members, err := a.members(ctx)
	if err != nil {
		return err
	}
	for i := range members {
		if err := a.removeOne(ctx, &members[i]); err != nil {
			return err
		}
	}
	sets, err := a.clusterSets(ctx)
	if err != nil {
		return err
	}
	for i := range sets {
		base := sets[i].DeepCopy()
		sets[i].Finalizers = nil
		if err := a.Patch(ctx, &sets[i], client.MergeFrom(base)); err != nil && !gone(err) {
			return fmt.Errorf("release ClusterSet %s: %w", sets[i].Name, err)
		}
	}
	return nil
}
