// SPDX-License-Identifier: Apache-2.0

package node

import (
	"math"
	"slices"
	"time"
)

const (
	// leastSize is what every path has to carry, RFC 8200 section 5: there is no smaller MTU to go down to.
	leastSize = 1280
	// sizeStep is how close the search for the largest size comes: WireGuard fills packets up to a multiple of it.
	sizeStep = 16
	// ladder is how many sizes are tried at once.
	ladder = 12
	// sizeEvery is the time between two probes of the size in use, or as long as sizeIntervals of the small ones.
	sizeEvery     = time.Second
	sizeIntervals = 5
	// raiseFirst and raiseMost bound the time between two tries of larger sizes, of which raiseTries in a row have to
	// agree. It doubles with every size that did not pass for steady after it had been raised.
	raiseFirst = 10 * time.Second
	raiseMost  = 10 * time.Minute
	raiseTries = 3
	steady     = 10 * time.Minute
	// chance, at most, that a size is taken to be lost on a path which loses packets of any size; lossMost bounds the
	// tries that this takes.
	chance   = 1e-4
	leastTry = 3
	mostTry  = 20
	// leastAnswers to small probes must have come while larger ones were lost. One may have been on its way when a path
	// was cut.
	leastAnswers = 2
)

// sizing finds out how large packets may be on a path that is alive: of a size that is lost, one is not told where
// routers or firewalls drop it without a word, or where the word is lost. Sizes are those of inner packets, in bytes,
// and a probe's answer is of the same size, so that a size passes only if it does both ways.
type sizing struct {
	// full is what the cables of both ends carry, and fits the size in use: the largest known to pass.
	full, fits int
	// lost says that not even leastSize passes.
	lost bool

	// trial under way, if sizes are being tried, and when to begin the next at the size in use, or above it.
	trial       *trial
	next, raise time.Time
	// number of the last trial: answers to others are late.
	number uint16
	// agreed is the largest size that as many tries above the size in use have agreed on.
	agreed, agreeing int
	wait             time.Duration // between two tries
	raised           time.Time
}

// trial of one or several sizes.
type trial struct {
	kind  trialKind
	sizes []int // ascending
	// largest of them that was answered, 0 if none was.
	largest     int
	tries, most int
	sent        time.Time
	// answers of small probes when it began: more must have come when it ends.
	answers int
}

type trialKind int

const (
	inUse  trialKind = iota // does the size in use still pass?
	below                   // which is the largest that does?
	larger                  // does a larger one pass again?
)

// newSizing takes over a size that was found before a restart; 0 if there is none.
func newSizing(full, fits int) *sizing {
	s := &sizing{full: full, fits: full, wait: raiseFirst}
	if fits >= leastSize && fits < full {
		s.fits = fits
	}
	return s
}

// small is what the small probes say of the path at one moment.
type small struct {
	alive bool
	// answers so far, the share of lost probes, and what an answer takes.
	answers int
	loss    float64
	trip    time.Duration
	// round is the time between two of the prober's, interval that between two small probes.
	round, interval time.Duration
}

// due returns the sizes to send now, with the number of the trial, and says whether the size in use has changed.
func (s *sizing) due(now time.Time, path small) (sizes []int, changed bool) {
	if !path.alive {
		// What is lost now is lost for another reason.
		s.trial = nil
		s.next = now.Add(sizeEvery)
		return nil, false
	}
	t := s.trial
	switch {
	case t == nil && s.fits < s.full && !now.Before(s.raise):
		s.begin(larger, s.rungs(s.fits, s.full), now, path)
	case t == nil && !now.Before(s.next):
		s.begin(inUse, []int{s.fits}, now, path)
	case t == nil:
		return nil, false
	case t.kind == inUse && t.largest > 0:
		changed, s.lost = s.lost, false
		s.done(now, path)
		return nil, changed
	case now.Sub(t.sent) < path.round+2*path.trip:
		return nil, false
	case t.tries >= t.most:
		return nil, s.conclude(now, path)
	}
	s.trial.tries++
	s.trial.sent = now
	return s.trial.sizes, false
}

func (s *sizing) begin(kind trialKind, sizes []int, now time.Time, path small) {
	s.number++
	s.trial = &trial{kind: kind, sizes: sizes, most: tries(path.loss), sent: now, answers: path.answers}
}

// tries are how many times a size must be lost until it counts as lost.
func tries(loss float64) int {
	if loss <= 0 {
		return leastTry
	}
	if loss >= 1 {
		return mostTry
	}
	return min(max(leastTry, int(math.Ceil(math.Log(chance)/math.Log(loss)))), mostTry)
}

// rungs are sizes above low, up to high, ascending.
func (s *sizing) rungs(low, high int) []int {
	step := max(sizeStep, ((high-low)/ladder+sizeStep-1)/sizeStep*sizeStep)
	var out []int
	for size := (low/sizeStep + 1) * sizeStep; size < high; size += step {
		out = append(out, size)
	}
	return append(out, high)
}

// answered notes the answer to a probe of a size.
func (s *sizing) answered(size int, number uint16) {
	if t := s.trial; t != nil && number == s.number && slices.Contains(t.sizes, size) {
		t.largest = max(t.largest, size)
	}
}

// doubtful says that it takes small probes to know what the loss of larger ones means.
func (s *sizing) doubtful() bool { return s.trial != nil && s.trial.tries > 1 }

// conclude ends a trial whose answers are all there.
func (s *sizing) conclude(now time.Time, path small) (changed bool) {
	t := s.trial
	switch {
	case t.kind == larger:
		return s.tell(t.largest, now, path)
	case t.largest == 0 && path.answers-t.answers < leastAnswers:
		s.done(now, path) // on a path that carries nothing, large packets are lost with the small ones
	case t.kind == inUse && s.fits == leastSize:
		changed, s.lost = !s.lost, true
		s.done(now, path)
	case t.kind == inUse:
		s.begin(below, append([]int{leastSize}, s.rungs(leastSize, s.fits)...), now, path)
	case t.largest == s.fits:
		s.done(now, path) // it passes after all
	case t.largest == 0:
		return s.lower(leastSize, t.sizes[0] == leastSize, now, path)
	case t.largest == t.sizes[len(t.sizes)-1]:
		return s.lower(t.largest, false, now, path) // the next above was lost before
	default:
		last := (t.sizes[slices.Index(t.sizes, t.largest)+1] - 1) / sizeStep * sizeStep
		if last <= t.largest {
			return s.lower(t.largest, false, now, path)
		}
		s.begin(below, append([]int{t.largest}, s.rungs(t.largest, last)...), now, path)
	}
	return changed
}

// done ends a trial, and says when to begin the next.
func (s *sizing) done(now time.Time, path small) {
	s.trial = nil
	s.next = now.Add(max(sizeEvery, sizeIntervals*path.interval))
}

// lower the size in use.
func (s *sizing) lower(size int, lost bool, now time.Time, path small) (changed bool) {
	if !s.raised.IsZero() && now.Sub(s.raised) < steady {
		s.wait = min(2*s.wait, raiseMost)
	} else {
		s.wait = raiseFirst
	}
	changed = size != s.fits || lost != s.lost
	s.fits, s.lost = size, lost
	s.agreed, s.agreeing, s.raise = 0, 0, now.Add(s.wait)
	s.done(now, path)
	return changed
}

// tell what a try of larger sizes has found, 0 if none passed. The size in use is raised when enough in a row agree.
func (s *sizing) tell(largest int, now time.Time, path small) (changed bool) {
	s.done(now, path)
	s.raise = now.Add(s.wait)
	if largest <= s.fits {
		s.agreed, s.agreeing = 0, 0
		return false
	}
	if s.agreeing == 0 || largest < s.agreed {
		s.agreed = largest
	}
	s.agreeing++
	if s.agreeing < raiseTries {
		return false
	}
	s.fits, s.lost, s.raised = s.agreed, false, now
	s.agreed, s.agreeing = 0, 0
	return true
}
