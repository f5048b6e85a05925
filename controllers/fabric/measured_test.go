// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/coarse"
)

func measurement(rtt int64, loss int32, received, sent int64) *v1alpha1.Measurements {
	return &v1alpha1.Measurements{RTTMicroseconds: rtt, LossPercent: loss,
		Traffic: &v1alpha1.Traffic{ReceivedBytesPerSecond: received, SentBytesPerSecond: sent}}
}

// recorded renders what the record of c1 says of its connections.
func (w *walk) recorded() (out string) {
	for _, c := range w.d.Statuses["c1"].Connections {
		out += fmt.Sprintf("%s=%s", c.Cluster, c.Status)
		if m := c.Measured; m != nil {
			out += fmt.Sprintf("/%dµs/%d%%", m.RTTMicroseconds, m.LossPercent)
			if m.Traffic != nil {
				out += fmt.Sprintf("/%d/%d", m.Traffic.ReceivedBytesPerSecond, m.Traffic.SentBytesPerSecond)
			}
		}
		out += " "
	}
	return out
}

// TestMeasurementsDecideNothing: whatever a member says to have measured, the others are told the same, and the
// ClusterSet is as it was. What cannot have been measured, or may hold no more, is not recorded.
func TestMeasurementsDecideNothing(t *testing.T) {
	const connected = "c2=Connected c3=Connected"
	for _, c := range []struct {
		name     string
		measured *v1alpha1.Measurements
		change   func(w *walk, m *Member)
		want     string
	}{
		{"by the steps", measurement(20_000, 2, 5_000_000, 0), nil, "c2=Connected/20000µs/2%/5000000/0 c3=Connected "},
		{"between them", measurement(21_234, 1, 5_432_100, 1), nil, "c2=Connected/20000µs/0%/5000000/0 c3=Connected "},
		{"by an agent that knows no traffic", &v1alpha1.Measurements{RTTMicroseconds: 1000}, nil,
			"c2=Connected/1000µs/0% c3=Connected "},
		{"negative", measurement(-20_000, 0, 0, 0), nil, "c2=Connected c3=Connected "},
		{"absurd", measurement(math.MaxInt64, 0, 0, 0), nil, "c2=Connected c3=Connected "},
		{"more than all lost", measurement(1000, math.MaxInt32, 0, 0), nil, "c2=Connected c3=Connected "},
		{"more than there is", measurement(1000, 0, math.MaxInt64, 0), nil, "c2=Connected c3=Connected "},
		{"of a connection that is down", measurement(1000, 0, 0, 0), func(_ *walk, m *Member) {
			m.Report.Status.Connections[0].Status = v1alpha1.ConnectionError
		}, "c2=Error c3=Connected "},
		{"of no member, and many times", measurement(1000, 0, 0, 0), func(_ *walk, m *Member) {
			c := m.Report.Status.Connections[0]
			m.Report.Status.Connections = m.Report.Status.Connections[:0]
			for i := range maxConnections {
				c.Cluster = fmt.Sprintf("nobody-%d", i%500)
				m.Report.Status.Connections = append(m.Report.Status.Connections, c)
			}
		}, ""},
		{"twice", measurement(1000, 0, 0, 0), func(_ *walk, m *Member) {
			c := m.Report.Status.Connections[0]
			c.Measured = measurement(70_000, 70, 0, 0)
			m.Report.Status.Connections = append(m.Report.Status.Connections, c)
		}, "c2=Connected/1000µs/0%/0/0 c3=Connected "},
		{"by one that is not heard of any more", measurement(1000, 0, 0, 0), func(w *walk, _ *Member) {
			w.step()
			w.silence("c1")
		}, "c2=Unknown c3=Unknown "},
		{"by one that Karmada does not reach", measurement(1000, 0, 0, 0), func(_ *walk, m *Member) { m.Lost = true },
			"c2=Unknown c3=Unknown "},
		{"by one that does not answer", measurement(1000, 0, 0, 0), func(_ *walk, m *Member) { m.Unanswered = true },
			"c2=Unknown c3=Unknown "},
	} {
		t.Run(c.name, func(t *testing.T) {
			decided := func(measured *v1alpha1.Measurements) *walk {
				w := newWalk(known(1), known(2), known(3))
				w.says("c1", connected)
				w.says("c2", "c1=Connected c3=Connected")
				w.says("c3", "c1=Connected c2=Connected")
				m := w.member("c1")
				m.Report.Status.Connections[0].Measured = measured
				if c.change != nil {
					c.change(w, m)
				}
				w.step()
				return w
			}
			with, without := decided(c.measured), decided(nil)
			with.expect(t, "recorded", with.recorded(), c.want)
			for _, w := range []*walk{with, without} {
				for name, s := range w.d.Statuses {
					s.Connections = coarse.Without(s.Connections)
					w.d.Statuses[name] = s
				}
			}
			if !equality.Semantic.DeepEqual(with.d, without.d) {
				t.Errorf("decided %+v, without measurements %+v", with.d, without.d)
			}
		})
	}
}

// TestOnlyMeasured: what else is new in a report is not held up.
func TestOnlyMeasured(t *testing.T) {
	status := func(change func(*v1alpha1.PeeringStatus)) []byte {
		s := v1alpha1.PeeringStatus{ObservedRevision: 3, Connections: []v1alpha1.MemberConnection{
			{Cluster: "c2", Status: v1alpha1.ConnectionConnected, Measured: measurement(1000, 0, 0, 0)}}}
		change(&s)
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	work := func(raw []byte) *workv1alpha1.Work {
		return &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{UID: "u", Generation: 1}, Status: workv1alpha1.WorkStatus{
			ManifestStatuses: []workv1alpha1.ManifestStatus{{Status: &runtime.RawExtension{Raw: raw}}}}}
	}
	slower := func(s *v1alpha1.PeeringStatus) { s.Connections[0].Measured = measurement(70_000, 9, 0, 0) }
	before := work(status(func(*v1alpha1.PeeringStatus) {}))
	for name, c := range map[string]struct {
		raw    []byte
		change func(*workv1alpha1.Work)
		want   bool
	}{
		"measured": {status(slower), nil, true},
		"the same": {status(func(*v1alpha1.PeeringStatus) {}), nil, false},
		"a status": {status(func(s *v1alpha1.PeeringStatus) {
			slower(s)
			s.Connections[0].Status = v1alpha1.ConnectionError
		}), nil, false},
		"an answer":       {status(func(s *v1alpha1.PeeringStatus) { slower(s); s.ObservedRevision++ }), nil, false},
		"no more":         {status(func(s *v1alpha1.PeeringStatus) { s.Connections[0].Measured = nil }), nil, true},
		"by another name": {bytes.Replace(status(slower), []byte(`"measured"`), []byte(`"MEASURED"`), 1), nil, true},
		"unread":          {append([]byte(`{"unknown":1,`), status(slower)[1:]...), nil, true},
		"not JSON":        {[]byte(`{"measured"`), nil, false},
		"nothing":         {nil, nil, false},
		"more than are accepted": {status(func(s *v1alpha1.PeeringStatus) {
			slower(s)
			s.Connections = append(s.Connections, make([]v1alpha1.MemberConnection, maxConnections)...)
		}), nil, false},
		"more than is decoded": {append(status(slower), bytes.Repeat([]byte(" "), maxMeasuredBytes)...), nil, false},
		"a spec":               {status(slower), func(w *workv1alpha1.Work) { w.Generation = 2 }, false},
		"a deletion": {status(slower), func(w *workv1alpha1.Work) {
			w.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
		}, false},
		"another": {status(slower), func(w *workv1alpha1.Work) { w.UID = "v" }, false},
		"not applied": {status(slower), func(w *workv1alpha1.Work) {
			w.Status.Conditions = []metav1.Condition{{Type: workv1alpha1.WorkApplied, Status: metav1.ConditionFalse}}
		}, false},
	} {
		after := work(c.raw)
		if c.change != nil {
			c.change(after)
		}
		if got := onlyMeasured(before, after); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestARecordOfMeasurementsWaits(t *testing.T) {
	now := time.Unix(1e9, 0)
	status := func(kind v1alpha1.ConnectionStatus, rtt int64) v1alpha1.MemberStatus {
		return v1alpha1.MemberStatus{Connections: []v1alpha1.MemberConnection{{Cluster: "c2", Status: kind,
			Measured: measurement(rtt, 0, 0, 0)}}}
	}
	for name, c := range map[string]struct {
		after v1alpha1.MemberStatus
		since time.Duration
		want  time.Duration
	}{
		"measured":         {status("Connected", 2000), 3 * time.Second, measuredPace - 3*time.Second},
		"measured, later":  {status("Connected", 2000), measuredPace, 0},
		"a connection too": {status("Error", 2000), 3 * time.Second, 0},
	} {
		m := memory{recorded: now.Add(-c.since)}
		if got := m.unhurried(status("Connected", 1000), c.after, now); got != c.want {
			t.Errorf("%s: waits %s, want %s", name, got, c.want)
		}
	}
}
