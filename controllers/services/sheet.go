// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// sheet is where the posting of one shard's Bundles to a member notes what becomes of them. It is not used by two at
// once, and its deltas are locked as long as it is open.
type sheet struct {
	*deltas
	now      time.Time
	shard    int32
	all      *Bundle
	sizes    []int
	compared comparison
	copies   map[key]copied
	posted   map[string]*posted // by half
	late     map[key]bool
	crowded  func() bool
	// before is what was found last, and same says that deltas are as they were then.
	before *drifting
	same   bool
}

// posted is a Bundle of a shard, what it should say, and the sequence with which it is about to be written, if it is.
type posted struct {
	bundle  *sentBundle
	spec    *Bundle
	pending int64
	// bits of the hashes of its imports, and how many.
	bits    uint64
	length  int
	covered bool // as in lain
}

// has says whether an import with this hash may be in the Bundle.
func (p *posted) has(hash uint64) bool { return hash>>(64-p.length) == p.bits }

// lain is how the Bundle lies.
func (p *posted) lain() lain {
	out := lain{wanted: p.spec.Imports, divided: len(p.spec.Halves) > 0, answered: p.bundle.answered(),
		covered: p.covered}
	if sent := p.bundle.sent; sent != nil {
		out.sent, out.sequence, out.listing = sent.Imports, sent.Sequence, len(sent.Halves) > 0
	} else {
		out.none = true
	}
	return out
}

// open begins a sheet of the shard's Bundles, given all that the member should have of it. It is nil where the member's
// agent reads no deltas, else its deltas are locked until who has opened it unlocks them.
func (r *Reconciler) open(ctx context.Context, t *target, all *Bundle, sizes []int, shards int32,
	compared comparison) (out *sheet, _ error) {
	if t.deltas == nil {
		return nil, nil
	}
	d := t.deltas
	d.mu.Lock()
	defer func() {
		if out == nil {
			d.mu.Unlock()
		}
	}()
	if !d.loaded {
		works, err := r.Works.DeltasOf(ctx, d.cluster)
		if err != nil {
			return nil, err
		}
		d.load(r, works, t.known)
	}
	d.number = shards
	if all.Shard == 0 {
		d.list(t)
	}
	for _, b := range t.all() {
		if b.sent != nil {
			d.saw(b.sent.Sequence, r.Now())
		}
	}
	opened := &sheet{deltas: d, now: r.Now(), shard: all.Shard, all: all, sizes: sizes, compared: compared,
		copies: d.look().copies, posted: map[string]*posted{}, late: map[key]bool{}, crowded: sync.OnceValue(d.full),
		before: d.shards[all.Shard]}
	if opened.before == nil {
		opened.before = &drifting{by: map[key]*drift{}, from: map[string]lain{}}
	} else {
		opened.same = slices.Equal(opened.before.in, d.found.in)
	}
	return opened, nil
}

// listing has the own Bundle of shard 0 say how many Bundles of deltas there are.
func (s *sheet) listing(own *Bundle) *Bundle {
	if s == nil || s.shard != 0 {
		return own
	}
	out := *own
	out.Deltas = s.there()
	return &out
}

// note a Bundle of the shard.
func (s *sheet) note(l letter) *posted {
	if s == nil {
		return new(posted)
	}
	p := &posted{bundle: l.bundle, spec: l.spec, length: len(l.bundle.half)}
	for _, bit := range l.bundle.half {
		p.bits = p.bits<<1 | uint64(bit-'0')
	}
	s.posted[l.bundle.half] = p
	return p
}

// counts says that deltas may be newer than a Bundle that was sent.
func (s *sheet) counts(sent *Bundle) bool {
	return s != nil && sent.Sequence > 0 && !invented(sent.Sequence, s.now)
}

// unmoved says that a Bundle lies as it did when deltas had what of its imports had changed, and so do these.
func (s *sheet) unmoved(p *posted) bool {
	was, ok := s.before.from[p.bundle.half]
	lies := p.lain()
	p.covered = ok && s.same && was.covered && lies.same(&was)
	return p.covered
}

// covers says that deltas have all of these imports as they should be, if a Bundle stays as it was sent.
func (s *sheet) covers(p *posted, changed []*v1alpha1.Import) bool {
	sent := p.bundle.sent
	for _, i := range changed {
		at, ok := s.copies[keyOf(i)]
		if !ok || at.sequence <= sent.Sequence || !s.compared.imports(at.what, i) {
			return false
		}
	}
	p.covered = true
	return true
}

// defers says that these imports become deltas, and do not have a Bundle of the shard written that must wait so long.
func (s *sheet) defers(changed []*v1alpha1.Import, wait time.Duration) bool {
	if s.crowded() {
		return false
	}
	for _, i := range changed {
		if s.sizeOf(keyOf(i)) > largestChange {
			return false
		}
	}
	return wait > 0 || !s.direct.AllowN(s.now, 1)
}

// take makes deltas of imports.
func (s *sheet) take(changed []*v1alpha1.Import, since time.Time) {
	for _, i := range changed {
		s.late[keyOf(i)] = true
	}
	if s.since.IsZero() || !since.IsZero() && since.Before(s.since) {
		s.since = since
	}
}

func (s *sheet) sizeOf(k key) int {
	at, ok := findImport(s.all.Imports, k)
	if !ok {
		return 0
	}
	return s.sizes[at]
}

// close ends the sheet, and says whether deltas are to be written. The drift of an import is as it was where the
// Bundles that have it lie as they did.
func (s *sheet) close() (late bool) {
	now := s.before
	moved := len(now.from) != len(s.posted)
	var changed []*posted
	from := make(map[string]lain, len(s.posted))
	for half, p := range s.posted {
		was, ok := now.from[half]
		lies := p.lain()
		moved = moved || !ok
		if p.pending > 0 {
			lies.sequence = -1 // which it has not yet
		}
		if p.pending > 0 || !lies.same(&was) {
			changed = append(changed, p)
		}
		from[half] = lies
	}
	all := moved || !s.same || now.late || len(s.late) > 0
	if all {
		now = &drifting{by: make(map[key]*drift, len(now.by)), in: s.found.in}
	}
	now.from = from
	find := func(k hashedKey) {
		d := s.before.by[k.key]
		if d == nil || moved || slices.ContainsFunc(changed, func(p *posted) bool { return p.has(k.hash) }) {
			d = s.drift(k.key, k.hash)
		} else if !all {
			return
		}
		now.by[k.key] = d
		now.late = now.late || d.late(s.copies[k.key], s.compared)
	}
	if all || len(changed) > 0 {
		s.drifted = true
		for _, k := range s.found.keys[s.shard] {
			find(k)
		}
		for k := range s.late {
			find(hashedKey{k, v1alpha1.HalfHash(k.namespace, k.name)})
		}
	}
	s.shards[s.shard] = now
	return now.late
}

// drift of one import.
func (s *sheet) drift(k key, hash uint64) *drift {
	out := &drift{settled: true, size: s.sizeOf(k)}
	moving := false
	for _, p := range s.posted {
		if !p.has(hash) {
			continue
		}
		sent, pending := p.bundle.sent, p.pending
		want := p.spec.imported(k)
		if len(p.spec.Halves) > 0 {
			// The member may still go by what the shard's own Bundle has, or had before it listed these halves.
			moving, pending = moving || !p.bundle.answered() || len(sent.Halves) == 0, 0
			if sent == nil || len(sent.Halves) > 0 {
				continue
			}
			want = s.all.imported(k)
		}
		if pending > 0 && want != nil {
			out.settled = false
			out.seen(want, pending, true)
			continue
		}
		var have *v1alpha1.Import
		if sent != nil {
			have = sent.imported(k)
		}
		if want == nil || have == nil || have.Withheld || !s.counts(sent) {
			// Deltas do not count beside it. But the member may still have one before it, beside which they do: what they
			// have of an import stays until the member has answered, be it one that is to go.
			there := p.bundle.answered() && pending == 0
			if want == nil {
				want, there = s.copies[k].what, there && have == nil
			}
			if !there && want != nil {
				out.settled = false
				out.seen(want, math.MaxInt64, true)
			}
			continue
		}
		same := s.compared.imports(have, want)
		out.settled = out.settled && same && p.bundle.answered()
		out.seen(want, sent.Sequence, same)
	}
	if moving && out.want != nil {
		out.settled, out.since = false, min(out.since, 1)
	}
	if out.size == 0 && out.want != nil {
		out.size = sizeOf(*out.want)
	}
	return out
}

func (d *drift) seen(want *v1alpha1.Import, sequence int64, same bool) {
	if d.want == nil || sequence < d.since {
		d.since = sequence
	}
	if d.want = want; !same {
		d.stale = max(d.stale, sequence)
	}
}
