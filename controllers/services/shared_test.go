// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// kept returns all imports that the controller has of a shard, as decided and as written, also as deltas of any shard;
// those that are shared once.
func (r *Reconciler) kept(shard Shard) map[*v1alpha1.Import]bool {
	all := map[*v1alpha1.Import]bool{}
	note := func(b *Bundle) {
		if b != nil {
			for _, i := range b.Imports {
				all[i] = true
			}
		}
	}
	for _, b := range r.last(shard).d.Bundles {
		note(&b)
	}
	for k, mem := range r.seen {
		if k.shard != shard.Number {
			continue
		}
		for _, box := range append(slices.Collect(maps.Values(mem.halves)), &mem.mailbox) {
			note(box.bundle.Remembered())
			note(box.held.spec)
			note(box.held.sent)
		}
	}
	for _, d := range r.deltas {
		for _, box := range d.boxes {
			note(box.sent)
		}
		if drifting := d.shards[shard.Number]; drifting != nil {
			for _, drift := range drifting.by {
				if drift.want != nil {
					all[drift.want] = true
				}
			}
		}
	}
	return all
}

// TestMembersShareImports: of a service there is one import for all members that import it, and one for those that
// export it, in what was decided and in what was written alike, with halves and without, also after a change.
func TestMembersShareImports(t *testing.T) {
	const clusters = 12
	for _, halves := range []bool{false, true} {
		t.Run(fmt.Sprintf("halves=%t", halves), func(t *testing.T) {
			p := playWith(t, manyServices(clusters, 1200, 4), halves)
			for round := range 3 {
				p.replacePod(0, round)
				p.answer(0, 0)
				p.decide(0)
				for i := range p.members {
					p.answerHalves(i, 0)
				}
				p.decide(0)
			}
			of := map[key]int{}
			for i := range p.kept(Shard{"blue", 0}) {
				of[keyOf(i)]++
			}
			if len(of) < 250 {
				t.Fatalf("%d services are imported", len(of))
			}
			for k, n := range of {
				if n > 3 {
					t.Errorf("of %s there are %d imports for %d clusters", k, n, clusters)
				}
			}
			if mem := p.seen[seenKey{"uid-c2", 0}]; (len(mem.halves) > 0) != halves {
				t.Errorf("there are %d halves", len(mem.halves))
			}
		})
	}
}

// TestWhatWasReadIsNotKept: a controller that starts, and finds what was sent to be what it decides, has the memory of
// the decision, also of what is withheld since and was sent whole: what it read of Works is another for each member.
func TestWhatWasReadIsNotKept(t *testing.T) {
	const services = 40
	i := newImporter(t, 20, services)
	i.rest(0)
	i.halves("before", services)
	i.absent = true
	i.look()
	i.rest(0)
	i.restart()
	i.rest(0)
	decided, withheld := map[*v1alpha1.ImportCluster]bool{}, 0
	for _, b := range i.last(Shard{"blue", 0}).d.Bundles {
		for _, imported := range b.Imports {
			decided[&imported.Clusters[0]] = true
			if imported.Withheld {
				withheld++
			}
		}
	}
	if withheld != services {
		t.Fatalf("%d imports are withheld, want %d", withheld, services)
	}
	for imported := range i.kept(Shard{"blue", 0}) {
		if !decided[&imported.Clusters[0]] {
			t.Errorf("%s is kept as it was read", keyOf(imported))
		}
	}
}

// readOnly has what imports said when they were first seen: they are shared, and nobody may write into them.
type readOnly map[*v1alpha1.Import]string

func (o readOnly) note(t *testing.T, r *Reconciler, shards int32) {
	t.Helper()
	for shard := range shards {
		for i := range r.kept(Shard{"blue", shard}) {
			if _, ok := o[i]; !ok {
				o[i] = textOf(t, i)
			}
		}
	}
}

// check forgets what it has checked.
func (o readOnly) check(t *testing.T) {
	t.Helper()
	for i, was := range o {
		if is := textOf(t, i); is != was {
			t.Errorf("an import that members share was written into:\n%s\nwas\n%s", is, was)
		}
	}
	clear(o)
}

func textOf(t *testing.T, i *v1alpha1.Import) string {
	t.Helper()
	data, err := propagation.Encode(i)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
