// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"maps"
	"slices"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
	"github.com/sealane-io/sealane/propagation"
)

// gatherHalves reads the Works of a shard's halves: those that its own Bundle lists, and all others that there are.
func (r *Reconciler) gatherHalves(ctx context.Context, t *target, c *clusterv1alpha1.Cluster,
	shard int32) (time.Duration, error) {
	if t.mem.halves == nil {
		t.mem.halves = map[string]*mailbox{}
	}
	box := func(half string) *mailbox { return t.mem.of(t.cluster, shard, half) }
	works, err := r.Works.HalvesOf(ctx, t.cluster, shard, func(half string) string { return box(half).work })
	if err != nil {
		return 0, err
	}
	listed := map[string]bool{}
	if t.sent != nil && divides(t.sent.Halves) {
		for _, half := range t.sent.Halves {
			listed[half] = true
			box(half)
		}
	}
	t.halves = make(map[string]*sentBundle, len(t.mem.halves))
	t.sorted = make([]string, 0, len(t.mem.halves))
	var again time.Duration
	room := maxReport
	for _, half := range slices.Sorted(maps.Keys(t.mem.halves)) {
		b := &sentBundle{half: half, box: t.mem.halves[half]}
		b.box.held.room = room
		there, after := r.gatherHalf(b, works[half], c)
		if !there && !listed[half] && !b.terminating {
			delete(t.mem.halves, half)
			continue
		}
		room = max(room-len(b.box.held.status), 0)
		again = sooner(again, after)
		t.halves[half] = b
		t.sorted = append(t.sorted, half)
	}
	return again, nil
}

// gatherHalf reads the Work of one half, nil if it has none, and says whether there is one.
func (r *Reconciler) gatherHalf(b *sentBundle, work *workv1alpha1.Work,
	c *clusterv1alpha1.Cluster) (there bool, again time.Duration) {
	work, b.terminating = lasting(work)
	if work != nil && work.UID == b.box.deleted {
		work, b.terminating = nil, true // which the cache does not show yet
	}
	var cached *Bundle
	if work != nil {
		b.box.held.read(work)
		cached = b.box.held.spec
	}
	now := r.Now()
	b.sent, again = b.box.latest(work, cached, now)
	b.unseen = again > 0
	if work == nil {
		if there = b.sent != nil && !b.terminating; !there {
			b.sent, b.missing = b.box.bundle.Remembered(), true
		}
		return there, again
	}
	if said := b.box.held.report; said != nil {
		b.observed = said.revision
	}
	if b.unseen {
		return true, again
	}
	if b.answered() {
		b.box.echo = fleet.Echo{}
		return true, again
	}
	var after time.Duration
	b.refresh, after = b.box.echo.Overdue(c, false, propagation.Failed(work), now)
	return true, sooner(again, after)
}

// unusable joins what the member says of the imports in the shard's own Bundle with what it says of those in the halves
// that this lists. What is made of the same is the same list.
func (t *target) unusable(own []v1alpha1.ImportProblem) []v1alpha1.ImportProblem {
	lists := [][]v1alpha1.ImportProblem{own}
	for _, half := range t.sent.Halves {
		if b := t.halves[half]; b != nil && b.box.held.report != nil && len(b.box.held.report.imports) > 0 {
			lists = append(lists, b.box.held.report.imports)
		}
	}
	if len(lists) == 1 {
		return own
	}
	if !slices.EqualFunc(lists, t.mem.unusableIn, identical[v1alpha1.ImportProblem]) {
		t.mem.unusable, t.mem.unusableIn = slices.Concat(lists...), lists
	}
	return t.mem.unusable
}

// lists says that the shard's own Bundle lists a half.
func (t *target) lists(half string) bool {
	return t.sent != nil && slices.Contains(t.sent.Halves, half)
}

// all are the Bundles of a member in one shard.
func (t *target) all() []*sentBundle {
	out := []*sentBundle{&t.sentBundle}
	for _, half := range t.sorted {
		out = append(out, t.halves[half])
	}
	return out
}

// letter is what a Bundle should say; spec is nil where its Work is to be deleted.
type letter struct {
	bundle *sentBundle
	shard  int32
	spec   *Bundle
	// halved is when the last one of the halves was written that are to have what the shard's own Bundle has, zero where
	// it lists some or is to have none.
	halved time.Time
}

// letters are for all Bundles of a member in one shard, given all that it should have of that and the sizes of the
// imports.
func (t *target) letters(all Bundle, sizes []int, compared comparison) []letter {
	now := laid{reads: t.readsParts, answered: t.answered(), parted: &t.mem.parted}
	if t.sent != nil {
		now.listed = t.sent.Halves
	}
	for _, half := range t.sorted {
		if !t.halves[half].missing {
			now.there = append(now.there, half)
		}
	}
	now.has = func(half string, spec *Bundle) bool {
		b := t.halves[half]
		if b == nil || !b.answered() {
			return false
		}
		wanted := *b.unwithheld(spec, compared)
		wanted.Revision = b.sent.Revision
		return compared.bundles(b.sent, &wanted)
	}
	a := layOut(all, sizes, now)
	out := []letter{{bundle: &t.sentBundle, shard: all.Shard, spec: t.unwithheld(&a.own, compared)}}
	for _, half := range a.sorted {
		b := t.halves[half]
		if b == nil {
			b = &sentBundle{half: half, box: t.mem.of(t.cluster, all.Shard, half)}
		}
		out = append(out, letter{bundle: b, shard: all.Shard, spec: b.unwithheld(a.halves[half], compared)})
	}
	for _, half := range a.gone {
		out = append(out, letter{bundle: t.halves[half], shard: all.Shard})
	}
	return out
}
