// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// nodeNetworks are those of all nodes, which only a gateway watches: where pods have addresses of any node, each pod
// that starts changes one of them, and a thousand nodes need not hear of it.
type nodeNetworks struct {
	cache   cache.Cache
	changed func()

	mu       sync.Mutex
	informer cache.Informer // nil before somebody has asked
}

// watch begins to watch them, and says whether all are known.
func (n *nodeNetworks) watch(ctx context.Context) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.informer != nil {
		return n.informer.HasSynced(), nil
	}
	informer, err := n.cache.GetInformer(ctx, &v1alpha1.NodeNetwork{}, cache.BlockUntilSynced(false))
	if err != nil {
		return false, fmt.Errorf("watch NodeNetworks: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { n.changed() },
		DeleteFunc: func(any) { n.changed() },
		UpdateFunc: func(before, after any) {
			if matters(before, after) {
				n.changed()
			}
		},
	})
	if err != nil {
		return false, fmt.Errorf("watch NodeNetworks: %w", err)
	}
	n.informer = informer
	return informer.HasSynced(), nil
}

// networks adds the NodeNetworks that this node needs, and says whether they are known: a gateway those of all nodes,
// any other its own.
func (k *Kube) networks(ctx context.Context, o *Objects) (bool, error) {
	from := k.cache
	if o.gateway(k.names.Node) != nil {
		if synced, err := k.all.watch(ctx); !synced || err != nil {
			return false, err
		}
		from = k.all.cache
	}
	var list v1alpha1.NodeNetworkList
	if err := from.List(ctx, &list); err != nil {
		return false, fmt.Errorf("list NodeNetworks: %w", err)
	}
	o.NodeNetworks = list.Items
	return true, nil
}
