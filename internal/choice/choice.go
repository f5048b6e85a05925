// SPDX-License-Identifier: Apache-2.0

// Package choice decides which exporting clusters serve a port of an imported service, and in what
// proportion. The cluster agent applies it to endpoints and the DNS server to ClusterIPs, so that both modes
// of a service follow the same rule. It is pure.
package choice

import (
	"cmp"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Candidate is a cluster that can serve a port: it is connected, exposes the port and has a backend for it.
type Candidate struct {
	Cluster string
	// Local says that it is the importing cluster itself.
	Local bool
	// Ready backends of the port, at least 1.
	Ready int
}

// Share of a cluster in the traffic to a port.
type Share struct {
	Cluster string
	// Weight relative to the other shares, at least 1.
	Weight int
	// Ready as in the Candidate.
	Ready int
}

// Clusters returns the shares of those that serve, in the order of the candidates; none without candidates,
// or where all that could serve have weight 0.
func Clusters(policy *v1alpha1.ClusterChoice, candidates []Candidate) []Share {
	switch {
	case policy != nil && policy.Failover != nil:
		return failover(policy.Failover, candidates)
	case policy != nil && len(policy.Weights) > 0:
		return weighted(policy.Weights, candidates)
	}
	if i := slices.IndexFunc(candidates, func(c Candidate) bool { return c.Local }); i >= 0 {
		candidates = candidates[i : i+1]
	}
	return evenly(candidates)
}

func evenly(candidates []Candidate) []Share {
	shares := make([]Share, 0, len(candidates))
	for _, c := range candidates {
		shares = append(shares, Share{Cluster: c.Cluster, Weight: 1, Ready: c.Ready})
	}
	return shares
}

// failover takes cluster after cluster, and at last all those that are not listed, until they have enough
// backends between them. Each counts with its backends.
func failover(policy *v1alpha1.FailoverPolicy, candidates []Candidate) []Share {
	used := make([]bool, len(candidates))
	enough, have := int(max(policy.MinReadyBackends, 1)), 0
	for _, name := range policy.Clusters {
		i := slices.IndexFunc(candidates, func(c Candidate) bool {
			return c.Cluster == name || c.Local && name == v1alpha1.LocalCluster
		})
		if i < 0 || used[i] {
			continue
		}
		used[i] = true
		if have += candidates[i].Ready; have >= enough {
			break
		}
	}
	shares := make([]Share, 0, len(candidates))
	for i, c := range candidates {
		if used[i] || have < enough && !listed(policy.Clusters, c) {
			shares = append(shares, Share{Cluster: c.Cluster, Weight: max(c.Ready, 1), Ready: c.Ready})
		}
	}
	return shares
}

func listed(names []string, c Candidate) bool {
	return slices.Contains(names, c.Cluster) || c.Local && slices.Contains(names, v1alpha1.LocalCluster)
}

func weighted(weights []v1alpha1.ClusterWeight, candidates []Candidate) []Share {
	shares := make([]Share, 0, len(candidates))
	rest := make([]Candidate, 0, len(candidates))
	for _, c := range candidates {
		i := slices.IndexFunc(weights, func(w v1alpha1.ClusterWeight) bool { return w.Cluster == c.Cluster })
		switch {
		case i < 0:
			rest = append(rest, c)
		case weights[i].Weight > 0:
			shares = append(shares, Share{Cluster: c.Cluster, Weight: int(weights[i].Weight), Ready: c.Ready})
		}
	}
	if len(shares) > 0 {
		return shares
	}
	return evenly(rest)
}

// Counts returns how many backends of each share to list, at least one and at most all, so that as many as
// possible are listed in the proportion of the weights. Only a policy with weights limits them.
func Counts(policy *v1alpha1.ClusterChoice, shares []Share) []int {
	counts := make([]int, len(shares))
	for i, s := range shares {
		counts[i] = s.Ready
	}
	if policy == nil || policy.Failover != nil || len(policy.Weights) == 0 || len(shares) < 2 {
		return counts
	}
	// The share with the fewest backends for its weight is listed whole.
	least := slices.MinFunc(shares, func(a, b Share) int { return cmp.Compare(a.Ready*b.Weight, b.Ready*a.Weight) })
	for i, s := range shares {
		counts[i] = min(max((s.Weight*least.Ready+least.Weight/2)/least.Weight, 1), s.Ready)
	}
	return counts
}
