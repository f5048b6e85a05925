// SPDX-License-Identifier: Apache-2.0

package services

import (
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"

	"github.com/sealane-io/sealane/propagation"
)

// own is the Work of the shard's own Bundle of a cluster.
func (p *played) own(cluster string) *workv1alpha1.Work {
	p.t.Helper()
	var work workv1alpha1.Work
	if err := p.shelf.Get(p.t.Context(), propagation.BundleKey(cluster, 0), &work); err != nil {
		p.t.Fatal(err)
	}
	return &work
}

// TestTheLastOfACrowdAreWaitedFor: when there are but a few left that have said nothing yet.
func TestTheLastOfACrowdAreWaitedFor(t *testing.T) {
	p := playWith(t, manyServices(4, 10, 1), true)
	p.pass(10) // each member is called once more
	p.come(11, crowd, 1)
	p.pass(3)
	last := cluster(21)
	p.join(last, true, p.now)
	for range 20 {
		p.now = p.now.Add(time.Second)
		p.decide(0)
		p.answerAll() // but for the last
	}
	if p.news(4) {
		t.Error("what the first of a crowd exports does not wait for its last")
	}
	p.members = append(p.members, last)
	p.answerAll()
	p.decide(0)
	if !p.news(4) {
		t.Error("what the first of a crowd exports waits when all have said what they do")
	}
	p.pass(60)
	p.join(cluster(22), true, p.now)
	if !p.news(4) {
		t.Error("a single cluster is waited for that comes after the crowd")
	}
}

// TestACrowdIsToldOfItselfOnce: clusters that come are first told of what those export that were there, which is little
// and soon written; of the others that come in halves, and that these count. Nothing is written twice.
func TestACrowdIsToldOfItselfOnce(t *testing.T) {
	const services, each, last = 10, 30, 21
	p := playWith(t, manyServices(4, services, 1), true)
	p.pass(10) // each member is called once more
	was := p.own("c1").Generation
	p.come(11, crowd, each)
	p.come(last, 1, each)
	if n := p.toldOf("c21"); n != services {
		t.Errorf("the last one to come is told of %d services first, want the %d of those that were there", n, services)
	}
	var halves int
	for range 20 {
		p.pass(1)
		spec := readSpec(p.own("c21"))
		if halves = len(spec.Halves); halves == 0 && len(spec.Imports) != services {
			t.Fatalf("its own Bundle has %d imports, want those from before until halves count", len(spec.Imports))
		}
	}
	want := services + each*(crowd+1)
	for _, cluster := range []string{"c1", "c11", "c21"} {
		if n := p.toldOf(cluster); n != want || halves == 0 {
			t.Errorf("%s is told of %d services at last, want %d, in halves", cluster, n, want)
		}
	}
	if n := p.own("c21").Generation; n != 2 {
		t.Errorf("the own Bundle of who came was written %d times, want 2: what others had, and the list of halves", n)
	}
	if n := p.own("c1").Generation - was; n != 1 {
		t.Errorf("that of who was there was written %d times, want once, for the list of halves", n)
	}
}

// TestHalvesThatNobodyAnswersDoNotKeepWhatTheyHave: it is in the shard's own Bundle after a while.
func TestHalvesThatNobodyAnswersDoNotKeepWhatTheyHave(t *testing.T) {
	const services, each = 10, 30
	p := playWith(t, manyServices(4, services, 1), true)
	p.pass(10) // each member is called once more
	p.come(11, crowd, each)
	imports := func() int { return len(readSpec(p.own("c1")).Imports) }
	begun := p.now
	for p.now.Sub(begun) < justCame+answersWithin+5*time.Second {
		p.now = p.now.Add(time.Second)
		p.decide(0)
		for i := range p.members {
			p.answer(i, 0) // and no half
		}
		if since := p.now.Sub(begun); since < answersWithin && imports() != services {
			t.Fatalf("after %s the own Bundle has %d imports, want the %d of before", since, imports(), services)
		}
	}
	if n, want := imports(), services+each*crowd; n != want {
		t.Errorf("the own Bundle has %d imports at last, want all %d", n, want)
	}
}

// TestWhoLosesItsWorkInACrowdIsToldAll, also by a controller that has just started: it is no newcomer.
func TestWhoLosesItsWorkInACrowdIsToldAll(t *testing.T) {
	const services, each = 10, 3
	p := playWith(t, manyServices(4, services, 1), true)
	p.pass(10) // each member is called once more
	p.come(11, crowd, each)
	if err := p.shelf.Delete(t.Context(), p.own("c1")); err != nil {
		t.Fatal(err)
	}
	p.forget()
	p.seen = nil
	p.now = p.now.Add(time.Second)
	p.decide(0)
	if p.news(4) {
		t.Error("nobody waits for those that have come: this could not fail")
	}
	if n, want := p.toldOf("c1"), services+each*crowd; n != want {
		t.Errorf("c1 is told of %d services, want all %d", n, want)
	}
}

// TestAControllerThatHasJustStartedTellsAllAtOnce: the one before it may have told a newcomer more, in a Work that the
// cache does not show yet, and that less would take it from.
func TestAControllerThatHasJustStartedTellsAllAtOnce(t *testing.T) {
	const services, each = 10, 3
	p := playWith(t, manyServices(4, services, 1), true)
	p.pass(10) // each member is called once more
	p.come(11, crowd, each)
	p.join(cluster(21), true, p.now)
	p.forget()
	p.seen, p.holding, p.started = nil, nil, time.Time{}
	p.now = p.now.Add(time.Second)
	p.decide(0)
	if p.news(4) {
		t.Error("nobody waits for those that have come: this could not fail")
	}
	if n, want := p.toldOf("c21"), services+each*crowd; n != want {
		t.Errorf("the last one to come is told of %d services, want all %d", n, want)
	}
}
