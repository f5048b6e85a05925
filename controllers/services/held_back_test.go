// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/raced"
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

// TestAMemberIsHeardAfterItsWorksWereSetBack: somebody has written what was there long ago, as from a backup, and what
// the member answers to that is from the past, until it has been sent what is beyond all that it has answered.
func TestAMemberIsHeardAfterItsWorksWereSetBack(t *testing.T) {
	p := play(t, manyServices(3, 10, 1))
	long := p.own("c2")
	for round := range 20 {
		p.now = p.now.Add(time.Minute)
		p.replacePod(0, 1+round)
		p.answerAll()
		p.decide(0)
	}
	p.answerAll()
	p.decide(0)
	p.shelf.put(long)
	e := web(2)
	e.Name = "new"
	p.members[1].Exports = append(p.members[1].Exports, e)
	before := p.toldOf("c1")
	p.pass(10)
	if n := p.toldOf("c1"); n != before+1 {
		t.Errorf("c1 is told of %d services, and was of %d before c2 exported one more", n, before)
	}
}

// TestHalvesAreWaitedForOnce: from when they were written or, where this controller has written none, from when they
// were found, be it that nothing can be written. One that is being deleted is not waited for.
func TestHalvesAreWaitedForOnce(t *testing.T) {
	half := func(written time.Time, terminating bool) letter {
		b := &sentBundle{half: "0", box: &mailbox{written: written}, terminating: terminating}
		return letter{bundle: b, spec: &Bundle{}}
	}
	own := letter{bundle: &sentBundle{box: new(mailbox)}, spec: &Bundle{}}
	for name, c := range map[string]struct {
		letter func() letter // anew: what was never written is forgotten
		want   time.Time
	}{
		"written":                {func() letter { return half(now.Add(-time.Second), false) }, now.Add(-time.Second)},
		"written long before":    {func() letter { return half(now.Add(-time.Hour), false) }, now.Add(-time.Hour)},
		"found":                  {func() letter { return half(time.Time{}, false) }, now},
		"deleted":                {func() letter { return half(now.Add(-time.Second), true) }, time.Time{}},
		"found as it is deleted": {func() letter { return half(time.Time{}, true) }, time.Time{}},
		"to be deleted":          {func() letter { return letter{bundle: half(now, false).bundle} }, time.Time{}},
		"the shard's own, alone": {func() letter { return own }, time.Time{}},
	} {
		mem := new(memory)
		for _, at := range []time.Time{now, now.Add(time.Second), now.Add(time.Hour)} {
			if got := mem.halved(own.spec, []letter{own, c.letter()}, at); !got.Equal(c.want) {
				t.Errorf("%s: looked at %s, waited for since %s, want %s", name, at, got, c.want)
			}
		}
		listing := &Bundle{Halves: []string{"0", "1"}}
		if got := mem.halved(listing, []letter{own, c.letter()}, now); !got.IsZero() {
			t.Errorf("%s: halves that are listed are waited for since %s", name, got)
		}
		again := now.Add(2 * time.Hour)
		if got := mem.halved(own.spec, []letter{own, c.letter()}, again); c.want.Equal(now) && !got.Equal(again) {
			t.Errorf("%s: further ones are waited for since %s, want %s", name, got, again)
		}
	}
}

// vanishing is a client of an API server that somebody else has just deleted all ExportRecords of.
type vanishing struct{ *shelf }

func (v vanishing) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if _, ok := o.(*v1alpha1.ExportRecord); ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "exportrecords"}, o.GetName())
	}
	return v.shelf.Update(ctx, o, opts...)
}

// TestARecordThatIsGoneIsALostRace, no error.
func TestARecordThatIsGoneIsALostRace(t *testing.T) {
	p := play(t, manyServices(3, 10, 1))
	p.Client = vanishing{p.shelf}
	e := web(1)
	e.Name = "new"
	p.members[0].Exports = append(p.members[0].Exports, e)
	p.answer(0, 0)
	p.now = p.now.Add(time.Minute)
	if _, err := p.Reconcile(t.Context(), Shard{"blue", 0}); err == nil || !raced.Lost(err) {
		t.Errorf("found %v, want a lost race", err)
	}
}

// TestDeltasThatAreLetGoLate: a look at one shard that began before the member took part forgets its deltas, and pods
// that are replaced then are told of all the same.
func TestDeltasThatAreLetGoLate(t *testing.T) {
	for name, late := range map[string]func(c *churning, record *v1alpha1.Member){
		"it takes no part": func(c *churning, record *v1alpha1.Member) { c.letGo(record, 3) },
		"it reads no deltas": func(c *churning, record *v1alpha1.Member) {
			record.Status.ReadsDeltas = false
			c.deltasOf(record)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChurningIn(t, 1, 40, 4)
			c.now = c.now.Add(time.Hour)
			c.settle()
			queue := workqueue.NewTyped[Shard]()
			defer queue.ShutDown()
			c.shardQueue = queue
			var record v1alpha1.Member
			if err := c.shelf.Get(t.Context(), client.ObjectKey{Name: importing}, &record); err != nil {
				t.Fatal(err)
			}
			late(c, &record)
			c.tire()
			service := c.other()
			c.replace(0, service)
			c.answerAllOf(0)
			queue.Add(Shard{"blue", 0})
			for range 3 {
				for queue.Len() > 0 {
					shard, _ := queue.Get()
					c.decide(shard.Number)
					queue.Done(shard)
				}
				if _, err := c.Deliver(t.Context(), importing); err != nil {
					t.Fatal(err)
				}
				for todo := c.behind(); len(todo) > 0; todo = c.behind() {
					todo[0]()
				}
			}
			if c.sentDeltas() == 0 {
				t.Error("the pod is not told of in deltas")
			}
			key := types.NamespacedName{Namespace: "sample", Name: fmt.Sprintf("web-%d", service)}
			if got, want := c.versions(key)[0], c.version[[2]int{0, service}]; got != want {
				t.Errorf("%s has the version %d, want %d", key, got, want)
			}
		})
	}
}
