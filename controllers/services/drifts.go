// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"golang.org/x/time/rate"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// quickChanges is how many Bundles of shards are written for a member because of changed endpoints alone until further
	// changes become deltas, and quietChange after what time one more is.
	quickChanges = 4
	quietChange  = 20 * time.Second
)

// deltas are the Bundles of deltas of one member, and how the shards stand to them. All shards share them.
type deltas struct {
	cluster string

	mu sync.Mutex
	// last is the highest sequence that was given or found.
	last int64
	// direct has a token for each Bundle of a shard that may be written for changed endpoints.
	direct *rate.Limiter
	// loaded says that boxes are what the API server has.
	loaded bool
	boxes  []*sentBundle
	// found is where the newest copies of imports were found in what was sent.
	found found
	// listed is how many of them the own Bundle of shard 0 says there are, and inForce how many the member has answered to
	// be told of.
	listed, inForce int32
	// shards are what was last decided on each, of as many as there are.
	shards map[int32]*drifting
	number int32
	// since is when the first change was seen that is to be written.
	since time.Time
}

func newDeltas(cluster string) *deltas {
	return &deltas{cluster: cluster, direct: rate.NewLimiter(rate.Every(quietChange), quickChanges),
		shards: map[int32]*drifting{}}
}

// found is where the newest copy of each import is, of all and by shard, in these specs of Bundles of deltas.
type found struct {
	in     []*v1alpha1.BundleSpec
	copies map[key]copied
	keys   map[int32][]hashedKey
}

// hashedKey is an import with its HalfHash.
type hashedKey struct {
	key
	hash uint64
}

// look returns where the newest copies are. Nearly always that is where they were.
func (d *deltas) look() *found {
	in := make([]*v1alpha1.BundleSpec, len(d.boxes))
	for n, b := range d.boxes {
		in[n] = b.sent
	}
	if d.found.copies == nil || !slices.Equal(d.found.in, in) {
		sent, _ := d.sent(time.Time{})
		d.found = found{in, newest(sent), map[int32][]hashedKey{}}
		for k := range d.found.copies {
			shard := v1alpha1.Shard(k.namespace, k.name, d.number)
			d.found.keys[shard] = append(d.found.keys[shard], hashedKey{k, v1alpha1.HalfHash(k.namespace, k.name)})
		}
	}
	return &d.found
}

// drifting are the drifts of a shard, of what Bundles of it and what deltas they were found, and whether some are late.
type drifting struct {
	by   map[key]*drift
	from map[string]lain
	in   []*v1alpha1.BundleSpec
	late bool
}

// lain is a Bundle of a shard as it was when drifts were found.
type lain struct {
	wanted, sent []v1alpha1.Import
	sequence     int64
	// divided says that it should list halves, and listing that it does; none that there is none.
	divided, listing, answered, none bool
	// covered says that deltas have what has changed since it was sent.
	covered bool
}

// same says that the drifts of its imports are the same.
func (l *lain) same(other *lain) bool {
	same := func(a, b v1alpha1.Import) bool {
		return a.Withheld == b.Withheld && len(a.Clusters) > 0 && identical(a.Clusters, b.Clusters)
	}
	return l.sequence == other.sequence && l.divided == other.divided && l.listing == other.listing &&
		l.answered == other.answered && l.none == other.none &&
		slices.EqualFunc(l.wanted, other.wanted, same) && slices.EqualFunc(l.sent, other.sent, same)
}

// next returns the sequence of a Bundle that is written with what is wanted now. Time goes into it, as what is left in
// a member may be newer than what Karmada was restored to.
func (d *deltas) next(now time.Time) int64 {
	d.last = max(d.last+1, now.UnixMilli())
	return d.last
}

// saw a sequence.
func (d *deltas) saw(sequence int64, now time.Time) {
	if !invented(sequence, now) {
		d.last = max(d.last, sequence)
	}
}

// load brings up to date what there is, given the Works by their numbers. It says after how long to look again, and
// whether there is something else than was known.
func (d *deltas) load(r *Reconciler, works map[int32]*workv1alpha1.Work,
	c *clusterv1alpha1.Cluster) (again time.Duration, foreign bool) {
	foreign, d.loaded = !d.loaded, true
	most := d.listed
	for n := range works {
		most = max(most, n+1)
	}
	for int32(len(d.boxes)) < min(most, v1alpha1.MaxDeltas) {
		d.boxes = append(d.boxes, &sentBundle{box: newMailbox()})
	}
	for n, b := range d.boxes {
		before := b.sent
		now := &sentBundle{box: b.box}
		_, after := r.gatherHalf(now, works[int32(n)], c)
		again = sooner(again, after)
		d.boxes[n] = now
		if now.sent != nil {
			d.saw(now.sent.Sequence, r.Now())
		}
		foreign = foreign || before != now.sent
	}
	return again, foreign
}

// sent is what arrange goes by, and busy is for how long nothing more is written: the answer to what was written last
// is waited for. What changes meanwhile is one write then, for all shards.
func (d *deltas) sent(now time.Time) (out []sentDelta, busy time.Duration) {
	for n, b := range d.boxes {
		s := sentDelta{answered: b.answered() && int32(n) < d.inForce, closed: b.terminating,
			again: b.sent == nil || b.missing || b.refresh}
		if b.sent != nil {
			s.sequence, s.imports = b.sent.Sequence, b.sent.Imports
			s.again = s.again || invented(s.sequence, now)
			if !b.answered() && !s.again {
				busy = max(busy, b.box.written.Add(unansweredPace).Sub(now))
			}
		}
		out = append(out, s)
	}
	return out, busy
}

// list notes how many the own Bundle of shard 0 lists. Where that is gone, and nothing known of it, those that there
// are were: without them the member would go back to what the shards have.
func (d *deltas) list(t *target) {
	if t.sent != nil {
		d.listed = min(max(t.sent.Deltas, 0), v1alpha1.MaxDeltas)
		if t.answered() {
			d.inForce = d.listed
		}
		return
	}
	for int(d.listed) < len(d.boxes) && d.boxes[d.listed].sent != nil {
		d.listed++
	}
}

// there is how many Bundles of deltas may be listed: those that are, and further ones that the member has for sure.
// What such a one has is as old as its sequence says, whoever wrote it.
func (d *deltas) there() int32 {
	n := max(d.listed, d.inForce)
	for int(n) < len(d.boxes) && d.boxes[n].answered() {
		n++
	}
	return n
}

// full says that no more should become deltas: what the Bundles would have to keep is half of what they can.
func (d *deltas) full() bool {
	kept := 0
	for _, of := range d.shards {
		for _, s := range of.by {
			if s.want != nil {
				kept += s.size
			}
		}
	}
	return kept > v1alpha1.MaxDeltas*maxDelta/2
}

// all are the drifts of all shards; nil while those of some are not known.
func (d *deltas) all() map[key]*drift {
	if d.number == 0 || len(d.shards) < int(d.number) {
		return nil
	}
	out := map[key]*drift{}
	for _, of := range d.shards {
		for k, s := range of.by {
			out[k] = s
		}
	}
	return out
}

// sheet is where the posting of one shard's Bundles to a member notes what becomes of them. It is not used by two at
// once, and its deltas are locked as long as it is open.
type sheet struct {
	*deltas
	now      time.Time
	shard    int32
	all      *v1alpha1.BundleSpec
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
	spec    *v1alpha1.BundleSpec
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
func (r *Reconciler) open(ctx context.Context, t *target, all *v1alpha1.BundleSpec, sizes []int, shards int32,
	compared comparison) (*sheet, error) {
	if t.deltas == nil {
		return nil, nil
	}
	d := t.deltas
	d.mu.Lock()
	if !d.loaded {
		works, err := r.Works.DeltasOf(ctx, d.cluster)
		if err != nil {
			d.mu.Unlock()
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
	out := &sheet{deltas: d, now: r.Now(), shard: all.Shard, all: all, sizes: sizes, compared: compared,
		copies: d.look().copies, posted: map[string]*posted{}, late: map[key]bool{}, crowded: sync.OnceValue(d.full),
		before: d.shards[all.Shard]}
	if out.before == nil {
		out.before = &drifting{by: map[key]*drift{}, from: map[string]lain{}}
	} else {
		out.same = slices.Equal(out.before.in, d.found.in)
	}
	return out, nil
}

// listing has the own Bundle of shard 0 say how many Bundles of deltas there are.
func (s *sheet) listing(own *v1alpha1.BundleSpec) *v1alpha1.BundleSpec {
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
func (s *sheet) counts(sent *v1alpha1.BundleSpec) bool {
	return s != nil && sent.Sequence > 0 && !invented(sent.Sequence, s.now)
}

// unmoved says that a Bundle lies as it did when deltas had what had changed, and so do these.
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
		if !ok || at.sequence <= sent.Sequence || !s.compared.imports(*at.what, *i) {
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
	at, ok := slices.BinarySearchFunc(s.all.Imports, k, func(i v1alpha1.Import, k key) int {
		return compareKeys(keyOf(&i), k)
	})
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
		want := p.spec.Import(k.namespace, k.name)
		if len(p.spec.Halves) > 0 {
			// The member may still go by what the shard's own Bundle has, or had before it listed these halves.
			moving, pending = moving || !p.bundle.answered() || len(sent.Halves) == 0, 0
			if sent == nil || len(sent.Halves) > 0 {
				continue
			}
			want = s.all.Import(k.namespace, k.name)
		}
		if pending > 0 && want != nil {
			out.settled = false
			out.seen(want, pending, true)
			continue
		}
		var have *v1alpha1.Import
		if sent != nil {
			have = sent.Import(k.namespace, k.name)
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
		same := s.compared.imports(*have, *want)
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
