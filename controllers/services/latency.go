// SPDX-License-Identifier: Apache-2.0

package services

import (
	"slices"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// maxUnderWay is how many changes are followed at once on their way to one member in one shard. Where there are more,
	// later ones are not followed.
	maxUnderWay = 4
	// giveUp is after what time a change is not followed any more that a member has not answered which Karmada reaches. It
	// counts as one that took so long.
	giveUp = 5 * time.Minute
)

// underWay are the changes of other clusters' exports that were sent to a member and are not answered yet, the oldest
// first. Only the broker's own clock times them.
type underWay []sentChange

// sentChange is a change of exports that the broker first saw at a time, and the revision of the Bundle that carries
// it.
type sentChange struct {
	revision int64
	seen     time.Time
}

// carry notes that a revision carries what was first seen at a time.
func (u *underWay) carry(revision int64, seen time.Time) {
	if len(*u) < maxUnderWay {
		*u = append(*u, sentChange{revision, seen})
	}
}

// answered removes what a member has answered, or does not answer for too long, and returns how long each took. sent is
// the newest revision that there is: an answer to a later one is none to what was sent, and nothing is known.
func (u *underWay) answered(revision, sent int64, now time.Time) (took []time.Duration) {
	if revision > sent {
		*u = nil
		return nil
	}
	var rest underWay
	for _, c := range *u {
		waited := max(now.Sub(c.seen), 0)
		switch {
		case waited >= giveUp:
			took = append(took, giveUp)
		case c.revision <= revision:
			took = append(took, waited)
		default:
			rest = append(rest, c)
		}
	}
	*u = rest
	return took
}

// next is after what time to look whether a member has answered; 0 if it has.
func (u underWay) next(now time.Time) time.Duration {
	if len(u) == 0 {
		return 0
	}
	return max(giveUp-now.Sub(u[0].seen), time.Millisecond)
}

// exported is what a member was last found to export in a shard.
type exported struct {
	known   bool
	digest  uint64
	digests []uint64
	// changed is when the broker first saw the change that the next decision is about; zero if there is none.
	changed time.Time
	// changes of exports were made of late, as of counted.
	changes float64
	counted time.Time
}

// note compares with what was found before, if that is known: after a start of the controller it is not, and what has
// changed meanwhile is no change that was seen.
func (e *exported) note(said *report, seen time.Time) {
	if e.known && e.digest != said.digest {
		e.count(seen, max(1, missing(said.digests, e.digests)))
		if e.changed.IsZero() {
			e.changed = seen
		}
	}
	e.known, e.digest, e.digests = true, said.digest, said.digests
}

// missing counts what is in one list and not in another; both are sorted.
func missing(list, other []uint64) (n int) {
	for _, d := range list {
		for len(other) > 0 && other[0] < d {
			other = other[1:]
		}
		if len(other) == 0 || other[0] != d {
			n++
		}
	}
	return n
}

// arrived notes that something of a shard's Works has come at a time, unless something came before since the last
// decision on it.
func (r *Reconciler) arrived(shard Shard, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.arrivals == nil {
		r.arrivals = map[Shard]time.Time{}
	}
	if first, ok := r.arrivals[shard]; !ok || at.Before(first) {
		r.arrivals[shard] = at
	}
}

// arrival returns when the first of what a decision on a shard is about has come, and begins anew.
func (r *Reconciler) arrival(shard Shard) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.arrivals[shard]
	delete(r.arrivals, shard)
	if !ok {
		return r.Now()
	}
	return at
}

// follow notes which members' exports have changed, counts the changes that have come to a member, and says when to
// look again. What was on its way to one that Karmada does not reach is not followed any more: that is no latency.
func (r *Reconciler) follow(set string, targets []target, seen time.Time) (again time.Duration) {
	for _, t := range targets {
		if t.said != nil {
			t.mem.exported.note(t.said, seen)
		}
		for _, b := range t.all() {
			again = sooner(again, r.followed(set, t.cluster, b, t.lost))
		}
	}
	return again
}

// followed counts the changes in one Bundle that have come to a member, and says when to look again.
func (r *Reconciler) followed(set, cluster string, b *sentBundle, lost bool) time.Duration {
	now := r.Now()
	if lost || b.sent == nil {
		b.box.underWay, b.box.unsent = nil, time.Time{}
		return 0
	}
	for _, took := range b.box.underWay.answered(max(b.observed, b.apart), b.sent.Revision, now) {
		r.Metrics.Propagated(set, cluster, took)
	}
	return b.box.underWay.next(now)
}

// letGo forgets what was on its way to a member that takes no part any more.
func (r *Reconciler) letGo(record *v1alpha1.Member, shard int32) {
	r.mu.Lock()
	if mem := r.seen[seenKey{string(record.UID), shard}]; mem != nil {
		mem.underWay, mem.unsent, mem.exported = nil, time.Time{}, exported{}
		mem.held, mem.kept, mem.halves, mem.halving = held{}, nil, nil, time.Time{}
		mem.parted, mem.pending = parted{}, nil
	}
	r.mu.Unlock()
	r.dropDeltas(record)
}

// carries returns when the change of other clusters' exports was first seen that a Bundle brings to a member, also one
// that could not be written before; zero if it brings none. What a member gets first is no change.
func (t *target) carries(b *sentBundle, spec *Bundle, targets []target,
	compared comparison) time.Time {
	if b.sent == nil || b.missing || !slices.Equal(b.sent.Halves, spec.Halves) {
		return time.Time{}
	}
	seen := b.box.unsent
	for _, o := range targets {
		if at := o.mem.exported.changed; o.cluster != t.cluster && !at.IsZero() && (seen.IsZero() || at.Before(seen)) {
			seen = at
		}
	}
	if !seen.IsZero() && slices.EqualFunc(b.sent.Imports, spec.Imports, compared.imports) {
		return time.Time{}
	}
	return seen
}

// wrote notes that a revision was written, with what it carries.
func (m *mailbox) wrote(revision int64) {
	if !m.unsent.IsZero() {
		m.underWay.carry(revision, m.unsent)
	}
	m.unsent = time.Time{}
}

// decided says that the changes of exports were decided on.
func decided(targets []target) {
	for _, t := range targets {
		t.mem.exported.changed = time.Time{}
	}
}
