// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// turn is how long the writes of one decision are begun. Then what has come meanwhile is decided on, and what is left
	// has its place among that.
	turn = 500 * time.Millisecond
	// leastOfATurn are begun in any case.
	leastOfATurn = 8
	// memoryOfChanges is how long a changed export counts towards its exporter's rate: by then it is a third.
	memoryOfChanges = 10 * time.Second
	// promptly is when the event of a write is there at the latest, if the API server keeps up.
	promptly = 250 * time.Millisecond
	// waitForEach of these changes the next one may wait, and maxWait for all of them.
	waitForEach, maxWait = 100 * time.Millisecond, 10 * time.Second
)

// planInTurn decides on a shard when other decisions leave it a processor. A decision reads caches alone: of four that
// share a processor none is made before all are nearly, and one after the other all are made sooner but for the last.
func (r *Reconciler) planInTurn(ctx context.Context, shard Shard) (plan, error) {
	processors := r.places()
	if err := processors.Acquire(ctx, 1); err != nil {
		return plan{}, err
	}
	defer processors.Release(1)
	start := r.Now()
	p, err := r.plan(ctx, shard)
	if err == nil {
		r.rests(shard, r.Now().Sub(start))
	}
	return p, err
}

func (r *Reconciler) places() *semaphore.Weighted {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.processors == nil {
		r.processors = semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0)))
	}
	return r.processors
}

// write is one to be carried out, and when it is due.
type write struct {
	do  func(context.Context) error
	due time.Time
}

// dueAfter is when a write is due that is about something of a time, given how many changes the calmest of the
// exporters has made of late whose exports it is about. While the API server keeps up that means nothing, as all writes
// are carried out. Where it does not, an exporter that changes all the time is written as often as there is room for,
// and delays others by little.
func dueAfter(since time.Time, rate float64) time.Time {
	return since.Add(min(time.Duration(rate*float64(waitForEach)), maxWait))
}

// inTurn sorts writes.
func inTurn(writes []write) {
	slices.SortStableFunc(writes, func(a, b write) int { return a.due.Compare(b.due) })
}

// carryOut carries out writes for a turn, and says whether all were begun. One that fails is no reason to leave the
// others out.
func (r *Reconciler) carryOut(ctx context.Context, writes []write) (all bool, _ error) {
	inTurn(writes)
	ends := r.Now().Add(turn)
	var g errgroup.Group
	g.SetLimit(parallelWrites)
	var left atomic.Bool
	for i, w := range writes {
		over := func() bool { return i >= leastOfATurn && r.Now().After(ends) }
		g.Go(func() error {
			if !over() {
				r.gate.enter(ofShard)
				defer r.gate.leave(ofShard)
			}
			if over() {
				left.Store(true)
				return nil
			}
			return w.do(ctx)
		})
	}
	err := g.Wait()
	return !left.Load(), err
}

// gate lets some writes through at once, of all shards and deltas. The zero value is ready for use.
//
// An API server at its limit answers no sooner what is sent to it all at once, and is late with the events of what was
// written: what sends these has the share of the processors of one request. All that is decided then is decided by
// what was half a minute ago. So fewer are let through where events are late, and more again where they are not.
//
// While writes of shards and of deltas wait, each have half of the places: deltas are many where changes are, and a
// decision, which finds further changes, ends when its writes are done.
type gate struct {
	mu sync.Mutex
	// queue has those of each kind that wait, the first first, and under are how many are under way. Nobody waits while
	// there is a place.
	queue [2][]chan struct{}
	under [2]int
	// next is whose turn it is where as many of both kinds are under way.
	next kind
	// closed of the places that there are.
	closed int
}

// kind of what a write is of.
type kind int

const (
	ofShard kind = iota
	ofDeltas
)

// places that are not had by anybody.
func (g *gate) places() int { return parallelWrites - g.closed - g.under[ofShard] - g.under[ofDeltas] }

func (g *gate) enter(of kind) {
	g.mu.Lock()
	if g.places() > 0 {
		g.under[of]++
		g.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	g.queue[of] = append(g.queue[of], turn)
	g.mu.Unlock()
	<-turn
}

func (g *gate) leave(of kind) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.under[of]--
	g.grant()
}

// grant gives places to who waits: of the kind of which fewer are under way, or by turns.
func (g *gate) grant() {
	for g.places() > 0 {
		of := g.next
		switch {
		case len(g.queue[of]) == 0 && len(g.queue[1-of]) == 0:
			return
		case len(g.queue[of]) == 0, len(g.queue[1-of]) > 0 && g.under[1-of] < g.under[of]:
			of = 1 - of
		}
		close(g.queue[of][0])
		g.queue[of] = g.queue[of][1:]
		g.under[of]++
		g.next = 1 - of
	}
}

// free is how many places there are.
func (g *gate) free() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.places(), 0)
}

// adapt closes half of the places that are open where events are late, and opens one where they are not.
func (g *gate) adapt(late bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if late {
		g.closed += (parallelWrites - g.closed) / 2
	} else if g.closed > 0 {
		g.closed--
	}
	g.grant()
}

// late says that the events of what was written are: of more clusters than an eighth. A member that deletes its own
// Works as soon as they are written, as one that pulls may, has only those never seen.
func late(targets []target, now time.Time) bool {
	is := func(b *sentBundle) bool { return b.unseen && now.Sub(b.box.written) > promptly }
	clusters := 0
	for i := range targets {
		isOf := is(&targets[i].sentBundle)
		for _, b := range targets[i].halves {
			isOf = isOf || is(b)
		}
		if isOf {
			clusters++
		}
	}
	return clusters > len(targets)/8
}

// rates are how many exports each cluster has changed of late.
func rates(targets []target, now time.Time) map[string]float64 {
	out := make(map[string]float64, len(targets))
	for _, t := range targets {
		out[t.cluster] = t.mem.exported.rate(now)
	}
	return out
}

// calmest is the least of the rates of those exporters who have changed what a Bundle says, 0 where that is not a
// matter of exports.
func calmest(sent, spec *Bundle, rates map[string]float64, compared comparison) float64 {
	least := math.Inf(1)
	concerns := func(clusters, others []v1alpha1.ImportCluster) {
		for _, c := range clusters {
			same := func(other v1alpha1.ImportCluster) bool { return sameCluster(c, other) }
			if rate, ok := rates[c.Cluster]; ok && !slices.ContainsFunc(others, same) {
				least = min(least, rate)
			}
		}
	}
	a, b := sent.Imports, spec.Imports
	for len(a) > 0 || len(b) > 0 {
		var order int
		switch {
		case len(a) == 0:
			order = 1
		case len(b) == 0:
			order = -1
		default:
			order = compareKeys(keyOf(a[0]), keyOf(b[0]))
		}
		switch {
		case order < 0:
			concerns(a[0].Clusters, nil)
			a = a[1:]
		case order > 0:
			concerns(b[0].Clusters, nil)
			b = b[1:]
		default:
			if !compared.imports(a[0], b[0]) {
				concerns(a[0].Clusters, b[0].Clusters)
				concerns(b[0].Clusters, a[0].Clusters)
			}
			a, b = a[1:], b[1:]
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// count counts changed exports.
func (e *exported) count(now time.Time, changes int) {
	e.changes, e.counted = e.rate(now)+float64(changes), now
}

// rate is how many exports have changed of late.
func (e *exported) rate(now time.Time) float64 {
	return e.changes * math.Exp(-float64(now.Sub(e.counted))/float64(memoryOfChanges))
}
