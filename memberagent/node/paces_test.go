// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
)

func TestPaces(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		busy, idle       int
		fast             time.Duration
		forBusy, forIdle time.Duration
	}{
		{0, 0, 50 * ms, 0, 0},
		{1, 1, 50 * ms, 50 * ms, 50 * ms}, // few cost nothing
		{0, 5, 50 * ms, 0, 50 * ms},
		{2, 20, 50 * ms, 50 * ms, 200 * ms},
		{20, 180, 50 * ms, 100 * ms, 1000 * ms},
		{20, 400, 50 * ms, 100 * ms, 1000 * ms},
		{200, 0, 50 * ms, 400 * ms, 0},
		{100, 1000, 50 * ms, 400 * ms, 2000 * ms},
		{2, 198, 3000 * ms, 3000 * ms, 3000 * ms},
	} {
		var targets []target
		for i := range c.busy + c.idle {
			targets = append(targets, target{address: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), busy: i < c.busy})
		}
		got := paces(targets, c.fast)
		rate := 0.0
		for _, to := range targets {
			want := c.forIdle
			if to.busy {
				want = c.forBusy
			}
			if got[to.address].Interval != want {
				t.Errorf("%d busy, %d idle: %s between two probes of one that is busy: %t, want %s", c.busy, c.idle,
					got[to.address].Interval, to.busy, want)
				break
			}
			rate += 1 / got[to.address].Interval.Seconds()
		}
		if rate > 1.5*probesPerSecond+1 {
			t.Errorf("%d busy, %d idle: %.0f probes a second", c.busy, c.idle, rate)
		}
	}
}

// rounds are those of a prober with one target.
type rounds struct {
	*path
	tick time.Duration
	due  time.Time
	sent int
}

// until goes on with rounds until the target is as wanted, and returns the time that it took.
func (r *rounds) until(t *testing.T, answered bool, what string, want func() bool) time.Duration {
	t.Helper()
	start := r.now
	for !want() {
		r.now = r.now.Add(r.tick)
		for len(r.flight) > 0 && !r.flight[0].arrives.After(r.now) {
			r.answered(r.flight[0].sequence, r.flight[0].arrives, r.threshold)
			r.flight = r.flight[1:]
		}
		interval := r.interval
		if r.open(r.now, r.tick) {
			interval = r.tick
		} else if r.now.Before(r.due) {
			continue
		}
		r.due = r.now.Add(r.interval - r.tick/2)
		sequence, _ := r.series.sent(r.now, interval, r.threshold)
		r.sent++
		if answered {
			r.flight = append(r.flight, inFlight{sequence, r.now.Add(r.rtt)})
		}
		if r.now.Sub(start) > 5*time.Minute {
			t.Fatalf("not within five minutes: %s", what)
		}
	}
	return r.now.Sub(start)
}

// TestAnIdlePathIsFoundDead: one that is probed once a second is dead 1.25 s after its last answer could have come, and
// alive as soon after it answers again, on short paths and long ones; while all is well one probe a second is all.
func TestAnIdlePathIsFoundDead(t *testing.T) {
	const tick = 50 * time.Millisecond
	for _, rtt := range []time.Duration{time.Millisecond, 140 * time.Millisecond, 300 * time.Millisecond} {
		t.Run(rtt.String(), func(t *testing.T) {
			r := &rounds{path: newPath(time.Second, 3, rtt), tick: tick}
			r.until(t, true, "alive", func() bool { return r.live == alive })
			start := r.now
			r.sent = 0
			r.until(t, true, "a minute", func() bool { return r.now.Sub(start) > time.Minute })
			if r.sent > 62 {
				t.Errorf("%d probes in a calm minute, expected one a second", r.sent)
			}
			r.sent = 0
			most := time.Second + 5*tick + 2*rtt
			if took := r.until(t, false, "dead", func() bool { return r.live == dead }); took > most {
				t.Errorf("dead after %s, expected %s at most", took, most)
			}
			start, r.sent = r.now, 0
			r.until(t, false, "a minute", func() bool { return r.now.Sub(start) > time.Minute })
			if r.sent > 62 {
				t.Errorf("%d probes of a dead path in a minute, expected one a second", r.sent)
			}
			most = time.Second + 4*tick + 2*rtt
			if took := r.until(t, true, "alive again", func() bool { return r.live == alive }); took > most {
				t.Errorf("alive after %s, expected %s at most", took, most)
			}
			if r.status != v1alpha1.ConnectionConnected {
				t.Errorf("alive, and %s", r.status)
			}
		})
	}
}

// TestTrafficIsTold from what the probes of both ends take, whatever the other end's rate.
func TestTrafficIsTold(t *testing.T) {
	const interval = 50 * time.Millisecond
	for _, c := range []struct {
		// of this end and of the other, a second
		ours, theirs int
		// bytes a second of something else, in one direction
		received, sent int64
		want           bool
	}{
		{1, 1, 0, 0, false},
		{20, 20, 0, 0, false},
		{1, 20, 0, 0, false},
		{20, 1, 0, 0, false},
		{20, 20, 148 + 92 + 32, 148 + 92 + 32, false}, // a handshake and a keepalive
		{1, 1, 5000, 0, true},
		{20, 20, 0, 5000, true},
		{20, 20, 5000, 5000, true},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			var busy traffic
			now := time.Unix(1000, 0)
			id := plan.PeerID("peer")
			var probes Carried
			state := kernel.PeerState{ID: id}
			second := func(received, sent int64) {
				now = now.Add(time.Second)
				const message = probeBytes + 32
				n := int64(c.ours)
				probes.SentPackets, probes.SentBytes = probes.SentPackets+n, probes.SentBytes+n*probeBytes
				probes.ReceivedPackets, probes.ReceivedBytes = probes.ReceivedPackets+n, probes.ReceivedBytes+n*probeBytes
				state.ReceivedBytes += int64(c.ours+c.theirs)*message + received
				state.SentBytes += int64(c.ours+c.theirs)*message + sent
				busy.look(state, probes, interval, now)
			}
			for range 30 {
				second(0, 0)
				if busy.busy(cablePeer{"", id}, now) {
					t.Fatal("busy with probes")
				}
			}
			second(c.received, c.sent)
			if busy.busy(cablePeer{"", id}, now) != c.want {
				t.Errorf("busy %t, want %t", !c.want, c.want)
			}
			if !c.want {
				return
			}
			for range 9 {
				second(0, 0)
			}
			if !busy.busy(cablePeer{"", id}, now) {
				t.Error("forgotten within ten seconds")
			}
			second(0, 0)
			if busy.busy(cablePeer{"", id}, now) {
				t.Error("busy for longer than ten seconds")
			}
			state.ReceivedBytes, state.SentBytes = 0, 0 // a new device
			second(0, 0)
			if busy.busy(cablePeer{"", id}, now) {
				t.Error("busy by a counter that begins anew")
			}
			busy.forget(func(cablePeer) bool { return false })
			if len(busy.peers) != 0 {
				t.Error("a peer that is gone is remembered")
			}
		})
	}
}
