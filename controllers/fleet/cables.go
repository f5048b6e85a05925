// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	"github.com/karmada-io/karmada/pkg/util"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Cables are the drivers of the pairs of clusters of a ClusterSet that are to have another than wireguard. The names of
// a pair are sorted. A cluster that Karmada does not have is in none: of what is not known nothing is sent in clear.
func Cables(s State, name string) map[[2]string]v1alpha1.CableDriver {
	set := s.Set(name)
	if set == nil {
		return nil
	}
	out := map[[2]string]v1alpha1.CableDriver{}
	for pair, i := range cablesOf(s, set) {
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

// cablesOf says by which entry of spec.cables each pair of members has its cable; -1 is none.
func cablesOf(s State, set *v1alpha1.ClusterSet) map[[2]string]int {
	var members []string
	for _, m := range s.Members {
		if m.Spec.ClusterSet == set.Name && s.Cluster(m.Name) != nil {
			members = append(members, m.Name)
		}
	}
	slices.Sort(members)
	matches := make([][]map[string]bool, len(set.Spec.Cables))
	for i, rule := range set.Spec.Cables {
		for _, selector := range rule.Clusters {
			matches[i] = append(matches[i], matching(s, members, selector))
		}
	}
	out := map[[2]string]int{}
	for i, a := range members {
		for _, b := range members[i+1:] {
			out[[2]string{a, b}] = slices.IndexFunc(matches, func(of []map[string]bool) bool {
				first, last := of[0], of[len(of)-1]
				return first[a] && last[b] || first[b] && last[a]
			})
		}
	}
	return out
}

// idleCables names the entries of spec.cables that decide for no pair, if there are pairs: a typo in an exception is
// not to let what it is for go unencrypted without a word.
func idleCables(s State, set *v1alpha1.ClusterSet) []string {
	pairs := cablesOf(s, set)
	if len(pairs) == 0 {
		return nil
	}
	decides := map[int]bool{}
	for _, i := range pairs {
		decides[i] = true
	}
	var out []string
	for i, rule := range set.Spec.Cables {
		if !decides[i] {
			out = append(out, fmt.Sprintf("cables[%d] (%s)", i, rule.Driver))
		}
	}
	return out
}

func matching(s State, members []string, selector policyv1alpha1.ClusterAffinity) map[string]bool {
	out := map[string]bool{}
	for _, name := range members {
		out[name] = util.ClusterMatches(s.Cluster(name), selector)
	}
	return out
}
