// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Relays are the clusters by which pairs of a ClusterSet's clusters are to reach each other. The names of a pair are
// sorted. A relay is in no pair of its own.
func Relays(set *v1alpha1.ClusterSet, clusters []*clusterv1alpha1.Cluster) map[[2]string]string {
	out := map[[2]string]string{}
	for pair, i := range RelayEntries(set, clusters) {
		if i >= 0 {
			out[pair] = set.Spec.Relays[i].Through
		}
	}
	return out
}

// RelayEntries says which entry of spec.relays decides for each pair of a ClusterSet's clusters; -1 is none. The names
// of a pair are sorted. An entry does not match the pairs that its relay is one of.
func RelayEntries(set *v1alpha1.ClusterSet, clusters []*clusterv1alpha1.Cluster) map[[2]string]int {
	rules := make([]rule, len(set.Spec.Relays))
	for i, r := range set.Spec.Relays {
		rules[i] = rule{r.Clusters, r.Through}
	}
	return entries(rules, clusters)
}
