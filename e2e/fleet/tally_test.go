// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sealane-io/sealane/propagation"
)

// TestArrivalsAreAtThoseThatWait: a change is there when all have it for whom it is waited, also where others have it
// before or after.
func TestArrivalsAreAtThoseThatWait(t *testing.T) {
	tally := newTally()
	a := tally.expect("10.0.0.1", []string{"m000", "m001"}, []string{"m001"})
	begun := a.begun
	done := func() bool {
		select {
		case <-a.Done():
			return true
		default:
			return false
		}
	}
	for i, step := range []struct {
		cluster string
		landed  bool
		done    bool
	}{
		{"m002", false, false}, {"m000", false, false}, {"m003", true, false}, {"m001", false, false}, {"m001", true, true},
	} {
		now := begun.Add(time.Duration(i+1) * time.Second)
		want, by := a.want, a.took
		if step.landed {
			want, by = a.sites, a.landed
		}
		tally.arrived("10.0.0.1", a, want, by, step.cluster, now)
		if done() != step.done {
			t.Errorf("after step %d the change is there: %t", i, done())
		}
	}
	took, landed := tally.Took(a)
	if len(took) != 2 || took[0] != 2*time.Second || took[1] != 4*time.Second || len(landed) != 1 {
		t.Errorf("it took %v, and %v to sites", took, landed)
	}
}

// TestDeltasArriveWhenTheyAreListed: a cluster goes by a Bundle of deltas when its own Bundle of shard 0 lists that,
// and not before.
func TestDeltasArriveWhenTheyAreListed(t *testing.T) {
	tally := newTally()
	a := tally.expect("10.0.0.1", []string{"m000"}, nil)
	began := time.Now()
	own, generation := propagation.HalfKey("m000", 0, ""), int64(0)
	list := func(deltas int, after time.Duration) {
		generation++
		work := workOf(own.Namespace, own.Name, fmt.Sprintf(`{"spec":{"imports":[],"deltas":%d}}`, deltas))
		work.Generation = generation
		tally.saw(work, began.Add(after))
	}
	delta := func(n int32, text string, generation int64, after time.Duration) {
		key := propagation.DeltaKey("m000", n)
		work := workOf(key.Namespace, key.Name, fmt.Sprintf(`{"spec":{"imports":[%s]}}`, text))
		work.Generation, work.Labels = generation, map[string]string{propagation.LabelDelta: strconv.Itoa(int(n))}
		tally.saw(work, began.Add(after))
	}
	list(1, 0)
	delta(0, `"10.0.0.2"`, 1, 0)
	delta(1, "", 1, 0)
	delta(1, `"10.0.0.1"`, 2, time.Second)
	if took, _ := tally.Took(a); len(took) > 0 {
		t.Fatalf("a Bundle of deltas counts before it is listed, after %v", took)
	}
	list(2, 3*time.Second)
	if took, _ := tally.Took(a); len(took) != 1 || took[0].Round(time.Second) != 3*time.Second {
		t.Errorf("it took %v, want the 3 s until it is listed", took)
	}
	b := tally.expect("10.0.0.3", []string{"m000"}, nil)
	delta(1, `"10.0.0.3"`, 3, 4*time.Second)
	if took, _ := tally.Took(b); len(took) != 1 {
		t.Error("one that is listed does not count")
	}
	// Two of the own Bundle that list, and one with nothing in it.
	if counts := tally.Take(); counts.Listings != 3 || counts.Deltas != 4 || counts.Writes != 6 {
		t.Errorf("%+v", counts)
	}
}

func workOf(namespace, name, raw string) *workv1alpha1.Work {
	work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	work.Spec.Workload.Manifests = []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(raw)}}}
	return work
}
