// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// TestDeltasByACacheThatLags: nothing goes back where the controller does not see what it has written.
func TestDeltasByACacheThatLags(t *testing.T) {
	t.Parallel()
	from, to := seeds()
	for seed := from; seed < to; seed++ {
		s := newStorm(t, seed, 60)
		l := &lagging{shelf: s.shelf}
		l.catchUp()
		s.Client, s.Works = l, propagation.Writer{Client: l, Live: s.shelf}
		for round := range 60 {
			for range 1 + s.rnd.IntN(4) {
				n, service := s.pick()
				s.change(n, service)
			}
			if s.rnd.IntN(4) == 0 {
				l.catchUp()
			}
			s.say(0)
			s.say(1)
			s.now = s.now.Add(time.Duration(s.rnd.IntN(700)) * time.Millisecond)
			writes := s.wanted()
			s.rnd.Shuffle(len(writes), func(a, b int) { writes[a], writes[b] = writes[b], writes[a] })
			for _, w := range writes[:s.rnd.IntN(len(writes)+1)] {
				if err := w.do(t.Context()); err != nil {
					t.Logf("round %d: %v", round, err)
				}
			}
			for range s.rnd.IntN(8) {
				if todo := s.behind(); len(todo) > 0 {
					todo[s.rnd.IntN(len(todo))]()
				}
			}
		}
		s.Client, s.Works = s.shelf, propagation.Writer{Client: s.shelf, Live: s.shelf}
		s.calm(fmt.Sprint("seed ", seed), 0)
	}
}

// TestDeltasOfLargeImports: what grows while it is in deltas.
func TestDeltasOfLargeImports(t *testing.T) {
	t.Parallel()
	s := newStorm(t, 1, 40)
	largest := 0
	for round := range 10 {
		for service := range 25 {
			s.large[[2]int{0, service}] = 9 * round
			s.change(0, service)
		}
		s.whirl(2, 0)
		for _, w := range s.works() {
			largest = max(largest, len(w.Spec.Workload.Manifests[0].Raw))
		}
	}
	if largest > 2*maxDelta {
		t.Errorf("a Work has %d bytes", largest)
	}
	s.calm("grown", 0)
}

// TestWritesOfChurn: a pass writes one Bundle of deltas, or few.
func TestWritesOfChurn(t *testing.T) {
	t.Parallel()
	for _, changes := range []int{1, 30} {
		s := newStorm(t, 1, 100)
		before := s.generations()
		for pass := range 40 {
			s.now = s.now.Add(500 * time.Millisecond)
			for n := range changes {
				s.change(0, (pass*changes+n)%100)
			}
			s.say(0)
			s.say(1)
			for _, w := range s.wanted() {
				if err := w.do(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for todo := s.behind(); len(todo) > 0; todo = s.behind() {
				todo[0]()
			}
		}
		if n := s.generations() - before; n > 40*3/2 {
			t.Errorf("%d changes each of 40 passes: %d writes", changes, n)
		}
	}
}

// gust has pods replaced for so many passes, half a second each, and writes what the controller wants to.
func (s *storm) gust(passes, changes int) {
	s.t.Helper()
	for range passes {
		s.now = s.now.Add(500 * time.Millisecond)
		for range changes {
			s.change(s.pick())
		}
		s.say(0)
		s.say(1)
		for _, w := range s.wanted() {
			if err := w.do(s.t.Context()); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// reached has Karmada reach the importer, or not.
func (s *storm) reached(yes bool) {
	s.t.Helper()
	c := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: importing}}
	ready := metav1.Condition{Type: clusterv1alpha1.ClusterConditionReady, Status: metav1.ConditionTrue}
	if !yes {
		ready.Status = metav1.ConditionFalse
	}
	c.Status.Conditions = append(c.Status.Conditions, ready)
	s.shelf.put(c)
}

// TestDeltasForWhoIsNotReached: nothing is added to the deltas of a cluster that Karmada does not reach. What it has
// missed comes when it is back.
func TestDeltasForWhoIsNotReached(t *testing.T) {
	t.Parallel()
	s := newStorm(t, 1, 100)
	s.gust(40, 10)
	before := s.sentDeltas()
	if before == 0 {
		t.Fatal("there are no deltas")
	}
	s.reached(false)
	s.gust(100, 10)
	if after := s.sentDeltas(); after != before {
		t.Errorf("%d Bundles of deltas were %d before", after, before)
	}
	s.reached(true)
	s.calm("reached again", 0)
}

// TestDeltasForWhoDoesNotAnswer: those of an agent that answers nothing are bounded, and all is right when it does.
func TestDeltasForWhoDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := newStorm(t, 1, 60)
	for passes := 0; s.sentDeltas() < v1alpha1.MaxDeltas; passes += 10 {
		if passes == 1000 {
			t.Fatalf("%d Bundles of deltas after %d passes: the test is of no worth", s.sentDeltas(), passes)
		}
		s.gust(10, 30)
	}
	before := s.generations()
	s.gust(40, 30)
	each := len(s.works()) - v1alpha1.MaxDeltas + 1 // the others as without deltas, and one of these
	if n, most := s.generations()-before, 20*int64(each); n > most {
		t.Errorf("%d writes in 20 s, of which nothing is answered, of %d Bundles at a time", n, each)
	}
	for todo := s.behind(); len(todo) > 0; todo = s.behind() {
		s.rnd.Shuffle(len(todo), func(a, b int) { todo[a], todo[b] = todo[b], todo[a] })
		for _, do := range todo {
			do()
			s.observe()
		}
	}
	s.calm("answers again", 0)
}

// TestDeltasAtOnce: shards and the delivery at the same time.
func TestDeltasAtOnce(t *testing.T) {
	t.Parallel()
	s := newStorm(t, 1, 60)
	for range 40 {
		for range 5 {
			s.change(s.pick())
		}
		s.say(0)
		s.say(1)
		s.now = s.now.Add(600 * time.Millisecond)
		var wg sync.WaitGroup
		for shard := range s.shards {
			wg.Go(func() {
				for range 4 {
					if _, err := s.Reconcile(context.Background(), Shard{"blue", shard}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Go(func() {
			for range 8 {
				if _, err := s.Deliver(context.Background(), importing); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Wait()
		for range s.rnd.IntN(8) {
			if todo := s.behind(); len(todo) > 0 {
				todo[s.rnd.IntN(len(todo))]()
			}
		}
	}
	s.calm("at once", 0)
}
