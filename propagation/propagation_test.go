// SPDX-License-Identifier: Apache-2.0

package propagation

import (
	"testing"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestManifestAndBack(t *testing.T) {
	want := v1alpha1.BundleSpec{Revision: 7, Shard: 2, Imports: []v1alpha1.Import{},
		ExportConditions: []v1alpha1.ExportCondition{}}
	m, err := Manifest(KindBundle, v1alpha1.BundleName(2), want)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := m.Object["status"]; ok {
		t.Error("a manifest carries a status, which would wipe the member's")
	}
	raw, err := m.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	work := &workv1alpha1.Work{}
	work.Spec.Workload.Manifests = []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}
	var got v1alpha1.BundleSpec
	if err := Spec(work, &got); err != nil || got.Revision != 7 || got.Imports == nil {
		t.Errorf("%+v, %v", got, err)
	}
	if Spec(&workv1alpha1.Work{}, &got) == nil {
		t.Error("a Work without a manifest has a spec")
	}
	if Status(work) != nil {
		t.Error("a Work without a status has one")
	}
}

func TestClusterOfIsTheNamespace(t *testing.T) {
	work := &workv1alpha1.Work{}
	for namespace, want := range map[string]string{"karmada-es-c1": "c1", "default": "", "karmada-es-": ""} {
		work.Namespace = namespace
		if got := ClusterOf(work); got != want {
			t.Errorf("%s: %q", namespace, got)
		}
	}
}
