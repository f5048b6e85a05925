// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"strings"
	"testing"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestRelaysThatCannotBe(t *testing.T) {
	one := make([]policyv1alpha1.ClusterAffinity, 1)
	bad := []policyv1alpha1.ClusterAffinity{{LabelSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Gt"}}}}}
	for name, c := range map[string]struct {
		relay v1alpha1.PairRelay
		want  string // part of the error; "" is none
	}{
		"one selector": {v1alpha1.PairRelay{Clusters: one, Through: "c3"}, ""},
		"none":         {v1alpha1.PairRelay{Through: "c3"}, "relays[0]: clusters has 0 selectors"},
		"three": {v1alpha1.PairRelay{Clusters: make([]policyv1alpha1.ClusterAffinity, 3), Through: "c3"},
			"has 3 selectors"},
		"through nobody":   {v1alpha1.PairRelay{Clusters: one}, "relays[0]: through is empty"},
		"a wrong selector": {v1alpha1.PairRelay{Clusters: bad, Through: "c3"}, "relays[0].clusters: labelSelector"},
	} {
		spec := v1alpha1.ClusterSetSpec{Shards: 4, DNS: v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}},
			Cable:  v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
			Relays: []v1alpha1.PairRelay{c.relay}}
		err := Validate(&v1alpha1.ClusterSet{Spec: spec})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
