// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// churning is an importer of services whose pods are replaced all the time, in two shards.
type churning struct {
	*importer
	// version of what each cluster exports of a service, which is in the address of its one pod.
	version map[[2]int]int
	// told is the highest that the importer was told.
	told map[types.NamespacedName][2]int
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

// churn replaces pods, while what is written comes to the importer in any order, and controllers crash.
func (c *churning) churn(rounds, services int, crash float64) {
	c.t.Helper()
	for range rounds {
		for range 1 + c.rnd.IntN(5) {
			c.replace(c.rnd.IntN(2), c.rnd.IntN(services))
		}
		for n := range 2 {
			for shard := range c.shards {
				c.answer(n, shard)
			}
		}
		if c.rnd.IntN(3) == 0 {
			c.now = c.now.Add(time.Duration(c.rnd.IntN(1500)) * time.Millisecond)
		}
		writes := c.wanted()
		c.rnd.Shuffle(len(writes), func(a, b int) { writes[a], writes[b] = writes[b], writes[a] })
		for _, w := range writes[:c.rnd.IntN(len(writes)+1)] {
			if err := w.do(c.t.Context()); err != nil {
				c.t.Fatal(err)
			}
			if c.rnd.Float64() < crash {
				c.restart()
				break
			}
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
	most := 0
	for seed := range uint64(4) {
		c := newChurning(t, seed, 120)
		for round := range 3 {
			c.churn(50, 120, 0.02*float64(seed%3))
			most = max(most, c.sentDeltas())
			c.rest(0.02 * float64(seed%2))
			c.check(fmt.Sprintf("seed %d, round %d", seed, round), 120)
		}
		c.now = c.now.Add(recordPace)
		c.rest(0)
		c.restart()
		if writes := c.wanted(); len(writes) > 0 {
			t.Errorf("seed %d: a controller that starts writes %d Works", seed, len(writes))
		}
	}
	if most < 2 {
		t.Errorf("there were %d Bundles of deltas at most", most)
	}
}

// TestDeltasAreOneWrite: what changes in many Bundles of all shards at once is few writes.
func TestDeltasAreOneWrite(t *testing.T) {
	c := newChurning(t, 1, 200)
	c.tire()
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
	var record v1alpha1.Member
	if err := c.shelf.Get(c.t.Context(), client.ObjectKey{Name: importing}, &record); err != nil {
		c.t.Fatal(err)
	}
	d := c.deltasOf(&record)
	d.direct.AllowN(c.now, int(d.direct.TokensAt(c.now)))
}

// BenchmarkOneEndpointBesideDeltas takes what one changed endpoint costs the controller where the members have deltas
// of all that they import: the decision, and the look at the deltas of all members.
func BenchmarkOneEndpointBesideDeltas(b *testing.B) {
	p := playWith(b, manyServices(100, 250, 1), true)
	for i := range p.members {
		var record v1alpha1.Member
		if err := p.shelf.Get(b.Context(), client.ObjectKey{Name: p.members[i].Cluster}, &record); err != nil {
			b.Fatal(err)
		}
		record.Status.ReadsDeltas = true
		p.shelf.put(&record)
	}
	settle := func(deltas bool) {
		for round := 0; ; round++ {
			if round > 20 {
				b.Fatal("the controller does not come to rest")
			}
			before := p.shelf.version
			p.decide(0)
			for i := range p.members {
				cluster := p.members[i].Cluster
				if deltas {
					if _, err := p.Deliver(b.Context(), cluster); err != nil {
						b.Fatal(err)
					}
				}
				p.answerHalves(i, 0)
				p.answerDeltas(i)
			}
			if p.shelf.version == before {
				return
			}
			p.now = p.now.Add(time.Second)
		}
	}
	settle(false)
	for i := range p.members { // with a sequence
		p.replacePod(i, 1)
	}
	settle(true)
	for i := range p.members {
		for k := range p.members[i].Exports {
			e := &p.members[i].Exports[k]
			e.Backends = []v1alpha1.Backends{pods(1+(i+1)%100, 4, e.Backends[0].Ports...)}
		}
		p.answer(i, 0)
	}
	settle(true)
	copies := 0
	for _, d := range p.deltas {
		copies += len(d.found.copies)
	}
	round := 1
	b.ReportMetric(0, "ns/op")
	var decision, delivery time.Duration
	for b.Loop() {
		round++
		p.now = p.now.Add(time.Minute)
		p.replacePod(0, round)
		p.answer(0, 0)
		before := processor(b)
		got, err := p.plan(b.Context(), Shard{"blue", 0})
		if err != nil {
			b.Fatal(err)
		}
		decision += processor(b) - before
		before = processor(b)
		for i := range p.members {
			if _, _, err := p.delivery(b.Context(), p.members[i].Cluster); err != nil {
				b.Fatal(err)
			}
		}
		delivery += processor(b) - before
		if _, err := p.carryOut(b.Context(), got.writes); err != nil {
			b.Fatal(err)
		}
		for i := range p.members {
			p.answerHalves(i, 0)
		}
		p.decide(0)
	}
	for what, took := range map[string]time.Duration{"decision": decision, "delivery": delivery} {
		b.ReportMetric(float64(took.Microseconds())/1000/float64(b.N), "cpu-ms/"+what)
	}
	b.ReportMetric(float64(copies)/float64(len(p.members)), "imports-in-deltas")
}

// answerDeltas has member i answer all Bundles of deltas.
func (p *played) answerDeltas(i int) {
	p.t.Helper()
	works, err := p.Works.DeltasOf(p.t.Context(), p.members[i].Cluster)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, found := range works {
		work := found.DeepCopy()
		var spec v1alpha1.BundleSpec
		if err := propagation.Spec(work, &spec); err != nil {
			p.t.Fatal(err)
		}
		said := fmt.Appendf(nil, `{"observedRevision":%d}`, spec.Revision)
		if string(said) == string(propagation.Status(work)) {
			continue
		}
		work.Status.ManifestStatuses = []workv1alpha1.ManifestStatus{{Status: &runtime.RawExtension{Raw: said}}}
		p.shelf.put(work)
	}
}

// TestDeltasAreNotReadForAWhile: an agent of before comes, as after a roll-back, and goes again, and so does a
// controller of before, that knows of no deltas. What the first is told is right at rest, and nothing the others are
// told is taken back.
func TestDeltasAreNotReadForAWhile(t *testing.T) {
	for seed := range uint64(4) {
		for _, agent := range []bool{true, false} {
			c := newChurning(t, seed, 60)
			for round := range 4 {
				c.churn(20, 60, 0.02)
				old := round%2 == 0
				if c.early = old && !agent; agent {
					c.deltas = !old
				}
				if c.tell(); c.early {
					c.restart()
				}
				if agent { // which reads halves at once, and these may be behind
					clear(c.told)
					c.look()
					clear(c.told)
				}
				c.rest(0)
				c.check(fmt.Sprintf("seed %d, round %d, agent %t", seed, round, agent), 60)
			}
		}
	}
}

// TestDeltasOfAnOlderKarmada: Karmada is restored from a backup, with what the member has left as it is, or with the
// member as old; and the clock of the next controller is behind. All is right at rest, and stays.
func TestDeltasOfAnOlderKarmada(t *testing.T) {
	for seed := range uint64(4) {
		c := newChurning(t, seed, 60)
		c.churn(30, 60, 0)
		works, bundles := c.works(), maps.Clone(c.bundles.objects[reflect.TypeFor[*v1alpha1.Bundle]()])
		c.churn(40, 60, 0)
		c.rest(0)
		c.left = map[string]bool{}
		for _, w := range c.works() {
			if !slices.ContainsFunc(works, func(o workv1alpha1.Work) bool { return o.Name == w.Name }) {
				c.left[c.object(&w).Name] = seed%2 == 0
				_ = c.shelf.Delete(t.Context(), &w)
			}
		}
		for i := range works {
			works[i].ResourceVersion = ""
			c.shelf.put(&works[i])
		}
		if seed%2 == 1 {
			c.bundles.objects[reflect.TypeFor[*v1alpha1.Bundle]()] = bundles
		}
		if seed%4 > 1 {
			c.now = c.now.Add(-time.Hour)
		}
		clear(c.told)
		c.restart()
		c.rest(0)
		c.look()
		c.check(fmt.Sprintf("seed %d, restored", seed), 60)
		c.churn(30, 60, 0.02)
		c.rest(0)
		c.check(fmt.Sprintf("seed %d, after that", seed), 60)
		c.still(fmt.Sprintf("seed %d", seed))
	}
}

// still checks that nothing is written any more, as time goes on.
func (c *churning) still(what string) {
	c.t.Helper()
	for range 20 {
		c.now = c.now.Add(recordPace)
		c.rest(0)
	}
	before := c.generations()
	for range 60 {
		c.now = c.now.Add(10 * time.Second)
		c.rest(0)
	}
	if n := c.generations() - before; n > 0 {
		c.t.Errorf("%s: %d writes in ten minutes in which nothing changes", what, n)
	}
}

// TestDeltasThatSomebodyElseWrites: Works of deltas that are deleted, or changed to whatever a pull member may write
// into its own, come to be right, and cost no write for ever.
func TestDeltasThatSomebodyElseWrites(t *testing.T) {
	for name, change := range map[string]func(c *churning, spec *v1alpha1.BundleSpec){
		"another endpoint": func(_ *churning, spec *v1alpha1.BundleSpec) {
			for i := range spec.Imports {
				spec.Imports[i].Clusters[0].Backends[0].Addresses[0].IP = "10.1.0.99"
			}
		},
		"from the future": func(_ *churning, spec *v1alpha1.BundleSpec) {
			spec.Sequence += int64(time.Hour / time.Millisecond)
			for i := range spec.Imports {
				spec.Imports[i].Clusters[0].Backends[0].Addresses[0].IP = "10.1.0.99"
			}
		},
		"the last sequence": func(_ *churning, spec *v1alpha1.BundleSpec) {
			spec.Sequence = maxRevision
			for i := range spec.Imports {
				spec.Imports[i].Clusters[0].Backends[0].Addresses[0].IP = "10.1.0.99"
			}
		},
		"nothing":       func(_ *churning, spec *v1alpha1.BundleSpec) { spec.Imports = []v1alpha1.Import{} },
		"of the past":   func(_ *churning, spec *v1alpha1.BundleSpec) { spec.Sequence = 1 },
		"another name":  func(_ *churning, spec *v1alpha1.BundleSpec) { spec.Imports[0].Name = "a-name" },
		"no sequence":   func(_ *churning, spec *v1alpha1.BundleSpec) { spec.Sequence = 0 },
		"deleted":       nil,
		"all are there": func(_ *churning, spec *v1alpha1.BundleSpec) { spec.Deltas = v1alpha1.MaxDeltas },
	} {
		for _, restart := range []bool{false, true} {
			c := newChurning(t, 7, 60)
			c.churn(40, 60, 0)
			c.rest(0)
			works, err := c.Works.DeltasOf(t.Context(), importing)
			if err != nil || len(works) == 0 {
				t.Fatalf("%d Bundles of deltas, %v", len(works), err)
			}
			for _, found := range works {
				work := found.DeepCopy()
				b := c.object(work)
				if len(b.Spec.Imports) == 0 {
					continue
				}
				if change == nil {
					_ = c.shelf.Delete(t.Context(), work)
					continue
				}
				change(c, &b.Spec)
				if b.Spec.Deltas > 0 {
					own := c.works()[0]
					b, work = c.object(&own), &own
					b.Spec.Deltas = v1alpha1.MaxDeltas
				}
				raw, err := json.Marshal(b)
				if err != nil {
					t.Fatal(err)
				}
				work.Spec.Workload.Manifests[0].Raw = raw
				c.shelf.put(work)
			}
			if restart {
				c.restart()
			}
			clear(c.told)
			c.now = c.now.Add(time.Minute)
			c.rest(0)
			c.look()
			clear(c.told)
			c.check(name, 60)
			c.still(name)
		}
	}
}

// TestShardsLookAtForeignDeltas: what somebody else has put into deltas is nothing to write by before all shards were
// decided on anew.
func TestShardsLookAtForeignDeltas(t *testing.T) {
	c := newChurning(t, 3, 60)
	c.churn(30, 60, 0)
	c.rest(0)
	works, err := c.Works.DeltasOf(t.Context(), importing)
	if err != nil || works[0] == nil {
		t.Fatalf("%d Bundles of deltas, %v", len(works), err)
	}
	work := works[0].DeepCopy()
	b := c.object(work)
	b.Spec.Imports = nil
	raw, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	work.Spec.Workload.Manifests[0].Raw = raw
	c.shelf.put(work)
	queue := workqueue.NewTyped[Shard]()
	defer queue.ShutDown()
	c.shardQueue = queue
	writes, _, err := c.delivery(t.Context(), importing)
	if err != nil || len(writes) > 0 || queue.Len() != int(c.shards) {
		t.Errorf("%d writes, %d shards to look at, %v", len(writes), queue.Len(), err)
	}
}
