// SPDX-License-Identifier: Apache-2.0

package propagation_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sealane-io/sealane/propagation"
)

// workOf is a Work that carries manifests.
func workOf(manifests ...string) *workv1alpha1.Work {
	work := &workv1alpha1.Work{}
	work.ManagedFields = make([]metav1.ManagedFieldsEntry, 1)
	for _, m := range manifests {
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests,
			workv1alpha1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(m)}})
	}
	return work
}

// TestWhatIsPackedSaysTheSame: a manifest that a cache has packed takes less, once and twice, and is read as it was.
func TestWhatIsPackedSaysTheSame(t *testing.T) {
	t.Parallel()
	small := `{"spec":{"text":"few"}}`
	large := `{"spec":{"text":"` + strings.Repeat("10.1.0.1 ", 2000) + `"}}`
	for _, manifest := range []string{small, large} {
		work := workOf(manifest)
		for range 2 { // an informer may call it again
			if _, err := propagation.Pack(work); err != nil {
				t.Fatal(err)
			}
		}
		kept := len(work.Spec.Workload.Manifests[0].Raw)
		if want := min(len(small), len(manifest)/4); kept > max(want, len(large)/4) {
			t.Errorf("of %d bytes %d are kept, want a quarter at most of what is large", len(manifest), kept)
		}
		if work.ManagedFields != nil {
			t.Error("managedFields are kept")
		}
		got, err := propagation.Manifest(work)
		if err != nil || string(got) != manifest {
			t.Errorf("a manifest of %d bytes is read as %d, %v", len(manifest), len(got), err)
		}
		var spec struct{ Text string }
		if err := propagation.Spec(work, &spec); err != nil || !strings.Contains(manifest, spec.Text) || spec.Text == "" {
			t.Errorf("the spec is %.20q, %v", spec.Text, err)
		}
	}
}

// TestWhatIsPackedIsNotWritten: nobody can send it to an API server, and what is no manifest is an error, not a panic.
func TestWhatIsPackedIsNotWritten(t *testing.T) {
	t.Parallel()
	work := workOf(`{"spec":"` + strings.Repeat("x", 5000) + `"}`)
	if _, err := propagation.Pack(work); err != nil {
		t.Fatal(err)
	}
	if out, err := json.Marshal(work); err == nil {
		t.Errorf("it is encoded as %.80s", out)
	}
	raw := &work.Spec.Workload.Manifests[0].Raw
	*raw = bytes.Clone((*raw)[:len(*raw)/2])
	if got, err := propagation.Manifest(work); err == nil {
		t.Errorf("half of it is read as %.80s", got)
	}
	for _, work := range []*workv1alpha1.Work{workOf(), workOf("{}", "{}")} {
		if _, err := propagation.Pack(work); err != nil {
			t.Error(err)
		}
		if _, err := propagation.Manifest(work); err == nil {
			t.Errorf("of %d manifests one is read", len(work.Spec.Workload.Manifests))
		}
	}
}
