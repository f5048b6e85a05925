// SPDX-License-Identifier: Apache-2.0

package propagation

import (
	"testing"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestSpec(t *testing.T) {
	raw, err := Encode(v1alpha1.BundleSpec{Revision: 1 << 53, Shard: 2, Imports: []v1alpha1.Import{},
		ExportConditions: []v1alpha1.ExportCondition{}})
	want := `{"exportConditions":[],"imports":[],"revision":9007199254740992,"shard":2}`
	if err != nil || string(raw) != want {
		t.Fatalf("%s, %v, want %s", raw, err, want)
	}
	around := `{"apiVersion":"v1","kind":"K","metadata":{"name":"n"}}`
	work := &workv1alpha1.Work{}
	work.Spec.Workload.Manifests = []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{
		Raw: withSpec([]byte(around), raw)}}}
	var got v1alpha1.BundleSpec
	if err := Spec(work, &got); err != nil || got.Revision != 1<<53 || got.Imports == nil {
		t.Errorf("%+v, %v", got, err)
	}
	if !sameSpec(work, []byte(`{ "shard": 2, "revision": 9007199254740992, "imports": [], "exportConditions": [] }`)) {
		t.Error("another order of keys is another spec")
	}
	for _, other := range []string{`{"exportConditions":[],"imports":[],"revision":9007199254740992,"shard":3}`, `{`, ``} {
		if sameSpec(work, []byte(other)) {
			t.Errorf("%q is the same spec", other)
		}
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
