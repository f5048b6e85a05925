// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// measures is the node agent of node-a's gateway, with what it measures of its tunnel to c2.
func (m *member) measures(rtt time.Duration, loss int32, rate int64) {
	m.t.Helper()
	g := &v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	m.eventually("report", func(ctx context.Context) error {
		if err := m.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
			return err
		}
		g.Status.ReportedAt = ptr.To(metav1.Now())
		c := &g.Status.Connections[0]
		c.RTT, c.LossPercent = &v1alpha1.RTT{Avg: rtt.Microseconds()}, loss
		c.Traffic = &v1alpha1.Traffic{ReceivedBytesPerSecond: rate, SentBytesPerSecond: rate}
		return m.Status().Update(ctx, g)
	})
}

// versions counts those of the Peering from now on: each that its agent writes is a PUT in Karmada.
func (m *member) versions() *atomic.Int32 {
	m.t.Helper()
	config := rest.CopyConfig(m.config)
	config.Impersonate = rest.ImpersonationConfig{}
	c, err := client.NewWithWatch(config, client.Options{Scheme: m.Scheme()})
	if err != nil {
		m.t.Fatal(err)
	}
	list := &v1alpha1.PeeringList{}
	if err := m.List(m.t.Context(), list); err != nil {
		m.t.Fatal(err)
	}
	w, err := c.Watch(m.t.Context(), &v1alpha1.PeeringList{},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(w.Stop)
	count := new(atomic.Int32)
	go func() {
		for e := range w.ResultChan() {
			if e.Type == watch.Modified {
				count.Add(1)
			}
		}
	}()
	return count
}

// TestNoiseIsNotReported: a quiet member, whose gateways report all the time, writes its report once and never again;
// what has changed goes along with the answer to the broker's call.
func TestNoiseIsNotReported(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	p := m.peering(1)
	m.gatewayReports(v1alpha1.ConnectionConnected)
	measured := func(s *v1alpha1.PeeringStatus) string {
		if len(s.Connections) != 1 || s.Connections[0].Measured == nil || s.Connections[0].Measured.Traffic == nil {
			return "nothing"
		}
		c := s.Connections[0].Measured
		return fmt.Sprintf("%dµs %d%% %d", c.RTTMicroseconds, c.LossPercent, c.Traffic.SentBytesPerSecond)
	}
	// call asks for reports until one has what is wanted, and returns how often.
	call := func(want string) (calls int32) {
		for got := ""; got != want; calls++ {
			if calls == 100 {
				t.Fatalf("after %d calls: %s, want %s", calls, got, want)
			}
			if got != "" {
				change(m, p, func(p *v1alpha1.Peering) { p.Spec.Revision++ })
			}
			m.reports("an answer", func(s *v1alpha1.PeeringStatus) error {
				got = measured(s)
				return nil
			})
		}
		return calls - 1
	}
	m.measures(20*time.Millisecond, 0, 5000)
	call("20000µs 0% 5000")

	versions := m.versions()
	for i := range 20 {
		m.measures(time.Duration(17+i%7)*time.Millisecond, int32(i%2), int64(4000+200*(i%10)))
	}
	m.measures(100*time.Millisecond, 10, 50_000)
	calls := call("100000µs 10% 50000")
	// Each call is a write of the spec, and an answer.
	m.eventually("all versions", func(context.Context) error { return expect("versions", versions.Load(), 2*calls) })
	if err := expect("versions", versions.Load(), 2*calls); err != nil {
		t.Error(err)
	}
}
