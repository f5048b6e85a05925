// SPDX-License-Identifier: Apache-2.0

package services

import (
	"slices"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// step has the controller write once what it would, and the member answer nothing but the shard's own Bundle.
func (i *importer) step() {
	i.t.Helper()
	p, err := i.plan(i.t.Context(), Shard{"blue", 0})
	if err != nil {
		i.t.Fatal(err)
	}
	if _, err := i.carryOut(i.t.Context(), p.writes); err != nil {
		i.t.Fatal(err)
	}
	i.answer(2, 0)
}

// TestHalvesDoNotFlap: a shard whose size goes up and down around the limit, faster than the member answers its halves,
// has none made and deleted again and again, and comes to rest with all of its services.
func TestHalvesDoNotFlap(t *testing.T) {
	i := newImporter(t, 9, 31)
	i.rest(0)
	before, made := i.shelf.writes["deleted"], 0
	for round := range 20 {
		e := &i.members[0].Exports[0]
		e.Backends = []v1alpha1.Backends{pods(1, 3+60*(round%2), e.Backends[0].Ports...)}
		i.answer(0, 0)
		i.step()
		made = max(made, len(i.works())-1)
	}
	if n := i.shelf.writes["deleted"] - before; made != 2 || n > 0 {
		t.Errorf("%d halves were made, and %d deleted in 20 rounds", made, n)
	}
	i.rest(0)
	i.halves("at rest", 31)
}

// TestAHalfIsNotWhatIsLeftOfAnother: where the member has halves of old that Karmada knows nothing of, as after a
// restore of Karmada from a backup, what it says of these is no answer to those that are sent.
func TestAHalfIsNotWhatIsLeftOfAnother(t *testing.T) {
	for seed := range uint64(8) {
		i := newImporter(t, seed, 20)
		i.rest(0)
		i.left = map[string]bool{}
		for _, half := range []string{"0", "1", "00", "01", "10", "11"} {
			b := &v1alpha1.Bundle{}
			b.Name = v1alpha1.HalfName(v1alpha1.BundleName(0), half)
			b.Spec.Revision = 1
			i.left[b.Name] = true
			i.bundles.put(b)
		}
		i.export(60)
		i.rest(0.2)
		i.halves("with what is left", 60)
	}
}

// TestAHalfThatNobodyKnewGoes: another controller, whose turn was before, may have written a Work after this one has
// looked.
func TestAHalfThatNobodyKnewGoes(t *testing.T) {
	i := newImporter(t, 1, 100)
	i.rest(0)
	halves := i.halves("before", 100)
	i.decide(0)
	raw, err := propagation.Encode(v1alpha1.BundleSpec{Revision: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, half := range []string{"0", halves[0] + "0"} {
		if _, err := i.Works.ApplyBundle(t.Context(), importing, 0, half, propagation.Written{}, raw); err != nil {
			t.Fatal(err)
		}
	}
	i.rest(0)
	if got := i.halves("after", 100); !slices.Equal(got, halves) {
		t.Errorf("it is divided into %v, was %v", got, halves)
	}
}

// TestAWorkThatIsBeingDeletedIsWaitedFor: while Karmada does not reach the member its Works that somebody has deleted
// stay, and nothing can be written to them. That is no error, which would have all of the shard wait longer and longer.
func TestAWorkThatIsBeingDeletedIsWaitedFor(t *testing.T) {
	for _, own := range []bool{false, true} {
		for _, known := range []bool{true, false} {
			i := newImporter(t, 3, 100)
			i.rest(0)
			halves := i.halves("before", 100)
			i.decide(0)
			key := propagation.BundleKey(importing, 0)
			if !own {
				key = propagation.HalfKey(importing, 0, v1alpha1.HalfOf(halves, "sample", i.members[0].Exports[0].Name))
			}
			i.terminate(key)
			if !known {
				i.restart()
			}
			for round := range 3 {
				e := &i.members[0].Exports[0]
				e.Backends = []v1alpha1.Backends{pods(1, 4+round, e.Backends[0].Ports...)}
				i.answer(0, 0)
				i.step()
			}
			var work workv1alpha1.Work
			if err := i.shelf.Get(t.Context(), key, &work); err != nil || work.DeletionTimestamp.IsZero() {
				t.Fatalf("%v, deleted at %v", err, work.DeletionTimestamp)
			}
			if err := i.shelf.Delete(t.Context(), &work); err != nil {
				t.Fatal(err)
			}
			i.rest(0)
			if got := i.halves("after", 100); !slices.Equal(got, halves) {
				t.Errorf("own %t, known %t: it is divided into %v, was %v", own, known, got, halves)
			}
		}
	}
}

// terminate marks a Work as one that is deleted once Karmada has taken its object out of the member.
func (i *importer) terminate(key types.NamespacedName) {
	i.t.Helper()
	var work workv1alpha1.Work
	if err := i.shelf.Get(i.t.Context(), key, &work); err != nil {
		i.t.Fatal(err)
	}
	i.now = i.now.Add(time.Second)
	deleted := metav1.NewTime(i.now)
	work.DeletionTimestamp = &deleted
	i.shelf.put(&work)
}

// TestAMemberThatSaysThisAndThat: one whose agent says each time something else of whether it reads halves loses
// nothing, and what that costs is bounded by what it has: its shard whole, or all halves of it.
func TestAMemberThatSaysThisAndThat(t *testing.T) {
	i := newImporter(t, 5, 100)
	i.rest(0)
	whole := 0
	for _, work := range i.works() {
		whole += len(work.Spec.Workload.Manifests[0].Raw)
	}
	for round := range 6 {
		i.tells = round%2 == 1
		i.tell()
		before := map[string]string{}
		for _, work := range i.works() {
			before[work.Name] = string(work.Spec.Workload.Manifests[0].Raw)
		}
		i.rest(0.1)
		written := 0
		for _, work := range i.works() {
			if raw := string(work.Spec.Workload.Manifests[0].Raw); raw != before[work.Name] {
				written += len(raw)
			}
		}
		if written > whole+whole/4 {
			t.Errorf("round %d: %d bytes are written where all are %d", round, written, whole)
		}
		if halves := i.halves("after a change of mind", 100); len(halves) > 0 != i.tells {
			t.Errorf("round %d: it is divided into %v", round, halves)
		}
	}
}
