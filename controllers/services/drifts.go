// SPDX-License-Identifier: Apache-2.0

package services

import (
	"maps"
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
	// answers to them that the member gives apart.
	answers answers
	// found is where the newest copies of imports were found in what was sent.
	found found
	// listed is how many of them the own Bundle of shard 0 says there are, and inForce how many the member has answered to
	// be told of.
	listed, inForce int32
	// shards are what was last decided on each, of as many as there are.
	shards map[int32]*drifting
	number int32
	// drifts are those of all shards, as they were when they were last asked for, and drifted says that some have changed
	// since.
	drifts  map[key]*drift
	drifted bool
	// since is when the first change was seen that is to be written.
	since time.Time
}

func newDeltas(cluster string) *deltas {
	return &deltas{cluster: cluster, direct: rate.NewLimiter(rate.Every(quietChange), quickChanges),
		shards: map[int32]*drifting{}}
}

// found is where the newest copy of each import is, of all and by shard, in these specs of Bundles of deltas.
type found struct {
	in     []*Bundle
	copies map[key]copied
	keys   map[int32][]hashedKey
}

// hashedKey is an import with its HalfHash.
type hashedKey struct {
	key
	hash uint64
}

// look returns where the newest copies are. Nearly always that is where they were. The maps are filled again where it
// is not: where many pods are replaced, new ones were most of what the controller allocated.
func (d *deltas) look() *found {
	f := &d.found
	if f.copies == nil {
		f.copies, f.keys = map[key]copied{}, map[int32][]hashedKey{}
	} else if slices.EqualFunc(f.in, d.boxes, func(in *Bundle, b *sentBundle) bool { return in == b.sent }) {
		return f
	}
	f.in = make([]*Bundle, len(d.boxes)) // drifts that were found before keep those of then
	for n, b := range d.boxes {
		f.in[n] = b.sent
	}
	sent, _ := d.sent(time.Time{})
	newest(f.copies, sent)
	for shard, keys := range f.keys {
		f.keys[shard] = keys[:0]
	}
	for k := range f.copies {
		shard := v1alpha1.Shard(k.namespace, k.name, d.number)
		f.keys[shard] = append(f.keys[shard], hashedKey{k, v1alpha1.HalfHash(k.namespace, k.name)})
	}
	return f
}

// forget what shards stand to, as that is another matter now.
func (d *deltas) forget() {
	clear(d.shards)
	d.found, d.drifted = found{}, true
}

// drifting are the drifts of a shard, of what Bundles of it and what deltas they were found, and whether some are late.
type drifting struct {
	by   map[key]*drift
	from map[string]lain
	in   []*Bundle
	late bool
}

// lain is a Bundle of a shard as it was when drifts were found.
type lain struct {
	wanted, sent []*v1alpha1.Import
	sequence     int64
	// divided says that it should list halves, and listing that it does; none that there is none.
	divided, listing, answered, none bool
	// covered says that deltas have what has changed since it was sent.
	covered bool
}

// same says that the drifts of its imports are the same.
func (l *lain) same(other *lain) bool {
	same := func(a, b *v1alpha1.Import) bool {
		return a == b || a.Withheld == b.Withheld && len(a.Clusters) > 0 && identical(a.Clusters, b.Clusters)
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
		now := &sentBundle{box: b.box, apart: d.answers.to(n)}
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
	out = make([]sentDelta, 0, len(d.boxes))
	for n, b := range d.boxes {
		s := sentDelta{counts: int32(n) < d.inForce, closed: b.terminating,
			again: b.sent == nil || b.missing || b.refresh}
		s.answered = b.answered() && s.counts
		if b.sent != nil {
			s.sequence, s.imports = b.sent.Sequence, b.sent.Imports
			s.again = s.again || invented(s.sequence, now)
			if !b.answered() && !s.again && len(s.imports) > 0 {
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

// undecided are the shards of imports in deltas of which no drift is known: these were on their way when the shard was
// decided on last. Its Bundle may be on the way with them now, so that deltas can neither keep nor drop them.
func (d *deltas) undecided(drifts map[key]*drift) (shards []int32) {
	for k := range d.look().copies {
		if drifts[k] != nil {
			continue
		}
		if shard := v1alpha1.Shard(k.namespace, k.name, d.number); !slices.Contains(shards, shard) {
			shards = append(shards, shard)
		}
	}
	return shards
}

// all are the drifts of all shards; nil while those of some are not known.
func (d *deltas) all() map[key]*drift {
	if d.number == 0 || len(d.shards) < int(d.number) {
		return nil
	}
	if d.drifts == nil {
		d.drifts, d.drifted = map[key]*drift{}, true
	}
	if d.drifted {
		clear(d.drifts)
		for _, of := range d.shards {
			maps.Copy(d.drifts, of.by)
		}
		d.drifted = false
	}
	return d.drifts
}
