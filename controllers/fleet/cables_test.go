// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"slices"
	"strings"
	"testing"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestCables(t *testing.T) {
	names := func(of ...string) policyv1alpha1.ClusterAffinity {
		return policyv1alpha1.ClusterAffinity{ClusterNames: of}
	}
	site := func(name string) policyv1alpha1.ClusterAffinity {
		return policyv1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
			"site": name}}}
	}
	rule := func(driver v1alpha1.CableDriver, of ...policyv1alpha1.ClusterAffinity) v1alpha1.PairCable {
		return v1alpha1.PairCable{Clusters: of, Driver: driver, Unencrypted: driver == v1alpha1.CableVXLAN}
	}
	const wireguard, vxlan = v1alpha1.CableWireGuard, v1alpha1.CableVXLAN
	// c1 and c2 are in the site east, c3 in west; Karmada has no cluster gone.
	all := []string{"c1 c2", "c1 c3", "c2 c3"}
	for name, c := range map[string]struct {
		driver v1alpha1.CableDriver
		rules  []v1alpha1.PairCable
		want   []string
		idle   string // entries, "" is none
	}{
		"nothing is said": {"", nil, nil, ""},
		"of all":          {vxlan, nil, all, ""},
		"of two by name":  {wireguard, []v1alpha1.PairCable{rule(vxlan, names("c2", "c1"))}, []string{"c1 c2"}, ""},
		"within a site":   {wireguard, []v1alpha1.PairCable{rule(vxlan, site("east"))}, []string{"c1 c2"}, ""},
		"between sites, in any order": {wireguard, []v1alpha1.PairCable{rule(vxlan, site("west"), site("east"))}, all[1:],
			""},
		"of one with all": {wireguard, []v1alpha1.PairCable{rule(vxlan, names("c1"), names())}, all[:2], ""},
		"the first that matches": {wireguard, []v1alpha1.PairCable{rule(wireguard, names("c1"), names("c2")),
			rule(vxlan, names())}, all[1:], ""},
		"all but those of a rule": {vxlan, []v1alpha1.PairCable{rule(wireguard, names("c3"), names())}, all[:1], ""},
		"a rule for nobody": {wireguard, []v1alpha1.PairCable{rule(vxlan, site("north"), names())}, nil,
			"cables[0] (vxlan)"},
		"an exception with a typo": {vxlan, []v1alpha1.PairCable{rule(wireguard, site("West"), names()),
			rule(wireguard, site("East"))}, all, "cables[0] (wireguard), cables[1] (wireguard)"},
		"an exception that comes too late": {wireguard, []v1alpha1.PairCable{rule(vxlan, names()),
			rule(wireguard, names("c3"), names())}, all, "cables[1] (wireguard)"},
	} {
		t.Run(name, func(t *testing.T) {
			s := State{Sets: []v1alpha1.ClusterSet{set("blue", 0)}}
			for name, site := range map[string]string{"c1": "east", "c2": "east", "c3": "west", "gone": ""} {
				s.Members = append(s.Members, v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: name},
					Spec: v1alpha1.MemberSpec{ClusterSet: "blue"}})
				if site != "" {
					k := cluster(name)
					k.Labels = map[string]string{"site": site}
					s.Clusters = append(s.Clusters, k)
				}
			}
			s.Clusters = append(s.Clusters, clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}})
			s.Sets[0].Spec.Cable.Driver, s.Sets[0].Spec.Cables = c.driver, c.rules
			got, want := map[string]v1alpha1.CableDriver{}, map[string]v1alpha1.CableDriver{}
			for pair, driver := range Cables(s, "blue") {
				got[pair[0]+" "+pair[1]] = driver
			}
			for _, pair := range c.want {
				want[pair] = vxlan
			}
			if !maps.Equal(got, want) {
				t.Errorf("expected %v, found %v", want, got)
			}
			if found := strings.Join(idleCables(s, &s.Sets[0]), ", "); found != c.idle {
				t.Errorf("expected idle %q, found %q", c.idle, found)
			}
			s.Sets[0].Spec.Cable.Driver, s.Sets[0].Spec.Cable.Unencrypted = wireguard, false
			told := slices.ContainsFunc(Problems(s, "blue"), func(p v1alpha1.Problem) bool {
				return p.Reason == v1alpha1.ReasonNoPairMatches && strings.Contains(p.Message, c.idle)
			})
			if told != (c.idle != "") {
				t.Errorf("idle entries are a problem: %t", told)
			}
		})
	}
}
