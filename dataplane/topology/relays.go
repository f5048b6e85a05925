// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

// Relayed are remote clusters that reach others through this one.
type Relayed struct {
	// Clusters are their names, sorted, and With those of the clusters to which their packets are passed on.
	Clusters, With []string
}

// buildRelays takes which clusters are reached through others, and which of them through this one, after all remote
// clusters are known. clusters are those of Remotes, in their order.
func (b *builder) buildRelays(clusters []v1alpha1.RemoteCluster, relayed []v1alpha1.RelayedClusters) {
	for i, c := range clusters {
		if c.Relay == "" {
			continue
		}
		r := &b.Remotes[i]
		r.Behind, r.Nodes = c.Relay, nil
		r.BehindMTU = b.mtu("RemoteCluster/"+c.Name, "relayMTU", c.RelayMTU)
		if c.RelayStatus == v1alpha1.ConnectionError {
			r.BehindStatus = c.RelayStatus
		}
		at := slices.IndexFunc(clusters, func(o v1alpha1.RemoteCluster) bool { return o.Name == c.Relay })
		if at < 0 || clusters[at].Relay != "" {
			// It stays behind it, and so is not reached.
			b.left("RemoteCluster/"+c.Name, "relay", faultf(ReasonUnknownRelay,
				"%s is no remote cluster that has gateways of its own: it is not reached", clip.Quote(c.Relay)))
		}
	}
	direct := make(map[string]bool, len(b.Remotes))
	for _, r := range b.Remotes {
		direct[r.Name] = r.Behind == ""
	}
	known := func(i int, names []string) []string {
		var out []string
		for _, name := range names {
			if direct[name] {
				out = append(out, name)
				continue
			}
			b.left(fmt.Sprintf("Relay/%d", i), "", faultf(ReasonUnknownRelay, "%s is no remote cluster with gateways of its "+
				"own: nothing is passed on to or from it", clip.Quote(name)))
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	for i, r := range relayed {
		if out := (Relayed{known(i, r.Clusters), known(i, r.With)}); len(out.Clusters) > 0 && len(out.With) > 0 {
			b.Relayed = append(b.Relayed, out)
		}
	}
	slices.SortFunc(b.Relayed, func(x, y Relayed) int {
		return cmp.Or(slices.Compare(x.Clusters, y.Clusters), slices.Compare(x.With, y.With))
	})
}
