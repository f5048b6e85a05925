// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"
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
