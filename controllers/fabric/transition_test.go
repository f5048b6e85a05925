// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestLastTransitionOfAConnection: a member is believed when its connections changed where that can be, and the
// controller says what it alone knows. A time that stays as it is changes no record.
func TestLastTransitionOfAConnection(t *testing.T) {
	start := time.Unix(1e9, 0).UTC()
	at := func(after time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(start.Add(after))) }
	for _, c := range []struct {
		name    string
		claimed *metav1.Time
		change  func(w *walk, m *Member)
		want    *metav1.Time
	}{
		{"as the member says", at(-time.Hour), nil, at(-time.Hour)},
		{"with a fraction of a second", at(-time.Hour + time.Millisecond), nil, at(-time.Hour)},
		{"by a clock that is a little ahead", at(50 * time.Second), nil, at(50 * time.Second)},
		{"an older agent", nil, nil, at(0)},
		{"in the future", at(time.Hour), nil, at(0)},
		{"in a year that JSON has not", ptr.To(metav1.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)), nil, at(0)},
		{"before there were clocks", ptr.To(metav1.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)), nil, at(0)},
		{"zero", &metav1.Time{}, nil, at(0)},
		{"a member that Karmada does not reach", at(-time.Hour), func(_ *walk, m *Member) { m.Lost = true }, at(time.Minute)},
		{"a member that is heard of no more", at(-time.Hour), func(w *walk, _ *Member) { w.silence("c1") }, at(time.Minute)},
		{"a change that the member dates", at(-time.Hour), func(_ *walk, m *Member) {
			c := &m.Report.Status.Connections[0]
			c.Status, c.LastTransitionTime = v1alpha1.ConnectionError, at(40*time.Second)
		}, at(40 * time.Second)},
		{"a change that it does not", at(-time.Hour), func(_ *walk, m *Member) {
			c := &m.Report.Status.Connections[0]
			c.Status, c.LastTransitionTime = v1alpha1.ConnectionError, nil
		}, at(time.Minute)},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWalk(known(1), known(2))
			w.in.Now = start.Add(400 * time.Millisecond)
			w.says("c1", "c2=Connected")
			w.says("c2", "c1=Connected")
			m := w.member("c1")
			m.Report.Status.Connections[0].LastTransitionTime = c.claimed
			w.step()
			if c.change != nil {
				c.change(w, m)
			}
			for range 3 {
				w.step()
				got := w.d.Statuses["c1"].Connections[0]
				if !got.LastTransitionTime.Equal(c.want) {
					t.Errorf("%s since %v, want %v", got.Status, got.LastTransitionTime, c.want)
				}
			}
		})
	}
}
