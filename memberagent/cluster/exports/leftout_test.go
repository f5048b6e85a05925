// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestLeftOut(t *testing.T) {
	export := &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "web"}}
	reported := []v1alpha1.Export{{Namespace: "sample", Name: "web"}}
	others := []v1alpha1.Export{{Namespace: "sample", Name: "db"}, {Namespace: "other", Name: "web"}}
	for name, c := range map[string]struct {
		status v1alpha1.BundleStatus
		want   bool
	}{
		"not reported yet":     {v1alpha1.BundleStatus{Exports: others}, false},
		"reported":             {v1alpha1.BundleStatus{Exports: reported, LeftOut: 3}, false},
		"there is no room":     {v1alpha1.BundleStatus{Exports: others, LeftOut: 3}, true},
		"for none at all":      {v1alpha1.BundleStatus{LeftOut: 1}, true},
		"everybody has a room": {v1alpha1.BundleStatus{Exports: reported}, false},
	} {
		if got := leftOut(&v1alpha1.Bundle{Status: c.status}, export); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	said := noRoom(export)
	if said.Type != "Ready" || said.Status != metav1.ConditionFalse || said.Reason != v1alpha1.ReasonBundleFull ||
		said.Name != "web" {
		t.Errorf("verdict %+v", said)
	}
}
