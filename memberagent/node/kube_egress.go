// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// egress adds the addresses that connections come from.
func (k *Kube) egress(ctx context.Context, o *Objects) error {
	cluster := &v1alpha1.ClusterGlobalEgressIP{}
	switch err := k.cache.Get(ctx, client.ObjectKey{Name: v1alpha1.ClusterEgressName}, cluster); {
	case err == nil:
		o.ClusterGlobalEgressIP = cluster
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read the cluster's global addresses: %w", err)
	}
	var pools v1alpha1.GlobalEgressIPList
	if err := k.cache.List(ctx, &pools); err != nil {
		return fmt.Errorf("list GlobalEgressIPs: %w", err)
	}
	o.GlobalEgressIPs = pools.Items
	return nil
}
