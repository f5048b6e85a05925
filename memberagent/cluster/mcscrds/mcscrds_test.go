// SPDX-License-Identifier: Apache-2.0

package mcscrds

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/mcs-api/config/crd"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestDecide(t *testing.T) {
	want, err := wanted()
	if err != nil {
		t.Fatal(err)
	}
	with := func(managedBy, release, revision string) *apiextensionsv1.CustomResourceDefinition {
		c := want[0].DeepCopy()
		c.Labels = map[string]string{labelManagedBy: managedBy, crd.ReleaseVersionLabel: release,
			crd.CustomResourceDefinitionSchemaRevisionLabel: revision}
		return c
	}
	for _, c := range []struct {
		name string
		have *apiextensionsv1.CustomResourceDefinition
		want action
	}{
		{"missing", nil, create},
		{"ours, the same", with(v1alpha1.ManagedBy, "v0.5.2", "0"), leave},
		{"ours, older", with(v1alpha1.ManagedBy, "v0.4.0", "7"), update},
		{"ours, newer", with(v1alpha1.ManagedBy, "v0.6.0", "0"), leave},
		{"ours, without a version", with(v1alpha1.ManagedBy, "", ""), update},
		{"somebody else's, older", with("karmada", "v0.1.0", "0"), leave},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := decide(want[0], c.have); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}
