// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"strings"
	"testing"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestSelectorsThatCannotBeUsed are no settings: one that selects nobody would let members leave, or go unencrypted.
func TestSelectorsThatCannotBeUsed(t *testing.T) {
	byLabel := func(operator metav1.LabelSelectorOperator, values ...string) policyv1alpha1.ClusterAffinity {
		return policyv1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "site", Operator: operator, Values: values}}}}
	}
	byField := func(key string, operator corev1.NodeSelectorOperator, values ...string) policyv1alpha1.ClusterAffinity {
		return policyv1alpha1.ClusterAffinity{FieldSelector: &policyv1alpha1.FieldSelector{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}}
	}
	for name, c := range map[string]struct {
		selector policyv1alpha1.ClusterAffinity
		want     string // part of the error; "" is none
	}{
		"all":                {policyv1alpha1.ClusterAffinity{}, ""},
		"a label":            {byLabel(metav1.LabelSelectorOpIn, "east"), ""},
		"no operator's name": {byLabel("in", "east"), `labelSelector: "in" is not a valid label selector operator`},
		"in nothing":         {byLabel(metav1.LabelSelectorOpIn), "labelSelector: values: Invalid value"},
		"no value of a label": {byLabel(metav1.LabelSelectorOpIn, "east west"),
			"labelSelector: values[0][site]: Invalid value"},
		"a field": {byField("region", corev1.NodeSelectorOpIn, "eu"), ""},
		"zones":   {byField("zone", corev1.NodeSelectorOpExists), ""},
		"no field": {byField("site", corev1.NodeSelectorOpIn, "eu"),
			`fieldSelector: key "site" is no field of a cluster`},
		"no operator of these": {byField("region", corev1.NodeSelectorOpGt, "1"),
			`fieldSelector: operator "Gt": expected In`},
		"a field in nothing": {byField("region", corev1.NodeSelectorOpIn), "fieldSelector: values: Invalid value"},
	} {
		for _, path := range []string{"clusterAffinity: ", "cables[0].clusters: "} {
			var s v1alpha1.ClusterSet
			s.Spec.Cable = v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800}
			s.Spec.Shards, s.Spec.DNS.Domains = 4, []string{"clusterset.local"}
			if path == "clusterAffinity: " {
				s.Spec.ClusterAffinity = c.selector
			} else {
				s.Spec.Cables = []v1alpha1.PairCable{{Driver: v1alpha1.CableWireGuard,
					Clusters: []policyv1alpha1.ClusterAffinity{{}, c.selector}}}
			}
			err := Validate(&s)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), path+c.want)) {
				t.Errorf("%s%s: expected %q, found %v", path, name, c.want, err)
			}
		}
	}
}
