// SPDX-License-Identifier: Apache-2.0

package services

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// What the controller has written itself, or is writing, is no reason to decide again.
func TestWhichRecordsAreLookedAt(t *testing.T) {
	r := new(Reconciler)
	record := func(clusters ...string) *v1alpha1.ExportRecord {
		out := &v1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ExportRecordName("c1", 2)}}
		out.Spec = v1alpha1.ExportRecordSpec{Cluster: "c1", Shard: 2}
		for _, c := range clusters {
			out.Spec.Exports = append(out.Spec.Exports, v1alpha1.Export{Namespace: "sample", Name: c})
		}
		return out
	}
	before, own, forged := record(), record("web"), record("web", "forged")
	p := r.foreign()
	if !p.Create(event.CreateEvent{Object: own}) {
		t.Error("one that was there before the controller is not looked at")
	}
	r.writing(own.Name, *own.Spec.DeepCopy())
	for name, x := range map[string]struct{ got, want bool }{
		"its own new one":      {p.Create(event.CreateEvent{Object: own}), false},
		"its own write":        {p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: own}), false},
		"somebody else's":      {p.Update(event.UpdateEvent{ObjectOld: own, ObjectNew: forged}), true},
		"one that was deleted": {p.Delete(event.DeleteEvent{Object: own}), true},
	} {
		if x.got != x.want {
			t.Errorf("%s: looked at: %t, want %t", name, x.got, x.want)
		}
	}
	if !p.Create(event.CreateEvent{Object: own}) {
		t.Error("one that was deleted and restored by somebody else is not looked at")
	}
}
