// SPDX-License-Identifier: Apache-2.0

package services

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// entered begins to enter a gate, and returns what is closed when it has.
func entered(g *gate, of kind) chan struct{} {
	out := make(chan struct{})
	go func() {
		g.enter(of)
		close(out)
	}()
	return out
}

// waits until so many of a kind wait at a gate.
func (g *gate) waits(t *testing.T, of kind, many int) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		g.mu.Lock()
		waiting := len(g.queue[of])
		g.mu.Unlock()
		switch {
		case waiting == many:
			return
		case time.Since(begun) > 10*time.Second:
			t.Fatalf("%d wait, expected %d", waiting, many)
		}
	}
}

// TestDeltasDoNotHoldUpShards: who waits for a place while the others have more than half of them comes before any more
// of those, and all places are had where nobody else waits.
func TestDeltasDoNotHoldUpShards(t *testing.T) {
	for _, busy := range []kind{ofDeltas, ofShard} {
		other := 1 - busy
		var g gate
		for range parallelWrites {
			g.enter(busy)
		}
		more := entered(&g, busy)
		g.waits(t, busy, 1)
		for n := range parallelWrites / 2 {
			waits := entered(&g, other)
			g.waits(t, other, 1)
			g.leave(busy)
			select {
			case <-waits:
			case <-more:
				t.Fatalf("kind %d: %d of the other have places, and one waits, and one more of this goes", busy, n)
			case <-time.After(10 * time.Second):
				t.Fatalf("kind %d: the place of one is not had by the other", busy)
			}
		}
		waits := entered(&g, other)
		g.waits(t, other, 1)
		g.leave(busy)
		select {
		case <-more:
		case <-waits:
			t.Fatalf("kind %d: the other has more than half, while one waits", busy)
		case <-time.After(10 * time.Second):
			t.Fatalf("kind %d: a place is had by nobody", busy)
		}
	}
}

// TestOnePlaceIsHadByTurns: also where those of one kind come again as soon as they have left.
func TestOnePlaceIsHadByTurns(t *testing.T) {
	g := gate{closed: parallelWrites - 1}
	g.enter(ofDeltas)
	var got []kind
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range 8 {
		of := kind(n / 4)
		all.Go(func() {
			for range 4 {
				g.enter(of)
				mu.Lock()
				got = append(got, of)
				mu.Unlock()
				g.leave(of)
			}
		})
		g.waits(t, of, 1+n%4)
	}
	g.leave(ofDeltas)
	all.Wait()
	for n := range 16 { // while both wait
		if got[n] == got[n+1] {
			t.Fatalf("two of one kind, one after the other: %v", got)
		}
	}
}

// TestTheGateLetsAllThrough, however many places there are meanwhile.
func TestTheGateLetsAllThrough(t *testing.T) {
	var g gate
	var all sync.WaitGroup
	for n := range 400 {
		all.Go(func() {
			of := kind(n % 2)
			for range 20 {
				g.enter(of)
				g.mu.Lock()
				if under := g.under[0] + g.under[1]; under > parallelWrites {
					t.Errorf("%d are under way", under)
				}
				g.mu.Unlock()
				if rand.IntN(4) == 0 {
					g.adapt(rand.IntN(3) == 0)
				}
				g.leave(of)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("some wait for ever: waiting %d and %d, under way %v, closed %d", len(g.queue[0]),
			len(g.queue[1]), g.under, g.closed)
	}
}

// TestDeltasAreFoundOutLast: what has changed while a member's deltas wait for a place is in the same write.
func TestDeltasAreFoundOutLast(t *testing.T) {
	c := newChurning(t, 1, 40)
	c.tire()
	c.replace(0, 3)
	c.answerAllOf(0)
	c.rest(0) // there is the Bundle for answers
	changes := func(s int) {
		t.Helper()
		c.replace(0, s)
		c.answerAllOf(0)
		for _, w := range c.planned() {
			if err := w.do(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	changes(9)
	for range parallelWrites {
		c.gate.enter(ofDeltas)
	}
	done := make(chan error)
	go func() {
		_, err := c.Deliver(t.Context(), importing)
		done <- err
	}()
	c.gate.waits(t, ofDeltas, 1)
	for s := range 5 {
		changes(s)
	}
	before := c.generations()
	for range parallelWrites {
		c.gate.leave(ofDeltas)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if written := c.generations() - before; written != 1 {
		t.Errorf("%d writes, expected one", written)
	}
	for len(c.behind()) > 0 {
		c.behind()[0]()
	}
	c.check("after one write", 40)
}
