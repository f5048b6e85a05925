// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// tunnel to a gateway of c2, as the probes measure it.
func tunnel(active bool, rtt time.Duration, loss int32, received, sent int64) v1alpha1.Connection {
	return v1alpha1.Connection{Cluster: "c2", Status: v1alpha1.ConnectionConnected, Active: active, LossPercent: loss,
		RTT:     &v1alpha1.RTT{Avg: rtt.Microseconds()},
		Traffic: &v1alpha1.Traffic{ReceivedBytesPerSecond: received, SentBytesPerSecond: sent}}
}

// measuring is a gateway with tunnels.
func measuring(name string, tunnels ...v1alpha1.Connection) v1alpha1.Gateway {
	g := gateway(name, 0, v1alpha1.GatewayActive, "")
	g.Status.Connections = tunnels
	return g
}

// text of what is measured of the connection to c2.
func text(s v1alpha1.PeeringStatus) string {
	m := s.Connections[0].Measured
	switch {
	case m == nil:
		return "nothing"
	case m.Traffic == nil:
		return fmt.Sprintf("%dµs %d%%", m.RTTMicroseconds, m.LossPercent)
	}
	return fmt.Sprintf("%dµs %d%% %d %d", m.RTTMicroseconds, m.LossPercent, m.Traffic.ReceivedBytesPerSecond,
		m.Traffic.SentBytesPerSecond)
}

func TestMeasured(t *testing.T) {
	const ms = time.Millisecond
	down, untold, unprobed := tunnel(true, 20*ms, 0, 0, 0), tunnel(true, 20*ms, 0, 0, 0), tunnel(true, 0, 0, 9e6, 0)
	down.Status, down.LossPercent = v1alpha1.ConnectionError, 90
	untold.Traffic, unprobed.RTT = nil, nil
	for name, c := range map[string]struct {
		gateways []v1alpha1.Gateway
		want     string
	}{
		"no gateway":           {nil, "nothing"},
		"no tunnel":            {[]v1alpha1.Gateway{measuring("a")}, "nothing"},
		"one":                  {[]v1alpha1.Gateway{measuring("a", tunnel(true, 23*ms, 1, 5100, 0))}, "20000µs 0% 5000 0"},
		"of an older agent":    {[]v1alpha1.Gateway{measuring("a", untold)}, "20000µs 0%"},
		"one that is down":     {[]v1alpha1.Gateway{measuring("a", down)}, "nothing"},
		"one that is unprobed": {[]v1alpha1.Gateway{measuring("a", unprobed)}, "nothing"},
		"the worst, and all traffic": {[]v1alpha1.Gateway{measuring("a", tunnel(true, 20*ms, 5, 5e6, 1e6),
			tunnel(true, 50*ms, 0, 5e6, 1e6)), measuring("b", down)}, "50000µs 5% 10000000 2000000"},
		"one that is not used": {[]v1alpha1.Gateway{measuring("a", tunnel(true, 20*ms, 0, 0, 0),
			tunnel(false, 90*ms, 9, 1e6, 0))}, "20000µs 0% 1000000 0"},
		"none is used": {[]v1alpha1.Gateway{measuring("a", tunnel(false, 90*ms, 9, 1e6, 0))},
			"100000µs 10% 1000000 0"},
		"a silent agent": {[]v1alpha1.Gateway{silent(measuring("a", tunnel(true, 20*ms, 0, 0, 0)))}, "nothing"},
		"an old report": {[]v1alpha1.Gateway{reportedAgo(measuring("a", tunnel(true, 20*ms, 0, 0, 0)), time.Hour)},
			"nothing"},
		"a node agent that lies": {[]v1alpha1.Gateway{measuring("a", tunnel(true, math.MinInt64, -5, math.MinInt64,
			math.MaxInt64))}, "0µs 0% 0 1000000000000"},
	} {
		if got := text(PeeringStatus(peeringInput(c.gateways...))); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// written counts the reports of a day in which gateways report every 30 s, by the paces of the reconciler. The broker
// asks for a report every so often (0: never).
func written(t *testing.T, called time.Duration, tunnel func(minute float64) v1alpha1.Connection) (alone int) {
	t.Helper()
	in := peeringInput(measuring("a", tunnel(0)))
	in.Peering.Status = PeeringStatus(in)
	last, asked := in.Now, in.Now
	for at := time.Duration(0); at < 24*time.Hour; at += 30 * time.Second {
		in.Now = now.Add(at)
		in.Gateways = []v1alpha1.Gateway{reportedAgo(measuring("a", tunnel(at.Minutes())), -at)}
		called := called > 0 && in.Now.Sub(asked) >= called
		if called {
			asked = in.Now
			in.Peering.Spec.Revision++
		}
		next := PeeringStatus(in)
		if equality.Semantic.DeepEqual(in.Peering.Status, next) || in.Now.Sub(last) < paceOf(in.Peering.Status, next) {
			continue
		}
		in.Peering.Status, last = next, in.Now
		if !called {
			alone++
		}
	}
	return alone
}

// TestMeasurementsCostFewWrites: none where nothing happens, and a bounded number whatever does.
func TestMeasurementsCostFewWrites(t *testing.T) {
	random := rand.New(rand.NewPCG(57, 1))
	noisy := func(mean time.Duration) time.Duration {
		return time.Duration(float64(mean) * (0.87 + 0.26*random.Float64()))
	}
	const day = 24 * 60
	for name, c := range map[string]struct {
		tunnel func(minute float64) v1alpha1.Connection
		// most writes of a day, while the broker calls every 5 min and where it never does.
		called, never int
	}{
		"quiet": {func(float64) v1alpha1.Connection { return tunnel(true, noisy(20*time.Millisecond), 0, 0, 0) }, 0, 0},
		"between two steps": {func(float64) v1alpha1.Connection {
			return tunnel(true, noisy(8500*time.Microsecond), random.Int32N(2), random.Int64N(400), random.Int64N(400))
		}, 1, 1},
		"traffic of a day": {func(minute float64) v1alpha1.Connection {
			rate := int64(1e6 * (1.05 - math.Cos(2*math.Pi*minute/day)))
			return tunnel(true, noisy(20*time.Millisecond), 0, rate, 2*rate)
		}, 0, 24},
		"another way from noon": {func(minute float64) v1alpha1.Connection {
			if minute < day/2 {
				return tunnel(true, noisy(20*time.Millisecond), 0, 0, 0)
			}
			return tunnel(true, noisy(60*time.Millisecond), 0, 0, 0)
		}, 2, 2},
		// Worse at once, better with the next call: no more than a write for each.
		"anything, every half minute": {func(float64) v1alpha1.Connection {
			return tunnel(true, time.Duration(random.Int64N(int64(time.Second))), random.Int32N(101), random.Int64N(1e9),
				random.Int64N(1e9))
		}, day / 2, day / 2},
	} {
		called, never := written(t, 5*time.Minute, c.tunnel), written(t, 0, c.tunnel)
		t.Logf("%s: %d writes a day, %d without calls", name, called, never)
		if called > c.called || never > c.never {
			t.Errorf("%s: %d and %d writes a day, want at most %d and %d", name, called, never, c.called, c.never)
		}
	}
}

// TestPaceOfMeasurements: what else is new is not held up by them.
func TestPaceOfMeasurements(t *testing.T) {
	const ms = time.Millisecond
	before := PeeringStatus(peeringInput(measuring("a", tunnel(true, 20*ms, 0, 0, 0))))
	for name, c := range map[string]struct {
		tunnel v1alpha1.Connection
		change func(*v1alpha1.PeeringStatus)
		want   time.Duration
	}{
		"slower":  {tunnel(true, 90*ms, 0, 0, 0), nil, worsePace},
		"faster":  {tunnel(true, ms, 0, 0, 0), nil, measuredPace},
		"losses":  {tunnel(true, 20*ms, 9, 0, 0), nil, worsePace},
		"traffic": {tunnel(true, 20*ms, 0, 1e6, 1e6), nil, measuredPace},
		"and a network": {tunnel(true, 90*ms, 0, 1e6, 0), func(s *v1alpha1.PeeringStatus) {
			s.Networks.PodCIDRs = []string{"10.8.0.0/16"}
		}, pace},
		"and the answer to a call": {tunnel(true, 90*ms, 0, 1e6, 0), func(s *v1alpha1.PeeringStatus) {
			s.ObservedRevision++
		}, pace},
		"and nodes": {tunnel(true, 90*ms, 0, 1e6, 0), func(s *v1alpha1.PeeringStatus) {
			s.RollOut = &v1alpha1.RollOutReport{Nodes: 3}
		}, nodesPace},
		"and its end": {v1alpha1.Connection{Cluster: "c2", Status: v1alpha1.ConnectionError}, nil, pace},
	} {
		in := peeringInput(measuring("a", c.tunnel))
		in.Peering.Status = before // whose conditions keep their times
		after := PeeringStatus(in)
		if c.change != nil {
			c.change(&after)
		}
		if got := paceOf(before, after); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
