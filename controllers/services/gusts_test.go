// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

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
