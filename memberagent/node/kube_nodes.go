// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/nodeslice"
)

// nodes adds the nodes that the cluster agent tells of, and says whether they are known: not while it has not told of
// all, or of this one. None are needed without a Peering, and by a cluster that leaves.
func (k *Kube) nodes(ctx context.Context, o *Objects) (bool, error) {
	var list v1alpha1.NodeSliceList
	if err := k.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list NodeSlices: %w", err)
	}
	nodes, all := nodeslice.Join(list.Items)
	o.Nodes = nodes
	why := ""
	switch {
	case o.Peering != nil && o.Peering.Spec.Phase == v1alpha1.MemberLeaving:
	case o.Peering == nil:
		if !all || o.node(k.names.Node) == nil {
			o.Nodes = nil
		}
	case !all:
		why = fmt.Sprintf("the cluster agent has not told of all nodes yet: expected NodeSlices %s to %s, found %d",
			nodeslice.Names()[0], nodeslice.Names()[len(nodeslice.Names())-1], len(list.Items))
	case o.node(k.names.Node) == nil:
		why = "the cluster agent has not told of this node yet: it is in no NodeSlice"
	}
	if why != "" && why != k.untold {
		logr.FromContextOrDiscard(ctx).Info("the node's network stays as it is", "why", why)
	}
	k.untold = why
	return why == "", nil
}
