// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// set is a valid ClusterSet that selects clusters by name; age counts down from the youngest, 0.
func set(name string, age int64, clusters ...string) v1alpha1.ClusterSet {
	s := v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(1e9-age, 0)}}
	s.Spec.ClusterAffinity.ClusterNames = clusters
	s.Spec.Cable = v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800}
	s.Spec.DNS.Domains = []string{"clusterset.local"}
	s.Spec.Shards = 4
	return s
}

func cluster(name string) clusterv1alpha1.Cluster {
	return clusterv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1alpha1.ClusterSpec{ID: "id-" + name},
	}
}

func TestProblems(t *testing.T) {
	broken := set("broken", 0, "c3")
	broken.Spec.Cable = v1alpha1.CableSpec{Driver: "ipx", Port: 4500, VXLANPort: 4501}
	state := State{
		Sets:     []v1alpha1.ClusterSet{set("old", 9, "c1"), set("new", 0, "c1", "c2"), broken},
		Clusters: []clusterv1alpha1.Cluster{cluster("c1"), cluster("c3")},
		Members: []v1alpha1.Member{{
			ObjectMeta: metav1.ObjectMeta{Name: "c3"},
			Spec:       v1alpha1.MemberSpec{ClusterSet: "old", ClusterUID: "id-c3", Phase: v1alpha1.MemberLeaving},
		}},
	}
	for name, want := range map[string][]string{
		"old":     {"c3 Leaving", "leave --force"},
		"new":     {"c1 SelectedElsewhere", "the older ClusterSet old", "c2 ClusterNotFound"},
		"broken":  {"InvalidSettings", `"ipx"`, "vxlanPort 4501"},
		"missing": nil,
	} {
		var b strings.Builder
		for _, p := range Problems(state, name) {
			fmt.Fprintf(&b, "%s %s %s\n", p.Cluster, p.Reason, p.Message)
		}
		for _, part := range want {
			if !strings.Contains(b.String(), part) {
				t.Errorf("%s: %q lacks %q", name, b.String(), part)
			}
		}
	}
}

// A rule that names a cluster which does not exist is in force without it, and the ClusterSet says so, once for all.
func TestExportersThatDoNotExist(t *testing.T) {
	named := func(clusters ...string) v1alpha1.ExporterRule {
		return v1alpha1.ExporterRule{ExporterScope: v1alpha1.ExporterScope{ClusterNames: clusters}}
	}
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("typo-%d", i))
	}
	for name, c := range map[string]struct {
		rules []v1alpha1.ExporterRule
		want  string // part of the only problem, "" for none
	}{
		"no rules":           {nil, ""},
		"members and others": {[]v1alpha1.ExporterRule{named("c1", "c2"), named("c3")}, ""},
		"nobody":             {[]v1alpha1.ExporterRule{named()}, ""},
		"a typo": {
			[]v1alpha1.ExporterRule{named("c1"), named("cl", "c2")}, ": cl (exporters[1]); correct the names",
		},
		"typos": {
			[]v1alpha1.ExporterRule{named("cl"), named("cl", "c22")},
			"cl (exporters[0]), cl (exporters[1]), c22 (exporters[1]);",
		},
		"more than a message says": {
			[]v1alpha1.ExporterRule{named(many...)}, "typo-9 (exporters[0]) and 990 more; correct",
		},
	} {
		t.Run(name, func(t *testing.T) {
			blue := set("blue", 0, "c1", "c2")
			blue.Spec.Services.Exporters = c.rules
			problems := Problems(State{Sets: []v1alpha1.ClusterSet{blue},
				Clusters: []clusterv1alpha1.Cluster{cluster("c1"), cluster("c2"), cluster("c3")}}, "blue")
			if c.want == "" {
				if len(problems) > 0 {
					t.Errorf("problems %v", problems)
				}
				return
			}
			if len(problems) != 1 || problems[0].Reason != v1alpha1.ReasonClusterNotFound || problems[0].Cluster != "" ||
				!strings.Contains(problems[0].Message, c.want) {
				t.Errorf("problems %v, want one with %q", problems, c.want)
			}
		})
	}
}

// A pair that names a cluster which does not exist is a problem, and no other pair is.
func TestPairsThatDoNotExist(t *testing.T) {
	blue := set("blue", 0, "c1", "c2")
	blue.Spec.Topology.Pairs = []v1alpha1.TopologyPair{
		{Clusters: []string{"c1", "c2"}, Mode: v1alpha1.TopologyMesh}, {Clusters: []string{"c1", "cl"},
			Mode: v1alpha1.TopologyMesh}}
	state := State{Sets: []v1alpha1.ClusterSet{blue}, Clusters: []clusterv1alpha1.Cluster{cluster("c1"), cluster("c2")}}
	problems := Problems(state, "blue")
	if len(problems) != 1 || problems[0].Reason != v1alpha1.ReasonClusterNotFound ||
		!strings.Contains(problems[0].Message, "not have: cl (pairs[1]);") {
		t.Errorf("problems %v", problems)
	}
}

// What is stated of a cluster that does not exist, and an exclusion that excludes nobody, are problems.
func TestNamesThatDoNotExist(t *testing.T) {
	blue := set("blue", 0)
	blue.Spec.ClusterAffinity.ExcludeClusters = []string{"c2", "c-2"}
	blue.Spec.Clusters = []v1alpha1.ClusterOverride{{Name: "c1"}, {Name: "c2"}, {Name: "cl"}, {Name: "c12"}}
	state := State{Sets: []v1alpha1.ClusterSet{blue}, Clusters: []clusterv1alpha1.Cluster{cluster("c1"), cluster("c2")}}
	var got []string
	for _, p := range Problems(state, "blue") {
		got = append(got, p.Cluster+p.Reason+" "+p.Message)
	}
	want := []string{
		"ClusterNotFound spec.clusterAffinity.exclude of ClusterSet blue names clusters that Karmada does not have: c-2; " +
			"correct the names, or join these clusters to Karmada: each other cluster that is selected belongs",
		"ClusterNotFound spec.clusters of ClusterSet blue names clusters that Karmada does not have: cl, c12; " +
			"correct the names, or join these clusters to Karmada: what it states of them has no effect",
	}
	if !slices.Equal(got, want) {
		t.Errorf("problems %q", got)
	}
}

// A canary that is no member is a problem, whatever keeps it from being one; one that is about to be a member is none.
func TestCanariesThatAreNoMembers(t *testing.T) {
	for canary, want := range map[string]string{
		"":   "",
		"c1": "",
		"c2": "CanaryNotMember spec.rollOut.canary of ClusterSet blue names c2, which is no member; name another",
		"c3": "CanaryNotMember spec.rollOut.canary of ClusterSet blue names c3, which is a member of ClusterSet red;",
		"cl": "ClusterNotFound spec.rollOut.canary of ClusterSet blue names cl, and Karmada has no such cluster; correct",
	} {
		t.Run(canary, func(t *testing.T) {
			blue, red := set("blue", 0, "c1"), set("red", 1, "c3")
			blue.Spec.RollOut.Canary = canary
			problems := Problems(State{Sets: []v1alpha1.ClusterSet{blue, red},
				Clusters: []clusterv1alpha1.Cluster{cluster("c1"), cluster("c2"), cluster("c3")}}, "blue")
			var got string
			for _, p := range problems {
				got += p.Reason + " " + p.Message
			}
			if !strings.HasPrefix(got, want) || want == "" && got != "" || len(problems) > 1 ||
				want != "" && problems[0].Cluster != canary {
				t.Errorf("problems %v, want %q", problems, want)
			}
		})
	}
}
