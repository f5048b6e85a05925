// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// Retention is how long a block is kept for a cluster that left, at least. What resolved an address of it may connect
// there for that long, and whoever comes back within it has the addresses it had.
const Retention = 7 * 24 * time.Hour

// Ledger returns who has and had which block, sorted by cluster and block: what a record of the ClusterSet becomes when
// these are the blocks that clusters hold. The block of a cluster that holds it no more is kept for Retention, and on
// as long as another cluster may still route it. What the record has that is no block, or that overlaps one that is
// held by another, is dropped.
func Ledger(record []v1alpha1.GlobalBlock, held map[string]netip.Prefix, routed func(netip.Prefix) bool,
	now time.Time) []v1alpha1.GlobalBlock {
	var taken netfacts.Owners
	out := []v1alpha1.GlobalBlock{}
	for cluster, block := range held {
		taken.Add(block, cluster)
		out = append(out, v1alpha1.GlobalBlock{Cluster: cluster, CIDR: block.String()})
	}
	for _, e := range record {
		block, err := netfacts.ParseGlobal(e.CIDR)
		if err != nil || e.Cluster == "" || held[e.Cluster] == block {
			continue
		}
		if _, overlaps := taken.Overlap(block, ""); overlaps {
			continue
		}
		if e.KeptUntil == nil {
			until := metav1.NewTime(now.Add(Retention).Truncate(time.Second))
			e.KeptUntil = &until
		}
		if now.Before(e.KeptUntil.Time) || routed(block) {
			taken.Add(block, e.Cluster)
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b v1alpha1.GlobalBlock) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.CIDR, b.CIDR))
	})
	return out
}
