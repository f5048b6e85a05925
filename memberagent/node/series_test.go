// SPDX-License-Identifier: Apache-2.0

package node

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// path is a series of probes over a path with a round-trip time.
type path struct {
	*series
	now       time.Time
	interval  time.Duration
	threshold int
	rtt       time.Duration
	flight    []inFlight
	changes   int
}

type inFlight struct {
	sequence uint16
	arrives  time.Time
}

func newPath(interval time.Duration, threshold int, rtt time.Duration) *path {
	return &path{series: newSeries(), now: time.Unix(1000, 0), interval: interval, threshold: threshold, rtt: rtt}
}

// probe is one interval: answers that are due arrive, and a probe is sent.
func (p *path) probe(answered bool) {
	p.now = p.now.Add(p.interval)
	for len(p.flight) > 0 && !p.flight[0].arrives.After(p.now) {
		if p.answered(p.flight[0].sequence, p.flight[0].arrives, p.threshold) {
			p.changes++
		}
		p.flight = p.flight[1:]
	}
	sequence, changed := p.sent(p.now, p.interval, p.threshold)
	if changed {
		p.changes++
	}
	if answered {
		p.flight = append(p.flight, inFlight{sequence, p.now.Add(p.rtt)})
	}
}

func (p *path) probes(n int, answered bool) {
	for range n {
		p.probe(answered)
	}
}

// until sends probes until the target is as wanted, and returns the time that it took.
func (p *path) until(t *testing.T, answered bool, what string, want func() bool) time.Duration {
	t.Helper()
	start := p.now
	for !want() {
		p.probe(answered)
		if p.now.Sub(start) > 5*time.Minute {
			t.Fatalf("not within five minutes: %s; live %d, status %s", what, p.live, p.status)
		}
	}
	return p.now.Sub(start)
}

func TestSeries(t *testing.T) {
	p := newPath(50*time.Millisecond, 3, time.Millisecond)
	p.probes(2, false)
	if p.live != unknown || p.status != v1alpha1.ConnectionConnecting {
		t.Fatalf("before the first answer: %d, %s", p.live, p.status)
	}
	p.probes(2, true)
	if p.live != alive || p.status != v1alpha1.ConnectionConnected {
		t.Fatalf("after the first answer: %d, %s", p.live, p.status)
	}
	p.probes(20, true)
	if took := p.until(t, false, "dead", func() bool { return p.live == dead }); took > 250*time.Millisecond {
		t.Errorf("dead after %s without answers, expected three intervals of 50 ms and the one under way", took)
	}
	if p.status != v1alpha1.ConnectionConnected {
		t.Error("reported as lost as soon as routes go elsewhere")
	}
	p.until(t, false, "lost", func() bool { return p.status == v1alpha1.ConnectionError })
	before := p.changes
	p.probes(10, false)
	if p.changes != before {
		t.Error("told twice")
	}
	p.probes(3, true)
	if p.live != dead {
		t.Error("alive after two answers")
	}
	p.probes(1, true)
	if p.live != alive || p.status != v1alpha1.ConnectionConnected {
		t.Errorf("after three answers: %d, %s", p.live, p.status)
	}
	if p.answered(p.sequence+1, p.now, 3) {
		t.Error("an answer that nobody asked for counts")
	}
	h := p.health(p.now.Add(2 * time.Second))
	if h.RTT == nil || h.RTT.Avg != 1000 || h.RTT.Dev != 0 || h.LossPercent == 0 {
		t.Errorf("health %+v, RTT %+v", h, h.RTT)
	}
}

// TestSeriesThatNeverAnswers is dead in the end, so that nobody waits for it, and its first answer is no recovery.
func TestSeriesThatNeverAnswers(t *testing.T) {
	p := newPath(50*time.Millisecond, 3, time.Millisecond)
	p.until(t, false, "dead", func() bool { return p.live == dead })
	if p.status != v1alpha1.ConnectionConnecting {
		t.Errorf("never connected, and lost: %s", p.status)
	}
	p.until(t, true, "alive", func() bool { return p.live == alive })
	if p.failures != 0 {
		t.Errorf("%d failures of what never was alive", p.failures)
	}
}

// TestSeriesOfALongPath: with answers that take longer than several intervals nothing is lost, and what dies is
// alive again after it returned.
func TestSeriesOfALongPath(t *testing.T) {
	for _, rtt := range []int{60, 140, 300, 900} {
		p := newPath(50*time.Millisecond, 3, time.Duration(rtt)*time.Millisecond)
		p.until(t, true, "alive", func() bool { return p.live == alive })
		p.changes = 0
		p.probes(1000, true)
		if p.changes != 0 || p.live != alive {
			t.Errorf("round-trip time %d ms: %d changes", rtt, p.changes)
		}
		p.until(t, false, "dead", func() bool { return p.live == dead })
		p.until(t, true, "alive again", func() bool { return p.live == alive })
	}
}

// TestSeriesHoldsWhatFlaps: one that fails again and again has to answer for longer each time, up to a bound, until
// it has been calm.
func TestSeriesHoldsWhatFlaps(t *testing.T) {
	p := newPath(50*time.Millisecond, 3, time.Millisecond)
	p.until(t, true, "alive", func() bool { return p.live == alive })
	var holds []time.Duration
	for range 8 {
		p.until(t, false, "dead", func() bool { return p.live == dead })
		holds = append(holds, p.until(t, true, "alive", func() bool { return p.live == alive }))
	}
	for i, at := range []int{0, 1, 2, 4, 8, 16, 30, 30} {
		if got := holds[i] - time.Duration(at)*time.Second; got < 0 || got > 300*time.Millisecond {
			t.Errorf("failure %d: alive again after %s, expected about %d s", i+1, holds[i], at)
		}
	}
	p.until(t, true, "calm", func() bool { return p.now.Sub(p.failed) > calm+holdMost })
	p.until(t, false, "dead", func() bool { return p.live == dead })
	if took := p.until(t, true, "alive", func() bool { return p.live == alive }); took > 300*time.Millisecond {
		t.Errorf("after a calm minute: alive again after %s", took)
	}
}

// TestSeriesHoldsWhatAnswers: what has failed again and again is known to answer long before it counts as alive, and
// known to answer no more as soon as one that is alive; neither makes it wait longer.
func TestSeriesHoldsWhatAnswers(t *testing.T) {
	p := newPath(50*time.Millisecond, 3, time.Millisecond)
	p.until(t, true, "alive", func() bool { return p.live == alive })
	for range 5 {
		p.until(t, false, "dead", func() bool { return p.live == dead })
		p.until(t, true, "alive", func() bool { return p.live == alive })
	}
	p.until(t, false, "dead", func() bool { return p.live == dead })
	hold := p.hold
	for range 3 {
		changes := p.changes
		if took := p.until(t, true, "held", func() bool { return p.live == held }); took > 250*time.Millisecond {
			t.Errorf("known to answer after %s", took)
		}
		if p.changes != changes+1 {
			t.Error("nobody was told that it answers")
		}
		if took := p.until(t, false, "dead", func() bool { return p.live == dead }); took > 250*time.Millisecond {
			t.Errorf("known not to answer after %s", took)
		}
	}
	if p.hold != hold || hold < 8*time.Second {
		t.Errorf("held for %s, then for %s", hold, p.hold)
	}
	p.until(t, true, "alive", func() bool { return p.live == alive })
	if since := p.now.Sub(p.failed); since > hold+300*time.Millisecond {
		t.Errorf("alive %s after the failure, held for %s", since, hold)
	}
}

// TestLossIsNoOutage: a path that loses packets is reported as connected all the time, and routes move seldom.
func TestLossIsNoOutage(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, loss := range []float64{0.1, 0.3, 0.5} {
		p := newPath(50*time.Millisecond, 3, time.Millisecond)
		p.until(t, true, "alive", func() bool { return p.live == alive })
		lost, turns, last := 0, 0, p.live
		const minutes = 10
		for range minutes * 60 * 20 {
			p.probe(random.Float64() >= loss)
			if p.status != v1alpha1.ConnectionConnected {
				lost++
			}
			// Between held and dead routes move only where no other gateway is alive.
			if (p.live == alive) != (last == alive) {
				last, turns = p.live, turns+1
			}
		}
		if lost > 0 || turns > 4*minutes+12 {
			t.Errorf("loss of %.0f %%: reported as lost during %d probes, routes moved %d times in %d minutes", 100*loss, lost,
				turns, minutes)
		}
		t.Logf("loss of %.0f %%: liveness turned %d times in %d minutes", 100*loss, turns, minutes)
	}
}

// TestALateRoundLosesNothing: what was not answered while this node's processor stood still may wait in the socket.
// But one that is late all the time finds a dead target in the end.
func TestALateRoundLosesNothing(t *testing.T) {
	p := newPath(50*time.Millisecond, 3, time.Millisecond)
	p.probes(10, true)
	p.probes(3, false)
	p.now = p.now.Add(2 * time.Second)
	p.stalled(2 * time.Second)
	p.now = p.now.Add(10 * time.Millisecond)
	if _, changed := p.sent(p.now, p.interval, p.threshold); changed || p.live != alive {
		t.Error("a late round is a loss")
	}
	for range 3 {
		p.now = p.now.Add(2*time.Second + p.interval)
		p.stalled(2 * time.Second)
		p.sent(p.now, p.interval, p.threshold)
	}
	if p.live != dead {
		t.Error("a node that is always late never finds out")
	}
}

func TestSeriesKeepsAMinute(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newSeries()
	for range 10000 {
		now = now.Add(50 * time.Millisecond)
		s.sent(now, 50*time.Millisecond, 4)
	}
	if len(s.samples) > maxSamples || now.Sub(s.samples[0].at) > window {
		t.Errorf("%d samples since %s", len(s.samples), now.Sub(s.samples[0].at))
	}
}
