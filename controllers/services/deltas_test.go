// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// churning is an importer of services whose pods are replaced all the time, in two shards.
type churning struct {
	*importer
	// version of what each cluster exports of a service, which is in the address of its one pod.
	version map[[2]int]int
	// told is the highest that the importer was told.
	told map[types.NamespacedName][2]int
	// unlisted is how many controllers crashed while Bundles of deltas in reserve were written and not listed, and
	// unwritten after how many rounds new ones were to be written and were not.
	unlisted, unwritten int
}

func newChurning(t *testing.T, seed uint64, services int) *churning {
	return newChurningIn(t, seed, services, 2)
}

func newChurningIn(t *testing.T, seed uint64, services int, shards int32) *churning {
	t.Helper()
	i := newImporter(t, seed, 0)
	c := &churning{importer: i, version: map[[2]int]int{}, told: map[types.NamespacedName][2]int{}}
	i.shards = shards
	var set v1alpha1.ClusterSet
	if err := i.shelf.Get(t.Context(), client.ObjectKey{Name: "blue"}, &set); err != nil {
		t.Fatal(err)
	}
	set.Spec.Shards = shards
	i.shelf.put(&set)
	i.deltas = true
	i.tell()
	for shard := range shards {
		i.decide(shard)
	}
	i.export(services)
	for n := range 2 {
		for s := range services {
			c.replace(n, s)
		}
		c.answerAllOf(n)
	}
	i.rest(0)
	c.check("at the start", services)
	return c
}

// answerAllOf a cluster's shards.
func (c *churning) answerAllOf(n int) {
	c.t.Helper()
	for shard := range c.shards {
		c.answer(n, shard)
	}
}

// replace gives a cluster's service another pod.
func (c *churning) replace(n, service int) {
	v := c.version[[2]int{n, service}] + 1
	c.version[[2]int{n, service}] = v
	e := &c.members[n].Exports[service]
	e.Backends = []v1alpha1.Backends{pods(1+n, 1, e.Backends[0].Ports...)}
	e.Backends[0].Addresses[0].IP = fmt.Sprintf("10.%d.%d.%d", 1+n, v/250, 1+v%250)
}

// versions that the importer has of a service; 0 of a cluster whose pod it does not have.
func (c *churning) versions(key types.NamespacedName) (out [2]int) {
	imported := c.imported[key]
	for k := range imported.Clusters {
		from := &imported.Clusters[k]
		if len(from.Backends) == 0 {
			continue
		}
		var n, high, low int
		_, _ = fmt.Sscanf(from.Backends[0].Addresses[0].IP, "10.%d.%d.%d", &n, &high, &low)
		out[n-1] = 250*high + low - 1
	}
	return out
}

// watch checks that nothing the importer was told is taken back.
func (c *churning) watch() {
	c.t.Helper()
	for key := range c.imported {
		now, before := c.versions(key), c.told[key]
		for n := range now {
			if now[n] < before[n] {
				c.t.Fatalf("step %d: %s goes back from version %d to %d of cluster %d:\n%s", c.steps, key, before[n], now[n],
					n+1, c.copies(key))
			}
		}
		c.told[key] = now
	}
}

// copies tells where an import is, in what is sent and in what the member has.
func (c *churning) copies(key types.NamespacedName) string {
	c.t.Helper()
	var out strings.Builder
	tell := func(where string, b *v1alpha1.Bundle) {
		i := b.Spec.Import(key.Namespace, key.Name)
		if i == nil && b.Name != v1alpha1.BundleName(0) && b.Name != v1alpha1.BundleName(1) {
			return
		}
		fmt.Fprintf(&out, "%s %s: sequence %d, deltas %d, halves %v, revision %d", where, b.Name, b.Spec.Sequence,
			b.Spec.Deltas, b.Spec.Halves, b.Spec.Revision)
		if i != nil {
			for k := range i.Clusters {
				fmt.Fprintf(&out, ", %v", i.Clusters[k].Backends)
			}
		}
		fmt.Fprintln(&out)
	}
	for _, work := range c.works() {
		tell("sent", c.object(&work))
	}
	for _, o := range c.bundles.objects[reflect.TypeFor[*v1alpha1.Bundle]()] {
		tell("has", o.(*v1alpha1.Bundle))
	}
	return out.String()
}

// check that the importer has what is exported, at rest.
func (c *churning) check(what string, services int) {
	c.t.Helper()
	c.watch()
	if len(c.imported) != services {
		c.t.Errorf("%s: %d services are imported, not %d", what, len(c.imported), services)
	}
	for s := range services {
		key := types.NamespacedName{Namespace: "sample", Name: fmt.Sprintf("web-%d", s)}
		want := [2]int{c.version[[2]int{0, s}], c.version[[2]int{1, s}]}
		if got := c.versions(key); got != want {
			c.t.Errorf("%s: of %s there are the versions %d, not %d", what, key, got, want)
		}
	}
}

// sentDeltas is how many Bundles of deltas there are for the importer.
func (c *churning) sentDeltas() int {
	c.t.Helper()
	works, err := c.Works.DeltasOf(c.t.Context(), importing)
	if err != nil {
		c.t.Fatal(err)
	}
	return len(works)
}

// churn replaces pods, while what is written comes to the importer in any order, deltas are on their way to the API
// server while shards are decided on, and controllers crash.
func (c *churning) churn(rounds, services int, crash float64) {
	c.t.Helper()
	var onTheWay []write
	arrive := func() {
		for _, w := range onTheWay {
			if err := w.do(c.t.Context()); err != nil {
				c.t.Fatal(err)
			}
		}
		onTheWay = nil
	}
	defer arrive()
	for range rounds {
		for range 1 + c.rnd.IntN(5) {
			c.replace(c.rnd.IntN(2), c.rnd.IntN(services))
		}
		for n := range 2 {
			for shard := range c.shards {
				c.answer(n, shard)
			}
		}
		switch c.rnd.IntN(12) {
		case 0, 1, 2, 3:
			c.now = c.now.Add(time.Duration(c.rnd.IntN(1500)) * time.Millisecond)
		case 4: // one may be told directly
			c.now = c.now.Add(quietChange)
		}
		writes := c.planned()
		switch {
		case len(onTheWay) > 0 && c.rnd.IntN(2) == 0:
			arrive()
		case len(onTheWay) == 0 && c.rnd.IntN(2) == 0:
			onTheWay = c.delivered()
		case len(onTheWay) == 0:
			writes = append(writes, c.delivered()...)
		}
		c.rnd.Shuffle(len(writes), func(a, b int) { writes[a], writes[b] = writes[b], writes[a] })
		for _, w := range writes[:c.rnd.IntN(len(writes)+1)] {
			if err := w.do(c.t.Context()); err != nil {
				c.t.Fatal(err)
			}
			if c.rnd.Float64() < crash {
				if c.reserves() {
					c.unlisted++
				}
				c.restart()
				onTheWay = nil
				break
			}
		}
		unwritten := func(b *sentBundle) bool { return b.sent == nil }
		if d := c.ofImporter(); d != nil && len(onTheWay) == 0 && slices.ContainsFunc(d.boxes, unwritten) {
			c.unwritten++
		}
		for range c.rnd.IntN(8) {
			if todo := c.behind(); len(todo) > 0 {
				todo[c.rnd.IntN(len(todo))]()
				c.watch()
			}
		}
	}
}

// TestDeltasOverHistories: whatever changes, in whatever order it comes, and wherever a controller crashes, an importer
// never goes back to what it was told before, and has at rest what is exported.
func TestDeltasOverHistories(t *testing.T) {
	most, unlisted, unwritten := 0, 0, 0
	for seed := range uint64(12) {
		services := 120
		if seed >= 4 {
			services = 6 + 2*int(seed) // that are in no halves
		}
		c := newChurning(t, seed, services)
		for round := range 3 {
			c.tire()
			c.churn(50, services, 0.02*float64(seed%3))
			most = max(most, c.sentDeltas())
			c.rest(0.02 * float64(seed%2))
			c.check(fmt.Sprintf("seed %d, round %d", seed, round), services)
		}
		c.now = c.now.Add(recordPace)
		c.rest(0)
		c.restart()
		if writes := c.wanted(); len(writes) > 0 {
			t.Errorf("seed %d: a controller that starts writes %d Works", seed, len(writes))
		}
		unlisted, unwritten = unlisted+c.unlisted, unwritten+c.unwritten
	}
	t.Logf("%d Bundles of deltas at most; %d crashes with some in reserve; some left unwritten after %d rounds", most,
		unlisted, unwritten)
	if most < 2 || unlisted == 0 || unwritten == 0 {
		t.Error("that is too little to show anything")
	}
}

// TestDeltasAreOneWrite: what changes in many Bundles of all shards at once is few writes.
func TestDeltasAreOneWrite(t *testing.T) {
	c := newChurning(t, 1, 200)
	c.tire()
	c.replace(0, 3) // the first brings the Bundle for answers, too
	c.answerAllOf(0)
	c.rest(0)
	for s := range 20 {
		c.replace(0, s*10)
	}
	for shard := range c.shards {
		c.answer(0, shard)
	}
	before := c.generations()
	for range 3 {
		for _, w := range c.wanted() {
			if err := w.do(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if written := c.generations() - before; written != 1 {
		t.Errorf("%d writes", written)
	}
	c.rest(0)
	c.check("after it", 200)
}

// reserves says that there are Bundles of deltas for the importer that have nothing and are not listed.
func (c *churning) reserves() bool {
	var listed int32
	return slices.ContainsFunc(c.works(), func(w workv1alpha1.Work) bool {
		b := c.object(&w)
		if b.Name == v1alpha1.BundleName(0) { // which comes first
			listed = b.Spec.Deltas
		}
		n, is := v1alpha1.ParseDeltaName(b.Name)
		return is && n >= listed && len(b.Spec.Imports) == 0
	})
}

// generations of all Works of the importer, together.
func (c *churning) generations() (n int64) {
	for _, w := range c.works() {
		n += w.Generation
	}
	return n
}

// tire uses up what may be written of Bundles of shards.
func (c *churning) tire() {
	c.t.Helper()
	d := c.ofImporter()
	d.direct.AllowN(c.now, int(d.direct.TokensAt(c.now)))
}

// ofImporter are the importer's deltas.
func (c *churning) ofImporter() *deltas {
	c.t.Helper()
	var record v1alpha1.Member
	if err := c.shelf.Get(c.t.Context(), client.ObjectKey{Name: importing}, &record); err != nil {
		c.t.Fatal(err)
	}
	return c.deltasOf(&record)
}

// TestDeltasAreListed: the own Bundle of shard 0 comes to list the first Bundle of deltas also where that has what has
// changed of it, so that nothing else is to be written of it.
func TestDeltasAreListed(t *testing.T) {
	for _, shards := range []int32{1, 2} {
		c := newChurningIn(t, 1, 8, shards)
		c.tire()
		for s := range 8 {
			c.replace(0, s)
		}
		c.answerAllOf(0)
		for range 3 {
			for _, w := range c.wanted() {
				if err := w.do(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		c.rest(0)
		c.check(fmt.Sprintf("%d shards", shards), 8)
		if c.sentDeltas() == 0 {
			t.Errorf("%d shards: nothing was told in deltas", shards)
		}
		c.now = c.now.Add(recordPace)
		c.rest(0)
		c.restart()
		if writes := c.wanted(); len(writes) > 0 {
			t.Errorf("%d shards: a controller that starts writes %d Works", shards, len(writes))
		}
	}
}
