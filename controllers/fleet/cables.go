// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/pairs"
)

// Cables are the drivers of the pairs of clusters of a ClusterSet that are to have another than wireguard. The names of
// a pair are sorted. A cluster that Karmada does not have is in none: of what is not known nothing is sent in clear.
func Cables(s State, name string) map[[2]string]v1alpha1.CableDriver {
	set := s.Set(name)
	if set == nil {
		return nil
	}
	return pairs.Cables(set, clustersOf(s, name))
}

// Relays are the clusters by which pairs of clusters of a ClusterSet are to reach each other. The names of a pair are
// sorted.
func Relays(s State, name string) map[[2]string]string {
	set := s.Set(name)
	if set == nil {
		return nil
	}
	return pairs.Relays(set, clustersOf(s, name))
}

// clustersOf are the Clusters of a ClusterSet's members.
func clustersOf(s State, name string) []*clusterv1alpha1.Cluster {
	var out []*clusterv1alpha1.Cluster
	for _, m := range s.Members {
		if c := s.Cluster(m.Name); c != nil && m.Spec.ClusterSet == name {
			out = append(out, c)
		}
	}
	return out
}

// idleCables names the entries of spec.cables that decide for no pair, if there are pairs: a typo in an exception is
// not to let what it is for go unencrypted without a word.
func idleCables(s State, set *v1alpha1.ClusterSet) []string {
	entries := pairs.Entries(set, clustersOf(s, set.Name))
	if len(entries) == 0 {
		return nil
	}
	decides := deciding(entries)
	var out []string
	for i, rule := range set.Spec.Cables {
		if !decides[i] {
			out = append(out, fmt.Sprintf("cables[%d] (%s)", i, rule.Driver))
		}
	}
	return out
}

// idleRelays names the entries of spec.relays that decide for no pair, if there are three members: with fewer none
// could.
func idleRelays(s State, set *v1alpha1.ClusterSet) []string {
	of := clustersOf(s, set.Name)
	if len(of) < 3 {
		return nil
	}
	decides := deciding(pairs.RelayEntries(set, of))
	var out []string
	for i, rule := range set.Spec.Relays {
		if !decides[i] {
			out = append(out, fmt.Sprintf("relays[%d] (through %s)", i, clip.Line(rule.Through)))
		}
	}
	return out
}

// deciding are the entries that decide for some pair.
func deciding(entries map[[2]string]int) map[int]bool {
	out := map[int]bool{}
	for _, i := range entries {
		out[i] = true
	}
	return out
}
