// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/propagation"
)

// shards of the ClusterSet, its default.
const shards = 4

// Tally counts what the broker writes, and takes the time of changes.
type Tally struct {
	mu          sync.Mutex
	generations map[client.ObjectKey]int64
	// listed is how many Bundles of deltas each Work says there are.
	listed map[client.ObjectKey]int64
	// unlisted are Bundles of deltas that their clusters do not go by yet, by their Works.
	unlisted map[client.ObjectKey]unlisted
	counts   Counts
	last     time.Time
	// arrivals that are under way, by the address that tells.
	arrivals map[string]*Arrival
	errs     []error
}

// Counts of writes on Works, and of the bytes of what these carry.
type Counts struct {
	Writes, Bytes int64
	// Deltas are the writes of Bundles of deltas among them, and Listings those that make one in reserve, or say of more
	// of them that they are there, which is once and for all.
	Deltas, Listings int64
	// Written are the writes by cluster.
	Written map[string]int64
}

// Arrival is a change on its way: from what happens in a cluster, by way of its agent, Karmada and the broker, to the
// Works of the others, and from there by Karmada and their agents to the EndpointSlices of the sites.
type Arrival struct {
	begun time.Time
	// took by cluster, to the Work, and landed by site, to the EndpointSlice.
	took, landed map[string]time.Duration
	done         chan struct{}
	// want are the clusters that took counts, and sites those of landed. What comes to others, as to one that Karmada does
	// not reach, is not waited for.
	want, sites []string
}

func newTally() *Tally {
	return &Tally{generations: map[client.ObjectKey]int64{}, listed: map[client.ObjectKey]int64{},
		unlisted: map[client.ObjectKey]unlisted{}, counts: Counts{Written: map[string]int64{}},
		arrivals: map[string]*Arrival{}}
}

// Take returns what was counted since the last call.
func (t *Tally) Take() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.counts
	t.counts = Counts{Written: map[string]int64{}}
	return out
}

// writes since the last call of Take.
func (t *Tally) writes() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts.Writes
}

// Quiet says for how long nothing has been written.
func (t *Tally) Quiet() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.last)
}

// Err joins what went wrong in the simulation.
func (t *Tally) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.errs...)
}

func (t *Tally) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const most = 10
	if len(t.errs) < most {
		t.errs = append(t.errs, err)
	}
}

// saw a Work. Each write of its spec has raised its generation by one, whether or not it was seen.
func (t *Tally) saw(work *workv1alpha1.Work, now time.Time) {
	if len(work.Spec.Workload.Manifests) != 1 {
		return
	}
	raw, key := work.Spec.Workload.Manifests[0].Raw, client.ObjectKeyFromObject(work)
	t.mu.Lock()
	defer t.mu.Unlock()
	writes := work.Generation - t.generations[key]
	if writes <= 0 {
		return
	}
	t.generations[key] = work.Generation
	t.last = now
	cluster := propagation.ClusterOf(work)
	t.counts.Writes += writes
	t.counts.Bytes += writes * int64(len(raw))
	number := work.Labels[propagation.LabelDelta]
	if number != "" {
		t.counts.Deltas += writes
	}
	if number == propagation.Answers || number != "" && work.Generation == 1 && bytes.Contains(raw, nothing) {
		t.counts.Listings += writes
	}
	t.counts.Written[cluster] += writes
	own := propagation.HalfKey(cluster, 0, "")
	if listed := numberIn(raw, `"deltas":`); listed > t.listed[key] {
		t.listed[key] = listed
		t.counts.Listings++
	}
	if n, err := strconv.ParseInt(number, 10, 32); err == nil {
		t.unlisted[key] = unlisted{cluster, n, raw}
	} else {
		t.tells(cluster, raw, now)
	}
	for key, u := range t.unlisted {
		if u.cluster == cluster && u.number < t.listed[own] {
			t.tells(cluster, u.raw, now)
			delete(t.unlisted, key)
		}
	}
}

// nothing is what a Bundle says that has no imports.
var nothing = []byte(`"imports":[]`)

// unlisted is a Bundle of deltas of a cluster, which goes by it when its own Bundle of shard 0 lists that.
type unlisted struct {
	cluster string
	number  int64
	raw     []byte
}

// tells says that a cluster goes by what is in a Work.
func (t *Tally) tells(cluster string, raw []byte, now time.Time) {
	t.each(raw, func(address string, a *Arrival) {
		t.arrived(address, a, a.want, a.took, cluster, now)
	})
}

// landed says which addresses a site has in an EndpointSlice.
func (t *Tally) landed(cluster string, addresses []string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, address := range addresses {
		if a := t.arrivals[address]; a != nil {
			t.arrived(address, a, a.sites, a.landed, cluster, now)
		}
	}
}

func (t *Tally) arrived(address string, a *Arrival, want []string, by map[string]time.Duration, cluster string,
	now time.Time) {
	if _, before := by[cluster]; before || !slices.Contains(want, cluster) {
		return
	}
	by[cluster] = now.Sub(a.begun)
	if len(a.took) == len(a.want) && len(a.landed) == len(a.sites) {
		delete(t.arrivals, address)
		close(a.done)
	}
}

// each calls do for every address in JSON by which somebody waits: a text, or the first word of one.
func (t *Tally) each(raw []byte, do func(string, *Arrival)) {
	for len(t.arrivals) > 0 {
		at := bytes.IndexByte(raw, '"')
		if at < 0 {
			return
		}
		raw = raw[at+1:]
		end := bytes.IndexAny(raw, "\" ")
		if end < 0 {
			return
		}
		if a := t.arrivals[string(raw[:end])]; a != nil {
			do(string(raw[:end]), a)
		}
		raw = raw[end:]
	}
}

// forget a Work that is gone: one in its place begins anew.
func (t *Tally) forget(key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.generations, key)
	delete(t.listed, key)
	delete(t.unlisted, key)
}

// expect an address of now to arrive in the Works of some clusters, and in an EndpointSlice of some sites.
func (t *Tally) expect(address string, clusters, sites []string) *Arrival {
	a := &Arrival{begun: time.Now(), took: map[string]time.Duration{}, landed: map[string]time.Duration{},
		done: make(chan struct{}), want: clusters, sites: sites}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.arrivals[address] = a
	return a
}

// giveUp waits for nothing any more.
func (t *Tally) giveUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.arrivals)
}

// Took is how long the change took to each cluster that it has reached, and to each site's EndpointSlice, sorted.
func (t *Tally) Took(a *Arrival) (works, landed []time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Values(a.took)), slices.Sorted(maps.Values(a.landed))
}

// Done is closed when the change has arrived everywhere.
func (a *Arrival) Done() <-chan struct{} { return a.done }
