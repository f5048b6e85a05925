// SPDX-License-Identifier: Apache-2.0

package pairs_test

import (
	"maps"
	"testing"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/pairs"
)

func TestRelays(t *testing.T) {
	t.Parallel()
	names := func(of ...string) policyv1alpha1.ClusterAffinity {
		return policyv1alpha1.ClusterAffinity{ClusterNames: of}
	}
	through := func(relay string, of ...policyv1alpha1.ClusterAffinity) v1alpha1.PairRelay {
		return v1alpha1.PairRelay{Clusters: of, Through: relay}
	}
	type list = []v1alpha1.PairRelay
	type relays = map[[2]string]string
	var clusters []*clusterv1alpha1.Cluster
	for _, name := range []string{"c3", "c1", "c2"} {
		c := &clusterv1alpha1.Cluster{}
		c.Name = name
		clusters = append(clusters, c)
	}
	for name, c := range map[string]struct {
		rules list
		want  relays
	}{
		"none":               {nil, relays{}},
		"a pair":             {list{through("c3", names("c2", "c1"))}, relays{{"c1", "c2"}: "c3"}},
		"all but its own":    {list{through("c3", names())}, relays{{"c1", "c2"}: "c3"}},
		"one with all":       {list{through("c1", names("c2"), names())}, relays{{"c2", "c3"}: "c1"}},
		"all with one":       {list{through("c1", names(), names("c2"))}, relays{{"c2", "c3"}: "c1"}},
		"one with another":   {list{through("c1", names("c3"), names("c2"))}, relays{{"c2", "c3"}: "c1"}},
		"the first counts":   {list{through("c9", names("c1", "c2")), through("c3", names())}, relays{{"c1", "c2"}: "c9"}},
		"a rule of nothing":  {list{{Through: "c3"}}, relays{}},
		"its own pair alone": {list{through("c3", names("c3"), names("c1"))}, relays{}},
		"two relays": {list{through("c3", names("c1", "c2")), through("c2", names())},
			relays{{"c1", "c2"}: "c3", {"c1", "c3"}: "c2"}},
	} {
		set := &v1alpha1.ClusterSet{}
		set.Spec.Relays = c.rules
		if got := pairs.Relays(set, clusters); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
