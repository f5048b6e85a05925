// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// answerAll has all members answer what they were sent.
func (p *played) answerAll() {
	for i := range p.members {
		p.answerHalves(i, 0)
	}
}

// TestWhatIsCalmGoesFirst: of what several exporters have changed, that of the one who seldom does.
func TestWhatIsCalmGoesFirst(t *testing.T) {
	p := playWith(t, manyServices(4, 400, 1), true)
	for round := range 50 {
		p.now = p.now.Add(200 * time.Millisecond)
		p.replacePod(0, 1+round)
		p.answerAll()
		p.decide(0)
		p.answerAll()
		p.decide(0)
	}
	p.now = p.now.Add(200 * time.Millisecond)
	p.replacePod(0, 100)
	p.replacePod(1, 1)
	p.answerAll()
	got, err := p.plan(t.Context(), Shard{"blue", 0})
	if err != nil {
		t.Fatal(err)
	}
	inTurn(got.writes)
	bundles := slices.DeleteFunc(got.writes, func(w write) bool { return w.ofRecord(p.now) })
	late := slices.IndexFunc(bundles, func(w write) bool { return w.due.Sub(p.now) > time.Second })
	if len(bundles) != 6 || late != 3 || bundles[2].due.Sub(p.now) > 2*waitForEach ||
		bundles[3].due.Sub(p.now) < 2*time.Second {
		t.Errorf("%d writes, of which %d are due soon: %+v; want three for what each of two has changed", len(bundles), late,
			bundles)
	}
	// However much somebody changes, it is not put off for ever.
	if a, b := dueAfter(p.now, 1e9), dueAfter(p.now.Add(maxWait+time.Second), 1); !a.Before(b) {
		t.Errorf("what was due at %s comes after what is at %s", a, b)
	}
}

// TestATurnEnds: what has not begun by then is left, some is begun in any case, and nothing else is left out.
func TestATurnEnds(t *testing.T) {
	var clock, done atomic.Int64
	r := &Reconciler{Now: func() time.Time { return time.Unix(0, clock.Load()) }}
	writes := slices.Repeat([]write{{do: func(context.Context) error {
		done.Add(1)
		clock.Add(int64(turn / 4))
		return nil
	}}}, 100)
	all, err := r.carryOut(t.Context(), writes)
	if n := done.Load(); all || err != nil || n < leastOfATurn || n > leastOfATurn+parallelWrites {
		t.Errorf("%d of 100 writes, all: %t, %v", n, all, err)
	}
	done.Store(0)
	if all, err = r.carryOut(t.Context(), writes[:3]); !all || err != nil || done.Load() != 3 {
		t.Errorf("%d of 3 writes, all: %t, %v", done.Load(), all, err)
	}
}

// TestAnswersSetThePace: what a member has not answered is not written a third time, until it is or for a second; then
// all that has changed is one write.
func TestAnswersSetThePace(t *testing.T) {
	p := play(t, manyServices(2, 40, 1))
	written := func() int { return p.shelf.writes["Work"] }
	change := func(round int) (writes int, again time.Duration) {
		t.Helper()
		p.replacePod(0, round)
		p.answer(0, 0)
		before := written()
		got, err := p.Reconcile(t.Context(), Shard{"blue", 0})
		if err != nil {
			t.Fatal(err)
		}
		return written() - before, got.RequeueAfter
	}
	for round, want := range []int{1, 1, 0, 0} {
		p.now = p.now.Add(50 * time.Millisecond)
		if n, again := change(1 + round); n != want || want == 0 && (again <= 0 || again > unansweredPace) {
			t.Errorf("change %d: %d writes and a look after %s, want %d", round, n, again, want)
		}
	}
	p.answer(1, 0)
	before := written()
	if p.decide(0); written()-before != 1 {
		t.Errorf("%d writes when the member has answered, want one", written()-before)
	}
	p.now = p.now.Add(50 * time.Millisecond)
	for round, want := range []int{1, 0} {
		if n, _ := change(10 + round); n != want {
			t.Errorf("change %d after that: %d writes, want %d", round, n, want)
		}
	}
	p.now = p.now.Add(unansweredPace)
	if n, _ := change(20); n != 1 {
		t.Errorf("%d writes for a member that does not answer, want one each %s", n, unansweredPace)
	}
}

// TestAnswersFromTheFutureAreNone: what a member says of revisions that were not written lets no more writes through.
func TestAnswersFromTheFutureAreNone(t *testing.T) {
	now := time.Unix(1700000000, 0)
	for observed, answered := range map[int64]bool{
		7: true, 6: true, 5: false, 8: false, math.MaxInt64: false, math.MinInt64: false, 0: false,
	} {
		b := &sentBundle{sent: &Bundle{Revision: 7}, observed: observed, box: &mailbox{written: now}}
		if wait := b.waits(now); (wait == 0) != answered {
			t.Errorf("of revision 7 a member says %d: the next write waits for %s", observed, wait)
		}
	}
}

// TestOneClusterAloneIsNotLate: fewer writes at once are for all, and not in the hands of one that deletes its Works.
func TestOneClusterAloneIsNotLate(t *testing.T) {
	now := time.Unix(1700000000, 0)
	written := &mailbox{written: now.Add(-time.Second)}
	for _, c := range []struct {
		clusters, unseen int
		want             bool
	}{{2, 0, false}, {2, 1, true}, {7, 1, true}, {10, 1, false}, {10, 2, true}, {100, 12, false}, {100, 13, true}} {
		targets := make([]target, c.clusters)
		for i := range c.unseen {
			b := sentBundle{unseen: true, box: written}
			if i%2 == 0 {
				targets[i].sentBundle = b
			} else {
				targets[i].halves = map[string]*sentBundle{"0": {box: written}, "1": &b}
			}
		}
		if got := late(targets, now); got != c.want {
			t.Errorf("of %d clusters %d have not shown what was written: late %t, want %t", c.clusters, c.unseen, got, c.want)
		}
		if late(targets, written.written.Add(promptly)) {
			t.Errorf("of %d clusters %d are late at once", c.clusters, c.unseen)
		}
	}
}

// TestADeletedWorkIsMissedAtOnce where the cache has shown it, and not taken for one that it does not show yet.
func TestADeletedWorkIsMissedAtOnce(t *testing.T) {
	p := play(t, manyServices(2, 40, 1))
	key := propagation.BundleKey("c2", 0)
	p.replacePod(0, 1)
	p.answer(0, 0)
	p.decide(0)
	p.now = p.now.Add(time.Second)
	p.decide(0) // which sees what it has written
	var work workv1alpha1.Work
	if err := p.shelf.Get(t.Context(), key, &work); err != nil {
		t.Fatal(err)
	}
	if err := p.shelf.Delete(t.Context(), &work); err != nil {
		t.Fatal(err)
	}
	p.now = p.now.Add(time.Second)
	p.decide(0)
	if err := p.shelf.Get(t.Context(), key, &work); err != nil {
		t.Errorf("a second after it was deleted: %v", err)
	}
}

// TestWhatARecordIsToSayCounts where the member's report is lost before it is written.
func TestWhatARecordIsToSayCounts(t *testing.T) {
	p := play(t, manyServices(2, 40, 1))
	last := ""
	for round := range 2 {
		p.now = p.now.Add(2 * time.Second)
		p.replacePod(0, 1+round)
		p.answer(0, 0)
		p.decide(0)
		p.answer(1, 0)
		last = `"` + p.members[0].Exports[0].Backends[0].Addresses[0].IP
	}
	has := func() bool {
		var work workv1alpha1.Work
		if err := p.shelf.Get(t.Context(), propagation.BundleKey("c2", 0), &work); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), last)
	}
	if !has() {
		t.Fatalf("%s is not written: this shows nothing", last)
	}
	var work workv1alpha1.Work
	if err := p.shelf.Get(t.Context(), propagation.BundleKey("c1", 0), &work); err != nil {
		t.Fatal(err)
	}
	work.Status.ManifestStatuses = nil
	p.shelf.put(&work)
	p.now = p.now.Add(2 * time.Second)
	if p.decide(0); !has() {
		t.Errorf("the importer is told of what was before %s", last)
	}
}

// lagging is a client whose cache shows Works as they were when it was last caught up.
type lagging struct {
	*shelf
	seen *shelf
}

func (l *lagging) catchUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = newShelf()
	for kind, objects := range l.objects {
		l.seen.objects[kind] = maps.Clone(objects)
	}
	for index, works := range l.indexed {
		l.seen.indexed[index] = maps.Clone(works)
	}
}

func (l *lagging) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return l.seen.Get(ctx, key, o, opts...)
}

func (l *lagging) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return l.seen.List(ctx, list, opts...)
}

// TestACacheThatLagsBehind: the API server sends the events of a write a minute later. The controller goes by what
// it has written: it neither begins anew, nor writes the same again, nor deletes anything twice.
func TestACacheThatLagsBehind(t *testing.T) {
	p := playWith(t, manyServices(3, 400, 1), true)
	for range 3 { // until nobody is called any more
		p.now = p.now.Add(time.Minute)
		p.decide(0)
		p.answerAll()
	}
	l := &lagging{shelf: p.shelf}
	l.catchUp()
	p.Client, p.Works = l, propagation.Writer{Client: l, Live: p.shelf}
	listed := func() int { return len(p.last(Shard{"blue", 0}).in.Members) }
	if listed() != 3 || len(l.indexed) < 3 {
		t.Fatalf("%d members and %d lists of halves: this shows nothing", listed(), len(l.indexed))
	}
	p.replacePod(0, 1)
	p.answer(0, 0)
	l.catchUp()
	before := maps.Clone(p.shelf.writes)
	p.decide(0)
	if n := p.shelf.writes["Work"] - before["Work"]; n != 2 {
		t.Fatalf("%d writes for a change, want 2", n)
	}
	revisions := p.revisions()
	for range int(propagation.MaxCacheLag/time.Second) - 1 {
		p.now = p.now.Add(time.Second)
		p.decide(0)
	}
	if n := p.shelf.writes["Work"] - before["Work"]; n != 2 {
		t.Errorf("%d writes in a minute in which nothing else has changed, want the 2 from before", n)
	}
	if now := p.revisions(); !maps.Equal(now, revisions) {
		t.Errorf("revisions were %v, and are %v", revisions, now)
	}
	// Now the halves are not wanted any more, of which each is deleted once.
	l.catchUp()
	for i := range p.members {
		p.members[i].Exports = p.members[i].Exports[:2]
	}
	for range 20 {
		p.now = p.now.Add(11 * time.Second)
		l.catchUp()
		p.answerAll()
		l.catchUp()
		p.decide(0)
		p.now = p.now.Add(time.Second)
		p.decide(0)
		p.now = p.now.Add(time.Second)
		p.decide(0)
	}
	halves := 0
	for _, works := range p.shelf.indexed {
		halves += len(works)
	}
	if deleted := p.shelf.writes["deleted"] - before["deleted"]; halves > 0 || deleted != len(revisions)-3 {
		t.Errorf("%d halves are left, and %d of %d were deleted", halves, deleted, len(revisions)-3)
	}
}

// revisions of all Bundles, by their Works.
func (p *played) revisions() map[client.ObjectKey]int64 {
	p.t.Helper()
	var works workv1alpha1.WorkList
	if err := p.shelf.List(p.t.Context(), &works); err != nil {
		p.t.Fatal(err)
	}
	out := map[client.ObjectKey]int64{}
	for i := range works.Items {
		spec := readSpec(&works.Items[i])
		if spec == nil {
			p.t.Fatalf("the Work %s carries no Bundle", works.Items[i].Name)
		}
		out[client.ObjectKeyFromObject(&works.Items[i])] = spec.Revision
	}
	return out
}

// TestRecordsAreNotWrittenForEachPod: but each ten seconds, and at once where the exporter falls silent.
func TestRecordsAreNotWrittenForEachPod(t *testing.T) {
	p := play(t, manyServices(2, 40, 1))
	before := p.shelf.writes["ExportRecord"]
	for round := range 200 {
		p.now = p.now.Add(100 * time.Millisecond)
		p.replacePod(0, 1+round)
		p.answer(0, 0)
		p.decide(0)
		p.answer(1, 0)
	}
	if n := p.shelf.writes["ExportRecord"] - before; n < 2 || n > 3 {
		t.Errorf("the record was written %d times in 20 s, want each %s", n, recordPace)
	}
	recorded := func() bool {
		var record v1alpha1.ExportRecord
		if err := p.shelf.Get(t.Context(), client.ObjectKey{Name: v1alpha1.ExportRecordName("c1", 0)}, &record); err != nil {
			t.Fatal(err)
		}
		wanted := p.last(Shard{"blue", 0}).d.Records["c1"]
		return sameRecord(&record.Spec, &wanted)
	}
	if recorded() {
		t.Fatal("the record has what changed last: this shows nothing")
	}
	c := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	c.Status.Conditions = []metav1.Condition{{Type: clusterv1alpha1.ClusterConditionReady, Status: metav1.ConditionFalse}}
	p.shelf.put(c)
	if p.decide(0); !recorded() {
		t.Error("a cluster is lost whose record is not what it last said")
	}
}

// ofRecord says that a write is of a record: no Bundle is due at once, nor as late.
func (w write) ofRecord(now time.Time) bool { return w.due.IsZero() || w.due.Sub(now) > maxWait }

// TestRecordsOfPodsComeLast: behind what members are told, for as many as there are.
func TestRecordsOfPodsComeLast(t *testing.T) {
	p := play(t, manyServices(3, 40, 1))
	p.now = p.now.Add(recordPace + time.Second)
	for n := range 3 {
		p.replacePod(n, 1)
		p.answer(n, 0)
	}
	planned, err := p.plan(t.Context(), Shard{"blue", 0})
	if err != nil {
		t.Fatal(err)
	}
	inTurn(planned.writes)
	bundles, records := 0, 0
	for _, w := range planned.writes {
		before := p.shelf.writes["ExportRecord"]
		if err := w.do(t.Context()); err != nil {
			t.Fatal(err)
		}
		switch {
		case p.shelf.writes["ExportRecord"] > before:
			records++
		case records > 0:
			t.Error("a Bundle waits for a record")
		default:
			bundles++
		}
	}
	if bundles == 0 || records != 3 {
		t.Errorf("%d Bundles and %d records are written: this shows nothing", bundles, records)
	}
}

// TestWhatSomebodyHasMadeOfAWorkIsSeenAtOnce, and written over within a second: the generation tells that it is not
// what was before the controller's own write.
func TestWhatSomebodyHasMadeOfAWorkIsSeenAtOnce(t *testing.T) {
	for what, text := range map[string]string{
		"an older revision":           `{"spec":{"revision":1,"shard":0,"imports":[],"exportConditions":[]}}`,
		"what carries no Bundle":      `{"spec":"gone"}`,
		"what carries no spec at all": `{}`,
	} {
		p := play(t, manyServices(2, 40, 1))
		p.replacePod(0, 1)
		p.answer(0, 0)
		p.decide(0)
		var work workv1alpha1.Work
		key := propagation.BundleKey("c2", 0)
		if err := p.shelf.Get(t.Context(), key, &work); err != nil {
			t.Fatal(err)
		}
		work.Spec.Workload.Manifests[0].Raw = []byte(text)
		p.shelf.put(&work)
		p.now = p.now.Add(unansweredPace) // the answer to what was there before is from the future
		p.decide(0)
		if err := p.shelf.Get(t.Context(), key, &work); err != nil {
			t.Fatal(err)
		}
		if spec := readSpec(&work); spec == nil || len(spec.Imports) != 40 {
			t.Errorf("%s: the Work carries %+v, want its imports again", what, spec)
		}
	}
}
