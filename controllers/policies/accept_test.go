// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestAccept(t *testing.T) {
	names := func(n ...string) *v1alpha1.ImportScope { return &v1alpha1.ImportScope{ClusterNames: n} }
	broken := names("c1")
	broken.ClusterSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a",
		Operator: "Near"}}}
	failover := func(n ...string) *v1alpha1.ClusterChoice {
		return &v1alpha1.ClusterChoice{Failover: &v1alpha1.FailoverPolicy{Clusters: n}}
	}
	weights := &v1alpha1.ClusterChoice{Weights: []v1alpha1.ClusterWeight{{Cluster: "c1"}, {Cluster: "c7"}}}
	var many []string
	for n := range 30 {
		many = append(many, fmt.Sprintf("x%02d", n))
	}
	for name, c := range map[string]struct {
		spec      v1alpha1.ServicePolicySpec
		exporters string
		want      string
		message   string
	}{
		"in force": {v1alpha1.ServicePolicySpec{Choice: failover("Local", "c2"), Importers: names("c1")}, "c1",
			"True Accepted", "in force"},
		"nobody exports": {v1alpha1.ServicePolicySpec{}, "", "False NoExport", "no cluster exports sample/web"},
		"unknown importer": {v1alpha1.ServicePolicySpec{Importers: names("c9", "c1")}, "c1", "False UnknownCluster",
			"c9: not in any ClusterSet"},
		"unknown in a failover": {v1alpha1.ServicePolicySpec{Choice: failover("c8", "Local")}, "c1", "False UnknownCluster",
			"c8: not"},
		"unknown in weights": {v1alpha1.ServicePolicySpec{Choice: weights}, "c1", "False UnknownCluster", "c7: not"},
		"many unknown": {v1alpha1.ServicePolicySpec{Importers: names(many...)}, "c1", "False UnknownCluster",
			"x09 and 20 more: not"},
		"a selector that cannot be used": {v1alpha1.ServicePolicySpec{Importers: broken}, "c1", "False Invalid",
			`"Near" is not a valid label selector operator; until it is corrected it selects no cluster`},
		"all at once": {v1alpha1.ServicePolicySpec{Importers: broken, Choice: failover("c8")}, "", "False Invalid",
			"c8: not in any ClusterSet"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.ServicePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "web", Generation: 3},
				Spec: c.spec}
			got := Accept(p, []string{"c1", "c2"}, strings.Fields(c.exporters))
			if is := string(got.Status) + " " + got.Reason; is != c.want || !strings.Contains(got.Message, c.message) ||
				got.ObservedGeneration != 3 {
				t.Errorf("%s: %s", is, got.Message)
			}
		})
	}
}
