// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// settle has all written that the controller wants, and the importer answer it.
func (c *churning) settle() {
	c.t.Helper()
	for range 8 {
		for _, w := range c.wanted() {
			if err := w.do(c.t.Context()); err != nil {
				c.t.Fatal(err)
			}
		}
		for todo := c.behind(); len(todo) > 0; todo = c.behind() {
			todo[0]()
		}
	}
}

// TestDeltasAreListedInACrowd: clusters that come are no reason to be told later of the pods of others, be it that the
// Bundle that lists the deltas has nothing else to say.
func TestDeltasAreListedInACrowd(t *testing.T) {
	c := newChurningIn(t, 1, 8, 2)
	c.now = c.now.Add(time.Hour)
	c.settle()
	c.now = c.now.Add(recordPace)
	c.settle()
	for n := range crowd {
		c.join(cluster(11+n), true, c.now)
	}
	c.settle()
	c.tire()
	var replaced []int
	for s := range 8 {
		if v1alpha1.Shard("sample", c.members[0].Exports[s].Name, c.shards) == 1 {
			c.replace(0, s)
			replaced = append(replaced, s)
		}
	}
	c.answerAllOf(0)
	c.settle()
	if c.sentDeltas() == 0 || len(replaced) == 0 {
		t.Fatalf("of %d pods %d Bundles of deltas tell", len(replaced), c.sentDeltas())
	}
	for _, s := range replaced {
		key := types.NamespacedName{Namespace: "sample", Name: fmt.Sprintf("web-%d", s)}
		if got, want := c.versions(key)[0], c.version[[2]int{0, s}]; got != want {
			t.Errorf("%s has the version %d, want %d", key, got, want)
		}
	}
}

// TestHalvesComeBackThatDeltasCover: a half that is in force is not written where deltas have what has changed of it.
// One that is not listed any more is, as the member cannot be told to go by it again before.
func TestHalvesComeBackThatDeltasCover(t *testing.T) {
	c := newChurning(t, 1, 120)
	c.now = c.now.Add(time.Hour)
	c.rest(0)
	service := 0
	for v1alpha1.Shard("sample", c.members[0].Exports[service].Name, c.shards) != 1 {
		service++
	}
	for range 2 {
		c.tire()
		c.replace(0, service)
		c.answerAllOf(0)
		c.rest(0)
	}
	c.now = c.now.Add(recordPace)
	c.tire()
	c.rest(0)
	listed := func() []string { return readSpecOf(t, c, 1).Halves }
	if len(listed()) == 0 {
		t.Fatal("there are no halves")
	}
	for _, work := range c.works() {
		if b := c.object(&work); b.Name == v1alpha1.BundleName(1) {
			b.Spec.Halves = nil
			var err error
			if work.Spec.Workload.Manifests[0].Raw, err = json.Marshal(b); err != nil {
				t.Fatal(err)
			}
			c.shelf.put(&work)
		}
	}
	clear(c.exported) // what was in the halves is gone meanwhile: that is who wrote it to blame for
	c.rest(0)
	if len(listed()) == 0 {
		t.Error("at rest no halves are listed")
	}
	c.restart()
	if writes := c.wanted(); len(writes) > 0 {
		t.Errorf("a controller that starts writes %d Works", len(writes))
	}
}

// readSpecOf is what the importer's own Bundle of a shard says.
func readSpecOf(t *testing.T, c *churning, shard int32) v1alpha1.BundleSpec {
	t.Helper()
	for _, work := range c.works() {
		if b := c.object(&work); b.Name == v1alpha1.BundleName(shard) {
			return b.Spec
		}
	}
	t.Fatalf("there is no Work of shard %d", shard)
	return v1alpha1.BundleSpec{}
}

// TestARecordThatIsDeletedIsWrittenAgain, at once: the cache has had it, and has it no more.
func TestARecordThatIsDeletedIsWrittenAgain(t *testing.T) {
	p := play(t, manyServices(3, 10, 1))
	p.members[0].Exports = append(p.members[0].Exports, web(1, func(e *v1alpha1.Export) { e.Name = "one" }))
	p.answer(0, 0)
	p.decide(0) // which writes the record that the cache has had
	key := client.ObjectKey{Name: v1alpha1.ExportRecordName("c1", 0)}
	var record v1alpha1.ExportRecord
	if err := p.shelf.Get(t.Context(), key, &record); err != nil {
		t.Fatal(err)
	}
	first := record.Spec.Seen
	if err := p.shelf.Delete(t.Context(), &record); err != nil {
		t.Fatal(err)
	}
	p.now = p.now.Add(time.Second)
	p.decide(0)
	record = v1alpha1.ExportRecord{}
	if err := p.shelf.Get(t.Context(), key, &record); err != nil {
		t.Fatal(err)
	}
	for _, was := range first {
		found := false
		for _, is := range record.Spec.Seen {
			found = found || sameSeen(was, is)
		}
		if !found {
			t.Errorf("%s was first seen at %s, which is not known any more", was.Name, was.FirstSeen)
		}
	}
}
