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

// series of the probes of one target.
type series struct {
	status   v1alpha1.ConnectionStatus
	sequence uint16
	// unanswered probes in a row.
	unanswered int
	// last answer's round-trip time.
	last    time.Duration
	samples []sample // oldest first
}

// sample is one probe.
type sample struct {
	sequence uint16
	at       time.Time
	rtt      time.Duration // 0 while there is no answer
}

func newSeries() *series { return &series{status: v1alpha1.ConnectionConnecting} }

// sent notes that a probe goes out, and returns its sequence number. Down says that too many before it
// stayed unanswered, for the first time.
func (s *series) sent(now time.Time, threshold int) (sequence uint16, down bool) {
	if s.unanswered >= threshold && s.status == v1alpha1.ConnectionConnected {
		s.status, down = v1alpha1.ConnectionError, true
	}
	s.sequence++
	s.unanswered++
	old := 0
	for old < len(s.samples) && (now.Sub(s.samples[old].at) > window || len(s.samples)-old >= maxSamples) {
		old++
	}
	s.samples = append(s.samples[old:], sample{sequence: s.sequence, at: now})
	return s.sequence, down
}

// answered notes an answer, and says whether it is the first one, or the first one after a while.
func (s *series) answered(sequence uint16, now time.Time) (up bool) {
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
		// An answer that comes late still proves the tunnel, and what was sent after it may yet come.
		s.unanswered = len(s.samples) - 1 - i
		up = s.status != v1alpha1.ConnectionConnected
		s.status = v1alpha1.ConnectionConnected
		return up
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
