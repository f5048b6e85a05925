// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// global adds whose the global addresses are. It reads what is in no namespace alone, which the cluster agent writes:
// the GlobalIngressIPs and GlobalEgressIPs themselves are in the hands of tenants.
func (k *Kube) global(ctx context.Context, o *Objects) error {
	cluster := &v1alpha1.ClusterGlobalEgressIP{}
	switch err := k.cache.Get(ctx, client.ObjectKey{Name: v1alpha1.ClusterEgressName}, cluster); {
	case err == nil:
		o.ClusterGlobalEgressIP = cluster
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read the cluster's global addresses: %w", err)
	}
	var list v1alpha1.GlobalAllocationList
	if err := k.cache.List(ctx, &list); err != nil {
		return fmt.Errorf("list GlobalAllocations: %w", err)
	}
	o.GlobalAllocations = list.Items
	return nil
}
