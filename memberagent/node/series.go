// SPDX-License-Identifier: Apache-2.0

package node

import (
	"math"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	window     = time.Minute
	maxSamples = 1200 // a minute at the shortest interval
)

// liveness of a target, which decides on routes.
type liveness int

// A target is unknown until it answers, or has not for as long as a dead one. One that is held answers, but has failed
// too lately to be chosen where another one is alive.
const (
	unknown liveness = iota
	alive
	held
	dead
)

const (
	// silenceFirst is for how long no probe is answered, at least, before a connection is reported as lost: much
	// longer than routes wait for, which can be taken back. It is what a path that loses half of its packets is
	// given.
	silenceFirst = time.Second
	// calm is how long a target is alive until its former failures are forgotten; holdFirst and holdMost bound how
	// long one that failed again has to answer before it counts as alive.
	calm      = time.Minute
	holdFirst = time.Second
	holdMost  = 30 * time.Second
)

// series of the probes of one target.
type series struct {
	// status is what is reported, live what routes go by.
	status   v1alpha1.ConnectionStatus
	live     liveness
	sequence uint16
	// unanswered probes in a row, since the one that was sent at silent.
	unanswered int
	silent     time.Time
	// streak of answered probes, since a target was dead.
	streak int
	// failures in short succession, the last at failed; answers count for life again after hold.
	failures int
	failed   time.Time
	hold     time.Duration
	// last answer's round-trip time, and its moving average.
	last, smooth time.Duration
	samples      []sample // oldest first
	// answers so far, and the share of lost probes when it was last looked at.
	answers int
	loss    float64
}

// sample is one probe.
type sample struct {
	sequence uint16
	at       time.Time
	rtt      time.Duration // 0 while there is no answer
}

func newSeries() *series { return &series{status: v1alpha1.ConnectionConnecting} }

// open says that it takes more probes to know how the target is: none has been answered yet, one is late, or one that
// was dead answers again. A round is the time between two of them, and what an answer may take comes on top of it.
func (s *series) open(now time.Time, round time.Duration) bool {
	switch s.live {
	case unknown:
		return true
	case alive:
		return s.unanswered > 0 && now.Sub(s.silent) >= round+2*s.trip()
	}
	return s.streak > 0
}

// sent notes that a probe goes out, and returns its sequence number. Changed says that the target now counts as
// dead, or is to be reported as lost. A probe is lost when threshold of them are unanswered, and have been for so
// many intervals and what an answer may take.
func (s *series) sent(now time.Time, interval time.Duration, threshold int) (sequence uint16, changed bool) {
	if s.unanswered >= threshold {
		silence := now.Sub(s.silent)
		patience := time.Duration(threshold)*interval + 2*s.trip()
		if s.live != dead && silence >= patience {
			s.die(now)
			changed = true
		}
		if s.status == v1alpha1.ConnectionConnected && silence >= max(silenceFirst, patience) {
			s.status, changed = v1alpha1.ConnectionError, true
		}
	}
	s.sequence++
	switch {
	case s.unanswered == 0:
		s.silent = now
	case now.Sub(s.silent) > interval+2*s.trip():
		s.streak = 0
	}
	s.unanswered++
	old := 0
	for old < len(s.samples) && (now.Sub(s.samples[old].at) > window || len(s.samples)-old >= maxSamples) {
		old++
	}
	s.samples = append(s.samples[old:], sample{sequence: s.sequence, at: now})
	return s.sequence, changed
}

// stalled says that this node stood still for a while. That is no silence of the target's: its answers wait for the
// same processor.
func (s *series) stalled(d time.Duration) { s.silent = s.silent.Add(d) }

// trip is what an answer takes: neither the first, which waited for a handshake, nor a single slow one counts.
func (s *series) trip() time.Duration { return min(s.last, s.smooth) }

// die makes the target dead. One that has failed lately will have to answer for longer, each time twice as long.
func (s *series) die(now time.Time) {
	if now.Sub(s.failed) > calm+s.hold {
		s.failures = 0
	}
	if s.live != held {
		s.hold = 0
	}
	if s.live == alive {
		if s.failures > 0 {
			s.hold = min(holdFirst<<min(s.failures-1, 8), holdMost)
		}
		s.failures++
		s.failed = now
	}
	s.live, s.streak = dead, 0
}

// answered notes an answer, and says whether the target changes by it: it comes alive, or is connected again.
func (s *series) answered(sequence uint16, now time.Time, threshold int) (changed bool) {
	for i := len(s.samples) - 1; i >= 0; i-- {
		sample := &s.samples[i]
		if sample.sequence != sequence {
			continue
		}
		if sample.rtt != 0 {
			return false // answered before
		}
		sample.rtt = max(now.Sub(sample.at), 1)
		s.last = sample.rtt
		if s.smooth == 0 {
			s.smooth = s.last
		}
		s.smooth += (s.last - s.smooth) / 8
		// An answer that comes late still proves the tunnel, and what was sent after it may yet come.
		s.unanswered = len(s.samples) - 1 - i
		if s.unanswered > 0 {
			s.silent = s.samples[i+1].at
		}
		s.streak++
		s.answers++
		before, was := s.live, s.status
		switch again := s.live != alive && s.streak >= threshold; {
		case s.live == unknown, again && now.Sub(s.failed) >= s.hold:
			s.live = alive
		case again:
			s.live = held
		}
		if s.live == alive {
			s.status = v1alpha1.ConnectionConnected
		}
		return s.live != before || s.status != was
	}
	return false
}

// health sums up the window. A probe counts as lost once one sent a second later could have been answered.
func (s *series) health(now time.Time) Health {
	h := Health{Status: s.status}
	var n, lost int
	var sum, squares, least, most float64
	for _, sample := range s.samples {
		if sample.rtt == 0 {
			if now.Sub(sample.at) > time.Second {
				lost++
			}
			continue
		}
		v := float64(sample.rtt.Microseconds())
		if n == 0 || v < least {
			least = v
		}
		n, most, sum, squares = n+1, max(most, v), sum+v, squares+v*v
	}
	if n+lost > 0 {
		h.LossPercent = int32(100 * lost / (n + lost))
	}
	if n > 0 {
		mean := sum / float64(n)
		h.RTT = &v1alpha1.RTT{
			Last: s.last.Microseconds(), Min: int64(least), Avg: int64(mean), Max: int64(most),
			Dev: int64(math.Sqrt(max(0, squares/float64(n)-mean*mean))),
		}
	}
	return h
}
