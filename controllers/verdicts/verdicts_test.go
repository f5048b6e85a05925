// SPDX-License-Identifier: Apache-2.0

package verdicts

import (
	"encoding/json"
	"slices"
	"testing"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// bundle is version n of a Work that says "Ready <reason>" of exports sample/<name>.
func bundle(t *testing.T, generation int64, ready map[string]string) *workv1alpha1.Work {
	t.Helper()
	spec := v1alpha1.BundleSpec{Imports: []v1alpha1.Import{}, ExportConditions: []v1alpha1.ExportCondition{}}
	for name, reason := range ready {
		spec.ExportConditions = append(spec.ExportConditions, v1alpha1.ExportCondition{
			Namespace: "sample", Name: name, Type: "Ready", Status: metav1.ConditionTrue, Reason: reason,
		})
	}
	work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{
		Namespace: "karmada-es-c1", Name: "b", UID: "1", Generation: generation,
		Labels: map[string]string{propagation.LabelKind: propagation.KindBundle},
	}}
	raw, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	work.Spec.Workload.Manifests = make([]workv1alpha1.Manifest, 1)
	work.Spec.Workload.Manifests[0].Raw = raw
	return work
}

// Only exports whose verdict changed are looked at again, however many a Bundle tells of.
func TestHandlerRequestsWhatChanged(t *testing.T) {
	r := new(Reader)
	h := r.Handler()
	requested := func(act func(q workqueue.TypedRateLimitingInterface[reconcile.Request])) []string {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		act(q)
		var names []string
		for q.Len() > 0 {
			item, _ := q.Get()
			names = append(names, item.Name)
			q.Done(item)
		}
		slices.Sort(names)
		return names
	}
	one := bundle(t, 1, map[string]string{"a": "Exported", "b": "Exported"})
	two := bundle(t, 2, map[string]string{"a": "Exported", "b": "BundleFull", "c": "Exported"})
	three := bundle(t, 3, map[string]string{"a": "Exported"})
	peering := two.DeepCopy()
	peering.Labels = map[string]string{propagation.LabelKind: propagation.KindPeering}
	broken := bundle(t, 4, nil)
	broken.Spec.Workload.Manifests = nil
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	for _, c := range []struct {
		name string
		act  func(q queue)
		want []string
	}{
		{"a new Work", func(q queue) { h.Create(t.Context(), event.CreateEvent{Object: one}, q) }, []string{"a", "b"}},
		{"a report", func(q queue) { h.Update(t.Context(), event.UpdateEvent{ObjectOld: one, ObjectNew: one.DeepCopy()}, q) },
			nil},
		{"another verdict and a new one", func(q queue) {
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: one,
				ObjectNew: two}, q)
		}, []string{"b", "c"}},
		{"verdicts that are gone", func(q queue) {
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: two, ObjectNew: three},
				q)
		}, []string{"b", "c"}},
		{"a Work without a manifest", func(q queue) {
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: three,
				ObjectNew: broken}, q)
		}, []string{"a"}},
		{"a Peering", func(q queue) { h.Create(t.Context(), event.CreateEvent{Object: peering}, q) }, nil},
		{"a Work that is gone", func(q queue) { h.Delete(t.Context(), event.DeleteEvent{Object: three}, q) }, []string{"a"}},
	} {
		if got := requested(c.act); !slices.Equal(got, c.want) {
			t.Errorf("%s requests %v, want %v", c.name, got, c.want)
		}
	}
	if len(r.read) != 0 {
		t.Errorf("%d Works are remembered", len(r.read))
	}
}

// A Work under the same name that was created anew is another one, whatever its generation.
func TestAWorkCreatedAnewIsDecodedAnew(t *testing.T) {
	r := new(Reader)
	before := bundle(t, 1, map[string]string{"a": "Exported"})
	after := bundle(t, 1, map[string]string{"b": "Exported"})
	after.UID = "2"
	if n := len(r.Of(before)); n != 1 {
		t.Fatalf("%d verdicts", n)
	}
	for key := range r.Of(after) {
		if key.Name != "b" {
			t.Errorf("a verdict on %s", key)
		}
	}
}
