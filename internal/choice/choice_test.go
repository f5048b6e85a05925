// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func failoverTo(enough int32, clusters ...string) *v1alpha1.ClusterChoice {
	return &v1alpha1.ClusterChoice{Failover: &v1alpha1.FailoverPolicy{Clusters: clusters, MinReadyBackends: enough}}
}

func weights(all ...v1alpha1.ClusterWeight) *v1alpha1.ClusterChoice {
	return &v1alpha1.ClusterChoice{Weights: all}
}

func TestClusters(t *testing.T) {
	c1 := Candidate{Cluster: "c1", Local: true, Ready: 3}
	c2, c3 := Candidate{Cluster: "c2", Ready: 2}, Candidate{Cluster: "c3", Ready: 10}
	tests := []struct {
		name       string
		policy     *v1alpha1.ClusterChoice
		candidates []Candidate
		want       string // cluster*weight:listed
	}{
		{"nobody can serve", nil, nil, ""},
		{"the local cluster serves alone", nil, []Candidate{c1, c2, c3}, "c1*1:3"},
		{"all others share evenly", nil, []Candidate{c2, c3}, "c2*1:2 c3*1:10"},
		{"an empty choice is the default", &v1alpha1.ClusterChoice{}, []Candidate{c1, c2}, "c1*1:3"},
		{"the first in order serves, the local one notwithstanding", failoverTo(1, "c2", "c3"),
			[]Candidate{c1, c2, c3}, "c2*2:2"},
		{"the second serves when the first cannot", failoverTo(1, "c2", "c3"), []Candidate{c1, c3}, "c3*10:10"},
		{"below the threshold traffic spills over", failoverTo(3, "c2", "c3"), []Candidate{c1, c2, c3}, "c2*2:2 c3*10:10"},
		{"above the threshold it does not", failoverTo(2, "c2", "c3"), []Candidate{c1, c2, c3}, "c2*2:2"},
		{"those not listed come last", failoverTo(1, "c2"), []Candidate{c1, c3}, "c1*3:3 c3*10:10"},
		{"and also when the listed ones are too few", failoverTo(5, "c2"), []Candidate{c1, c2, c3}, "c1*3:3 c2*2:2 c3*10:10"},
		{"Local is the importing cluster", failoverTo(1, "Local", "c2"), []Candidate{c1, c2}, "c1*3:3"},
		{"Local and its name are one cluster", failoverTo(4, "Local", "c1", "c2"), []Candidate{c1, c2}, "c1*3:3 c2*2:2"},
		{"a threshold of 0 is 1", failoverTo(0, "c2", "c3"), []Candidate{c2, c3}, "c2*2:2"},
		{"weights", weights(v1alpha1.ClusterWeight{Cluster: "c2", Weight: 1},
			v1alpha1.ClusterWeight{Cluster: "c3", Weight: 3}),
			[]Candidate{c1, c2, c3}, "c2*1:2 c3*3:6"},
		{"each cluster lists one backend at least",
			weights(v1alpha1.ClusterWeight{Cluster: "c2", Weight: 100}, v1alpha1.ClusterWeight{Cluster: "c3", Weight: 1}),
			[]Candidate{c2, c3}, "c2*100:2 c3*1:1"},
		{"weight 0 is nothing",
			weights(v1alpha1.ClusterWeight{Cluster: "c1", Weight: 0}, v1alpha1.ClusterWeight{Cluster: "c3", Weight: 3}),
			[]Candidate{c1, c3}, "c3*3:10"},
		{"weight 0 is nothing even alone", weights(v1alpha1.ClusterWeight{Cluster: "c1", Weight: 0}), []Candidate{c1}, ""},
		{"those without a weight serve last",
			weights(v1alpha1.ClusterWeight{Cluster: "c1", Weight: 0}, v1alpha1.ClusterWeight{Cluster: "c9", Weight: 3}),
			[]Candidate{c1, c2, c3}, "c2*1:2 c3*1:2"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			shares := Clusters(test.policy, test.candidates)
			counts := Counts(test.policy, shares)
			var got []string
			for i, s := range shares {
				got = append(got, fmt.Sprintf("%s*%d:%d", s.Cluster, s.Weight, counts[i]))
			}
			if text := strings.Join(got, " "); text != test.want {
				t.Errorf("got %q, want %q", text, test.want)
			}
		})
	}
}
