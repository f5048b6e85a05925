// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func byName(names ...string) policyv1alpha1.ClusterAffinity {
	return policyv1alpha1.ClusterAffinity{ClusterNames: names}
}

func excluding(a policyv1alpha1.ClusterAffinity, names ...string) policyv1alpha1.ClusterAffinity {
	a.ExcludeClusters = names
	return a
}

func byLabel(key, value string) policyv1alpha1.ClusterAffinity {
	return policyv1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}}
}

func TestAdmitAndDismiss(t *testing.T) {
	prod := map[string]string{"env": "prod"}
	for name, tc := range map[string]struct {
		edit   edit
		have   policyv1alpha1.ClusterAffinity
		labels map[string]string
		want   policyv1alpha1.ClusterAffinity
		remedy string
	}{
		"join: one more name":    {edit: admit, have: byName("c1", "c3"), want: byName("c1", "c2", "c3")},
		"join: named already":    {edit: admit, have: byName("c2"), want: byName("c2")},
		"join: all are selected": {edit: admit, have: byName(), want: byName()},
		"join: excluded so far": {edit: admit, have: excluding(byName(), "c2"),
			want: excluding(byName(), []string{}...)},
		"join: the label matches": {edit: admit, have: byLabel("env", "prod"), labels: prod,
			want: byLabel("env", "prod")},
		"join: the label is missing": {edit: admit, have: byLabel("env", "prod"), want: byLabel("env", "prod"),
			remedy: "kubectl label cluster c2 env=prod"},
		"leave: one of the names":              {edit: dismiss, have: byName("c1", "c2"), want: byName("c1")},
		"leave: the last name stays, excluded": {edit: dismiss, have: byName("c2"), want: excluding(byName("c2"), "c2")},
		"leave: one of all":                    {edit: dismiss, have: byName(), want: excluding(byName(), "c2")},
		"leave: not named":                     {edit: dismiss, have: byName("c1"), want: byName("c1")},
		"leave: excluded already": {edit: dismiss, have: excluding(byName(), "c2"),
			want: excluding(byName(), "c2")},
		"leave: selected by label": {edit: dismiss, have: byLabel("env", "prod"), labels: prod,
			want: byLabel("env", "prod"), remedy: "kubectl label cluster c2 env-"},
		"leave: not selected by label": {edit: dismiss, have: byLabel("env", "prod"), want: byLabel("env", "prod")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.edit(tc.have, "c2", tc.labels)
			if diff := cmp.Diff(normal(tc.want), normal(got)); diff != "" {
				t.Errorf("affinity (-want +got):\n%s", diff)
			}
			var f *finding
			if (tc.remedy != "") != errors.As(err, &f) || f != nil && !strings.Contains(f.remedy, tc.remedy) {
				t.Errorf("error %v, expected remedy %q", err, tc.remedy)
			}
		})
	}
}

// normal makes empty lists equal to none.
func normal(a policyv1alpha1.ClusterAffinity) policyv1alpha1.ClusterAffinity {
	if len(a.ExcludeClusters) == 0 {
		a.ExcludeClusters = nil
	}
	return a
}

func TestPolicyNameStaysWithinALabelValue(t *testing.T) {
	long := strings.Repeat("a", 62)
	if name := policyName(long + "b"); len(name) > 63 || name == policyName(long+"c") {
		t.Errorf("policyName: %q (%d characters)", name, len(name))
	}
	if name := policyName("whereami"); name != "sealane-export-whereami" {
		t.Errorf("policyName: %q", name)
	}
}
