// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/metrics"
	"github.com/sealane-io/sealane/propagation"
)

// drifted is an importer that has the third version of a service of shard 1 in deltas, and its first in the Bundle of
// that shard.
func drifted(t *testing.T) (c *churning, service int, key types.NamespacedName) {
	c = newChurning(t, 1, 40)
	c.now = c.now.Add(time.Hour)
	c.rest(0)
	for v1alpha1.Shard("sample", fmt.Sprintf("web-%d", service), c.shards) != 1 {
		service++
	}
	for range 2 { // the first has them listed
		c.tire()
		c.replace(0, service)
		c.reported()
		c.rest(0)
	}
	key = types.NamespacedName{Namespace: "sample", Name: fmt.Sprintf("web-%d", service)}
	c.watch()
	if c.versions(key)[0] != 3 || c.sentDeltas() != 1 {
		t.Fatalf("version %d, %d Bundles of deltas: this shows nothing", c.versions(key)[0], c.sentDeltas())
	}
	c.seen = func() {
		clear(c.exported)
		c.watch()
	}
	return c, service, key
}

// other is a service of shard 0.
func (c *churning) other() (service int) {
	for v1alpha1.Shard("sample", c.members[0].Exports[service].Name, c.shards) != 0 {
		service++
	}
	return service
}

// reported has the exporters say what they export.
func (c *churning) reported() {
	c.t.Helper()
	for n := range 2 {
		for shard := range c.shards {
			c.answer(n, shard)
		}
	}
}

// written has what is wanted then be written, and nothing come to the importer.
func (c *churning) written() {
	c.t.Helper()
	c.reported()
	for range 3 {
		for _, w := range c.wanted() {
			if err := w.do(c.t.Context()); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

// deliverDeltas alone.
func (c *churning) deliverDeltas() {
	c.t.Helper()
	works, err := c.Works.DeltasOf(c.t.Context(), importing)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, w := range works {
		c.deliver(w)
	}
}

// anotherDelta has a service of shard 0 become one, and come to the importer with all that the deltas have then.
func (c *churning) anotherDelta() {
	c.t.Helper()
	c.tire()
	c.replace(0, c.other())
	c.written()
	c.deliverDeltas()
}

// TestDeltasKeepWhatGoes until the Bundle of the shard has come that is without it.
func TestDeltasKeepWhatGoes(t *testing.T) {
	c, service, key := drifted(t)
	for n := range 2 {
		c.members[n].Exports = slices.Delete(c.members[n].Exports, service, service+1)
	}
	c.written()
	c.now = c.now.Add(retention + time.Second)
	c.written()
	c.anotherDelta()
	c.rest(0)
	if _, is := c.imported[key]; is {
		t.Errorf("%s is imported", key)
	}
}

// TestDeltasKeepWhatIsWithheld until the Bundle of the shard has come that withholds it.
func TestDeltasKeepWhatIsWithheld(t *testing.T) {
	c, service, key := drifted(t)
	c.now = c.now.Add(time.Hour) // the Bundle of the shard is written then
	c.absent = true
	c.look()
	for _, w := range c.works() {
		c.reply(&w)
	}
	c.replace(0, service)
	c.written()
	c.tire()
	c.replace(0, c.other())
	c.written()
	c.absent = false
	c.deliverDeltas()
	c.rest(0)
	if got := c.versions(key)[0]; got != 4 {
		t.Errorf("version %d at rest, not 4", got)
	}
}

// TestDeltasWhileAShardIsDivided: the importer has its halves, and goes by what the shard's own Bundle had before it
// listed them, beside which deltas count.
func TestDeltasWhileAShardIsDivided(t *testing.T) {
	c, _, key := drifted(t)
	for n := range 2 {
		for s := len(c.members[n].Exports); s < 100; s++ {
			e := web(1 + n)
			e.Name = fmt.Sprintf("web-%d", s)
			c.members[n].Exports = append(c.members[n].Exports, e)
		}
	}
	c.written()
	halves := 0
	for _, w := range c.works() {
		if b := c.object(&w); b.Spec.Shard == 1 && b.Name != v1alpha1.BundleName(1) && !v1alpha1.IsDelta(b.Name) {
			c.deliver(&w)
			c.reply(&w)
			halves++
		}
	}
	c.written()
	var own workv1alpha1.Work
	if err := c.shelf.Get(t.Context(), propagation.BundleKey(importing, 1), &own); err != nil {
		t.Fatal(err)
	}
	if halves == 0 || len(c.object(&own).Spec.Halves) == 0 {
		t.Fatalf("%d halves, and those that are listed %v: this shows nothing", halves, c.object(&own).Spec.Halves)
	}
	c.anotherDelta()
	if got := c.versions(key)[0]; got != 3 {
		t.Errorf("version %d, not 3", got)
	}
	c.rest(0)
	if got := c.versions(key)[0]; got != 3 {
		t.Errorf("version %d at rest, not 3", got)
	}
}

// TestDeltasWhileAShardIsDeleted stay what they are: the member still has it.
func TestDeltasWhileAShardIsDeleted(t *testing.T) {
	c, _, key := drifted(t)
	var own workv1alpha1.Work
	if err := c.shelf.Get(t.Context(), propagation.BundleKey(importing, 1), &own); err != nil {
		t.Fatal(err)
	}
	own.DeletionTimestamp = &metav1.Time{Time: c.now}
	c.shelf.put(&own)
	c.anotherDelta()
	if got := c.versions(key)[0]; got != 3 {
		t.Errorf("version %d, not 3", got)
	}
}

// TestDeltasWithoutTheirList: the own Bundle of shard 0 is deleted, and the controller starts anew.
func TestDeltasWithoutTheirList(t *testing.T) {
	c, _, key := drifted(t)
	own := c.works()[0]
	_ = c.shelf.Delete(t.Context(), &own)
	c.restart()
	c.rest(0)
	if got := c.versions(key)[0]; got != 3 {
		t.Errorf("version %d at rest, not 3", got)
	}
}

// TestSequencesThatSomebodyInvents are not gone by, and written over; nothing is written for ever.
func TestSequencesThatSomebodyInvents(t *testing.T) {
	t.Parallel()
	for _, sequence := range []int64{1 << 53, 1<<52 - 1, now.UnixMilli() + 1<<38, -1} {
		for _, which := range []string{v1alpha1.DeltaName(0), v1alpha1.BundleName(0), v1alpha1.BundleName(1)} {
			c, service, key := drifted(t)
			c.seen = nil
			for _, work := range c.works() {
				if b := c.object(&work); b.Name == which {
					b.Spec.Sequence, b.Spec.Deltas = sequence, b.Spec.Deltas*1000
					work.Spec.Workload.Manifests[0].Raw, _ = json.Marshal(b)
					c.shelf.put(&work)
				}
			}
			for v := range 2 {
				c.tire()
				c.replace(0, service)
				c.reported()
				c.now = c.now.Add(2 * unansweredPace)
				c.rest(0)
				if got := c.versions(key)[0]; got != 4+v {
					t.Errorf("%s of sequence %d: version %d at rest, not %d", which, sequence, got, 4+v)
				}
			}
			before := c.generations()
			for range 5 {
				c.now = c.now.Add(2 * unansweredPace)
				c.rest(0)
			}
			if n := c.generations() - before; n > 2 {
				t.Errorf("%s of sequence %d: %d writes at rest", which, sequence, n)
			}
			if own := c.works()[0]; c.object(&own).Spec.Deltas > v1alpha1.MaxDeltas {
				t.Errorf("%d deltas are listed", c.object(&own).Spec.Deltas)
			}
		}
	}
}

// TestABundleThatCannotBeRead, of a shard that has halves, is written anew.
func TestABundleThatCannotBeRead(t *testing.T) {
	c := newChurning(t, 1, 120)
	for _, work := range c.works() {
		if b := c.object(&work); b.Name == v1alpha1.BundleName(1) {
			if len(b.Spec.Halves) == 0 {
				t.Fatal("no halves: this shows nothing")
			}
			work.Spec.Workload.Manifests[0].Raw = []byte(`{"metadata":{"name":"sealane-1"},"spec":"gone"}`)
			c.shelf.put(&work)
		}
	}
	c.restart()
	for service := range 20 {
		c.replace(0, service)
	}
	c.written()
	c.rest(0)
	c.check("after it", 120)
}

// TestWhatIsAsBeforeIsNoLatency: a pod that comes and goes before anything is written is nothing that the next change
// has waited for.
func TestWhatIsAsBeforeIsNoLatency(t *testing.T) {
	c, service, _ := drifted(t)
	c.seen = nil
	registry := prometheus.NewRegistry()
	c.Metrics = metrics.New(registry)
	e := &c.members[0].Exports[service]
	was := e.Backends
	c.tire()
	c.replace(0, service)
	c.reported()
	if p, err := c.plan(t.Context(), Shard{"blue", 1}); err != nil || len(p.writes) > 1 { // which may be the record
		t.Fatal(len(p.writes), err)
	}
	e.Backends = was
	c.reported()
	c.rest(0)
	c.now = c.now.Add(time.Hour)
	c.rest(0)
	c.tire()
	c.replace(0, service)
	c.reported()
	c.rest(0)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := false
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != "sealane_propagation_seconds" || m.GetLabel()[1].GetValue() != importing {
				continue
			}
			if h := m.GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() > 5 {
				t.Errorf("%d changes that took %.0f s", h.GetSampleCount(), h.GetSampleSum())
			}
			seen = true
		}
	}
	if !seen {
		t.Error("no change is counted: this shows nothing")
	}
}

// TestDeltasThatAreOnTheirWay: a pod is replaced again while the first Bundle of deltas that tells of it is on its way,
// and that is told directly. Until it has come, the deltas do not drop what they have of it for another pod.
func TestDeltasThatAreOnTheirWay(t *testing.T) {
	c := newChurning(t, 1, 40)
	c.now = c.now.Add(time.Hour)
	c.rest(0)
	service := 0
	for v1alpha1.Shard("sample", fmt.Sprintf("web-%d", service), c.shards) != 1 {
		service++
	}
	planned := func(shard int32) (bundles []write) {
		t.Helper()
		p, err := c.plan(t.Context(), Shard{"blue", shard})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range p.writes {
			if !w.ofRecord(c.now) {
				bundles = append(bundles, w)
			} else if err := w.do(t.Context()); err != nil { // a record
				t.Fatal(err)
			}
		}
		return bundles
	}
	delivery := func() []write {
		t.Helper()
		writes, _, err := c.delivery(t.Context(), importing, parallelWrites)
		if err != nil {
			t.Fatal(err)
		}
		return writes
	}
	do := func(writes []write) {
		t.Helper()
		for _, w := range writes {
			if err := w.do(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for todo := c.behind(); len(todo) > 0; todo = c.behind() {
			todo[0]()
			c.watch()
		}
	}
	// The deltas are listed.
	c.tire()
	c.replace(0, c.other())
	c.reported()
	c.rest(0)
	c.now = c.now.Add(recordPace)
	c.rest(0)

	c.tire()
	c.replace(0, service)
	c.reported()
	before := c.generations()
	do(planned(1)) // of the other exporter, which reads no deltas
	if n := c.generations() - before; n > 0 {
		t.Fatalf("%d writes for a pod that deltas are to tell of", n)
	}
	onTheWay := delivery()
	c.now = c.now.Add(quietChange)
	c.replace(0, service)
	c.reported()
	direct := planned(1)
	if len(onTheWay) != 1 || len(direct) != 2 {
		t.Fatalf("%d writes of deltas, and %d of the shard: this shows nothing", len(onTheWay), len(direct))
	}
	do(onTheWay)
	key := types.NamespacedName{Namespace: "sample", Name: fmt.Sprintf("web-%d", service)}
	if got := c.versions(key)[0]; got != 2 {
		t.Fatalf("the importer has version %d, not that of the deltas: this shows nothing", got)
	}
	c.tire()
	c.replace(0, c.other())
	c.reported()
	do(planned(0))
	do(delivery())
	do(direct)
	c.rest(0)
	c.check("at rest", 40)
}
