// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
	"github.com/sealane-io/sealane/propagation"
)

// showing is a cache that has one Work.
type showing struct {
	client.Client // nothing else is called
	work          *workv1alpha1.Work
}

func (s *showing) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	s.work.DeepCopyInto(o.(*workv1alpha1.Work))
	return nil
}

// TestAnAPIServerThatIsLateIsNoMemberThatDoesNotAnswer: what was written counts for as long as the cache is behind, and
// is no more unanswered than what was written before. Nothing is sent anew meanwhile.
func TestAnAPIServerThatIsLateIsNoMemberThatDoesNotAnswer(t *testing.T) {
	start := time.Unix(1e9, 0)
	peering := func(generation, revision, answered int64) *workv1alpha1.Work {
		object, err := json.Marshal(v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{Revision: revision}})
		if err != nil {
			t.Fatal(err)
		}
		status, err := json.Marshal(v1alpha1.PeeringStatus{ObservedRevision: answered})
		if err != nil {
			t.Fatal(err)
		}
		work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{UID: "work", Generation: generation}}
		work.Spec.Workload.Manifests = []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: object}}}
		work.Status.ManifestStatuses = []workv1alpha1.ManifestStatus{{Status: &runtime.RawExtension{Raw: status}}}
		return work
	}
	state := fleet.State{Clusters: []clusterv1alpha1.Cluster{{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}}}
	state.Clusters[0].Status.Conditions = []metav1.Condition{{Type: clusterv1alpha1.ClusterConditionReady,
		Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(-time.Hour))}}
	record := v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "c1", UID: "c1"}}
	for name, silent := range map[string]bool{"a member that answers": false, "a member that does not": true} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Now: func() time.Time { return start }}
			see := func(after time.Duration, work *workv1alpha1.Work) Member {
				t.Helper()
				r.Client = &showing{work: work}
				m, _, err := r.gatherMember(t.Context(), state, record, start.Add(after))
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			before := peering(4, 7, 7)
			if silent {
				before = peering(4, 7, 6)
			}
			see(0, before)
			if m := see(20*time.Second, before); m.Unanswered != silent {
				t.Fatalf("unanswered: %t after 20 s", m.Unanswered)
			}
			mem := r.memory(&record)
			mem.peering.Wrote(&v1alpha1.PeeringSpec{Revision: 8}, start.Add(20*time.Second))
			mem.work = propagation.Written{UID: "work", Generation: 5}
			for second := 20; second < 80; second++ {
				m := see(time.Duration(second)*time.Second, before)
				if m.Sent.Revision != 8 || m.Unanswered != silent || m.Refresh {
					t.Fatalf("after %d s, which the cache does not show: revision %d, unanswered: %t, sent anew: %t", second-20,
						m.Sent.Revision, m.Unanswered, m.Refresh)
				}
			}
			if m := see(81*time.Second, peering(5, 8, 8)); m.Unanswered || m.Sent.Revision != 8 {
				t.Errorf("it is answered, and counts as unanswered: %t", m.Unanswered)
			}
			see(82*time.Second, peering(5, 8, 8)) // it was called, and has answered that
			see(83*time.Second, peering(6, 9, 8))
			if m := see(100*time.Second, peering(6, 9, 8)); !m.Unanswered {
				t.Error("a member that answers no more is not found")
			}
			mem.work.Generation = 99
			mem.peering.Wrote(&v1alpha1.PeeringSpec{Revision: 99}, start.Add(100*time.Second))
			if m := see(161*time.Second, peering(6, 9, 8)); m.Sent.Revision != 9 {
				t.Errorf("revision %d counts after a minute that nobody sees, want what Karmada has", m.Sent.Revision)
			}
		})
	}
}

// TestAPeeringIsReadOnce: what has not changed is not decoded again, and what becomes of a report is nothing to the
// next decision.
func TestAPeeringIsReadOnce(t *testing.T) {
	work := func(version string, revision int64, node string) *workv1alpha1.Work {
		object, err := json.Marshal(v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{Revision: revision}})
		if err != nil {
			t.Fatal(err)
		}
		status, err := json.Marshal(v1alpha1.PeeringStatus{ObservedRevision: revision, NodeCIDRs: []string{node}})
		if err != nil {
			t.Fatal(err)
		}
		out := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{UID: "work", ResourceVersion: version}}
		out.Spec.Workload.Manifests = []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: object}}}
		out.Status.ManifestStatuses = []workv1alpha1.ManifestStatus{{Status: &runtime.RawExtension{Raw: status}}}
		return out
	}
	r := &Reconciler{Now: time.Now}
	record := v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "c1", UID: "c1"}}
	see := func(work *workv1alpha1.Work) Member {
		t.Helper()
		r.Client = &showing{work: work}
		m, _, err := r.gatherMember(t.Context(), fleet.State{}, record, time.Unix(1e9, 0))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := see(work("1", 7, "192.0.2.1/32"))
	first.Report.Status.NodeCIDRs[0] = "somebody else's"
	again := see(work("1", 7, "192.0.2.1/32"))
	if again.Sent != first.Sent {
		t.Error("a Work that has not changed is decoded again")
	}
	if got := again.Report.Status.NodeCIDRs[0]; got != "192.0.2.1/32" {
		t.Errorf("it reports %q, want what it did", got)
	}
	changed := see(work("2", 8, "192.0.2.2/32"))
	if got := changed.Report.Status.NodeCIDRs[0]; changed.Sent.Revision != 8 || got != "192.0.2.2/32" {
		t.Errorf("of a Work that has changed there is revision %d with %q", changed.Sent.Revision, got)
	}
	record.Status.ObservedRevision = 9
	if m := see(work("2", 8, "192.0.2.2/32")); m.Report.Known {
		t.Error("what answers an older revision than is recorded counts")
	}
	record.Status.ObservedRevision = 8
	other := work("2", 9, "192.0.2.3/32")
	other.UID = "another"
	if m := see(other); m.Sent.Revision != 9 || !m.Report.Known {
		t.Errorf("of another Work there is revision %d", m.Sent.Revision)
	}
}
