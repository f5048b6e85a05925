// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"
	"testing"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestRelaysThatDecideForNobody are a problem, and so is one that names clusters that do not exist.
func TestRelaysThatDecideForNobody(t *testing.T) {
	fleetOf := func(relays ...v1alpha1.PairRelay) State {
		s := State{Sets: []v1alpha1.ClusterSet{set("blue", 0)}}
		for _, name := range []string{"c1", "c2", "c3"} {
			s.Members = append(s.Members, v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: v1alpha1.MemberSpec{ClusterSet: "blue"}})
			s.Clusters = append(s.Clusters, cluster(name))
		}
		s.Sets[0].Spec.Cable.Driver, s.Sets[0].Spec.Relays = v1alpha1.CableWireGuard, relays
		return s
	}
	through := func(relay string, of ...string) v1alpha1.PairRelay {
		return v1alpha1.PairRelay{Through: relay, Clusters: []policyv1alpha1.ClusterAffinity{{ClusterNames: of}}}
	}
	for name, c := range map[string]struct {
		relays []v1alpha1.PairRelay
		want   map[string]string // parts of problems by reason
	}{
		"a pair": {[]v1alpha1.PairRelay{through("c3", "c1", "c2")}, nil},
		"of one cluster": {[]v1alpha1.PairRelay{through("c3", "c1")}, map[string]string{
			v1alpha1.ReasonNoPairMatches: "relays[0] (through c3)"}},
		"after the other": {[]v1alpha1.PairRelay{through("c3"), through("c3", "c1", "c2")}, map[string]string{
			v1alpha1.ReasonNoPairMatches: "relays[1]"}},
		"a typo": {[]v1alpha1.PairRelay{through("c33", "c1", "c2")}, map[string]string{
			v1alpha1.ReasonClusterNotFound: "spec.relays of ClusterSet blue names clusters that Karmada does not have: c33 " +
				"(relays[0])"}},
		"a typo in a selector": {[]v1alpha1.PairRelay{through("c3", "c1", "c2", "c22")}, map[string]string{
			v1alpha1.ReasonClusterNotFound: "does not have: c22 (relays[0])"}},
		"a typo in an exception": {[]v1alpha1.PairRelay{{Through: "c3", Clusters: []policyv1alpha1.ClusterAffinity{
			{ExcludeClusters: []string{"c33"}}}}}, map[string]string{
			v1alpha1.ReasonClusterNotFound: "does not have: c33 (relays[0])"}},
	} {
		s := fleetOf(c.relays...)
		found := map[string]string{}
		for _, p := range Problems(s, "blue") {
			if slices.Contains([]string{v1alpha1.ReasonNoPairMatches, v1alpha1.ReasonClusterNotFound}, p.Reason) {
				found[p.Reason] += p.Message
			}
		}
		if len(found) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, found, c.want)
		}
		for reason, part := range c.want {
			if !strings.Contains(found[reason], part) {
				t.Errorf("%s: %q, want %q", name, found[reason], part)
			}
		}
	}
	for name, change := range map[string]func(*State){
		"two members, of which no pair could have a relay": func(s *State) { s.Members = s.Members[:2] },
		"settings that are not in force":                   func(s *State) { s.Sets[0].Spec.Shards = 0 },
		"a third of another ClusterSet":                    func(s *State) { s.Members[2].Spec.ClusterSet = "red" },
	} {
		s := fleetOf(through("c3", "c1"))
		change(&s)
		for _, p := range Problems(s, "blue") {
			if p.Reason == v1alpha1.ReasonNoPairMatches {
				t.Errorf("%s: %s", name, p.Message)
			}
		}
	}
	s := fleetOf(through("c3", "c1", "c2"))
	if of := Relays(s, "blue"); of[[2]string{"c1", "c2"}] != "c3" || Relays(s, "red") != nil {
		t.Errorf("%v", of)
	}
}
