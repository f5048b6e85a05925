// SPDX-License-Identifier: Apache-2.0

// Package pairs is the rule which clusters are in a ClusterSet, and which cable and relay each pair of them has. The
// broker goes by it, and the plugin that says before what a pair needs.
package pairs

import (
	"cmp"
	"slices"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/settings"
)

// Owners returns the ClusterSet that each selected cluster belongs to, of several the oldest. A ClusterSet that is
// being deleted selects nothing; one with invalid settings keeps the members that it has.
func Owners(sets []v1alpha1.ClusterSet, clusters []clusterv1alpha1.Cluster,
	members []v1alpha1.Member) map[string]string {
	owners := map[string]string{}
	for _, set := range byAge(sets) {
		if !set.DeletionTimestamp.IsZero() {
			continue
		}
		if settings.Validate(&set) != nil {
			for _, m := range members {
				if _, taken := owners[m.Name]; !taken && m.Spec.ClusterSet == set.Name && m.Spec.Phase == v1alpha1.MemberActive {
					owners[m.Name] = set.Name
				}
			}
			continue
		}
		for i := range clusters {
			c := &clusters[i]
			if _, taken := owners[c.Name]; !taken && c.DeletionTimestamp.IsZero() &&
				Matches(c, set.Spec.ClusterAffinity) {
				owners[c.Name] = set.Name
			}
		}
	}
	return owners
}

// byAge sorts ClusterSets so that the one whose selection wins comes first.
func byAge(sets []v1alpha1.ClusterSet) []v1alpha1.ClusterSet {
	sorted := slices.Clone(sets)
	slices.SortFunc(sorted, func(a, b v1alpha1.ClusterSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return sorted
}

// Cables are the drivers of the pairs of a ClusterSet's clusters that are to have another than wireguard. The names of
// a pair are sorted.
func Cables(set *v1alpha1.ClusterSet, clusters []*clusterv1alpha1.Cluster) map[[2]string]v1alpha1.CableDriver {
	out := map[[2]string]v1alpha1.CableDriver{}
	for pair, i := range Entries(set, clusters) {
		driver := set.Spec.Cable.Driver
		if i >= 0 {
			driver = set.Spec.Cables[i].Driver
		}
		if driver = cmp.Or(driver, v1alpha1.CableWireGuard); driver != v1alpha1.CableWireGuard {
			out[pair] = driver
		}
	}
	return out
}

// Entries says by which entry of spec.cables each pair of a ClusterSet's clusters has its cable; -1 is none. The names
// of a pair are sorted.
func Entries(set *v1alpha1.ClusterSet, clusters []*clusterv1alpha1.Cluster) map[[2]string]int {
	rules := make([]rule, len(set.Spec.Cables))
	for i, c := range set.Spec.Cables {
		rules[i] = rule{of: c.Clusters}
	}
	return entries(rules, clusters)
}

// rule selects pairs: with one selector those of which both clusters match it, with two those of which one matches the
// first and the other the second; but for those with the cluster except.
type rule struct {
	of     []policyv1alpha1.ClusterAffinity
	except string
}

// entries says which of some rules is the first that matches each pair of clusters; -1 is none.
func entries(rules []rule, clusters []*clusterv1alpha1.Cluster) map[[2]string]int {
	sorted := slices.SortedFunc(slices.Values(clusters), func(a, b *clusterv1alpha1.Cluster) int {
		return cmp.Compare(a.Name, b.Name)
	})
	matches := make([][]map[string]bool, len(rules))
	for i, r := range rules {
		for _, selector := range r.of {
			matches[i] = append(matches[i], matching(sorted, selector, r.except))
		}
	}
	out := map[[2]string]int{}
	for i, one := range sorted {
		for _, other := range sorted[i+1:] {
			a, b := one.Name, other.Name
			out[[2]string{a, b}] = slices.IndexFunc(matches, func(of []map[string]bool) bool {
				if len(of) == 0 {
					return false
				}
				first, last := of[0], of[len(of)-1]
				return first[a] && last[b] || first[b] && last[a]
			})
		}
	}
	return out
}

func matching(clusters []*clusterv1alpha1.Cluster, selector policyv1alpha1.ClusterAffinity,
	except string) map[string]bool {
	out := map[string]bool{}
	for _, c := range clusters {
		out[c.Name] = c.Name != except && Matches(c, selector)
	}
	return out
}
