// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"slices"
	"testing"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// come has clusters join that export services of their own, and answer what they are sent first.
func (p *played) come(first, count, services int) {
	p.t.Helper()
	for n := first; n < first+count; n++ {
		m := cluster(n)
		for s := range services {
			e := web(n)
			e.Name = fmt.Sprintf("of-%d-%d", n, s)
			m.Exports = append(m.Exports, e)
		}
		p.members = append(p.members, m)
		p.join(m, true, p.now)
	}
	p.decide(0)
	p.answerAll()
}

// toldOf counts the services of which a cluster is told, be it in Works that are in force or not.
func (p *played) toldOf(cluster string) int {
	p.t.Helper()
	var works workv1alpha1.WorkList
	if err := p.shelf.List(p.t.Context(), &works); err != nil {
		p.t.Fatal(err)
	}
	told := map[key]bool{}
	for i := range works.Items {
		if spec := readSpec(&works.Items[i]); spec != nil && propagation.ClusterOf(&works.Items[i]) == cluster {
			for k := range spec.Imports {
				told[keyOf(spec.Imports[k])] = true
			}
		}
	}
	return len(told)
}

// pass lets seconds pass, in each of which is decided and answered.
func (p *played) pass(seconds int) {
	for range seconds {
		p.now = p.now.Add(time.Second)
		p.decide(0)
		p.answerAll()
	}
}

// TestACrowdIsWaitedFor: while many clusters come, what only adds to the imports of others waits, until none has come
// for a while; what changes otherwise does not, and who has come is told at once.
func TestACrowdIsWaitedFor(t *testing.T) {
	const services, each = 40, 30
	p := playWith(t, manyServices(4, services, 1), true)
	p.come(11, crowd, each)
	if n := p.toldOf("c11"); n != services {
		t.Errorf("who comes is told of %d services, want %d", n, services)
	}
	for round := range 3 {
		p.now = p.now.Add(time.Second)
		got, err := p.Reconcile(t.Context(), Shard{"blue", 0})
		p.answerAll()
		if n := p.toldOf("c1"); err != nil || n != services || got.RequeueAfter <= 0 || got.RequeueAfter > justCame {
			t.Fatalf("after %d s c1 is told of %d services, and looked at after %s, %v; want %d, and that soon", round+1, n,
				got.RequeueAfter, err, services)
		}
	}
	before := p.revisions()
	p.replacePod(1, 1)
	p.answerAll()
	p.decide(0)
	importers := map[string]bool{}
	for key, revision := range p.revisions() {
		if before[key] != revision {
			importers[key.Namespace] = true
		}
	}
	if len(importers) != 3+crowd {
		t.Errorf("a pod was replaced, and %d clusters were told, want all %d others", len(importers), 3+crowd)
	}
	p.pass(10)
	for _, cluster := range []string{"c1", "c11"} {
		if n, want := p.toldOf(cluster), services+each*crowd; n != want {
			t.Errorf("%s is told of %d services at last, want %d", cluster, n, want)
		}
	}
}

// TestFewAreNotWaitedFor, nor those that a controller finds when it starts.
func TestFewAreNotWaitedFor(t *testing.T) {
	p := playWith(t, manyServices(4, 10, 1), true)
	p.come(11, crowd-1, 1)
	p.decide(0)
	if n := p.toldOf("c1"); n != 10+crowd-1 {
		t.Errorf("c1 is told of %d services, want those of the few that have come, too: %d", n, 10+crowd-1)
	}
	p.now = p.now.Add(comesWithin)
	p.come(21, 1, 1)
	for _, mem := range p.seen {
		mem.found = p.now
	}
	p.decide(0)
	if n := p.toldOf("c1"); n != 10+crowd {
		t.Errorf("c1 is told of %d services by a controller that has just started, want %d", n, 10+crowd)
	}
}

// TestNewcomersAreThoseThatHaveJustBeenAccepted: a controller that starts finds all others anew, too, and who came
// before the wait began is none.
func TestNewcomersAreThoseThatHaveJustBeenAccepted(t *testing.T) {
	p := playWith(t, manyServices(4, 10, 1), true)
	p.pass(10) // each member is called once more
	p.come(31, 1, 1)
	p.pass(60)
	for n := range 4 {
		p.seen[seenKey{fmt.Sprintf("uid-c%d", n+1), 0}].found = p.now
	}
	p.come(11, crowd-1, 1)
	if !p.news(5) {
		t.Error("few have come, and a controller that starts waits for those that it finds")
	}
	p.come(21, 1, 1)
	if p.news(5) {
		t.Error("nobody waits for as many as have come now")
	}
	if !p.news(0) {
		t.Error("what a cluster exports waits that was accepted long before this controller started")
	}
	if !p.news(4) {
		t.Error("what a cluster exports waits that came before the others did")
	}
}

// TestTheFirstOfACrowdAreOfIt: those that came a little before there were enough of them.
func TestTheFirstOfACrowdAreOfIt(t *testing.T) {
	p := playWith(t, manyServices(4, 10, 1), true)
	p.pass(10) // each member is called once more
	p.come(11, crowd-1, 1)
	p.pass(3)
	p.come(21, 1, 1)
	if p.news(4) {
		t.Error("what the first exports does not wait")
	}
}

// TestWhoCannotAnswerIsNotWaitedFor any longer than who has: Karmada does not reach it, or it does not serve the wire.
func TestWhoCannotAnswerIsNotWaitedFor(t *testing.T) {
	for name, broken := range map[string]func(p *played, cluster string){
		"lost": func(p *played, cluster string) {
			var c clusterv1alpha1.Cluster
			if err := p.shelf.Get(t.Context(), client.ObjectKey{Name: cluster}, &c); err != nil {
				t.Fatal(err)
			}
			c.Status.Conditions[0].Status = metav1.ConditionFalse
			p.shelf.put(&c)
		},
		"without the wire": func(p *played, cluster string) {
			for _, name := range propagation.WireBindings() {
				var b workv1alpha2.ClusterResourceBinding
				if err := p.shelf.Get(t.Context(), client.ObjectKey{Name: name}, &b); err != nil {
					t.Fatal(err)
				}
				b.Status.AggregatedStatus = slices.DeleteFunc(b.Status.AggregatedStatus,
					func(i workv1alpha2.AggregatedStatusItem) bool { return i.ClusterName == cluster })
				p.shelf.put(&b)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := playWith(t, manyServices(4, 10, 1), true)
			p.pass(10) // each member is called once more
			for n := 11; n < 11+crowd; n++ {
				p.join(cluster(n), true, p.now)
				broken(p, fmt.Sprintf("c%d", n))
			}
			p.come(21, 1, 1)
			p.now = p.now.Add(justCame - time.Second)
			if p.news(4) {
				t.Error("nobody waits for those that have just come")
			}
			p.now = p.now.Add(time.Second)
			if !p.news(4) {
				t.Errorf("they are waited for %s after they came", justCame)
			}
		})
	}
}

// news has one of the members export a new service, and says whether the second is told of it at once.
func (p *played) news(member int) bool {
	p.t.Helper()
	m := &p.members[member]
	m.Exports = append(m.Exports, web(1, func(e *v1alpha1.Export) {
		e.Name = fmt.Sprintf("new-%s-%d", m.Cluster, len(m.Exports))
	}))
	before := p.toldOf("c2")
	p.answerAll()
	p.decide(0)
	return p.toldOf("c2") > before
}

// TestACrowdIsNotWaitedForAllTheTime: clusters that go on coming hold each other up for holdMost, and then for as long
// not again; what others export does not wait at all.
func TestACrowdIsNotWaitedForAllTheTime(t *testing.T) {
	p := playWith(t, manyServices(4, 10, 1), true)
	p.pass(10) // each member is called once more
	p.come(11, crowd, 1)
	begun := p.now
	const step = 3 * time.Second
	for p.now.Sub(begun) < 3*holdMost-step {
		p.now = p.now.Add(step)
		for n := 11; n < 11+crowd; n++ {
			var record v1alpha1.Member
			if err := p.shelf.Get(t.Context(), client.ObjectKey{Name: fmt.Sprintf("c%d", n)}, &record); err != nil {
				t.Fatal(err)
			}
			record.Status.Conditions[0].LastTransitionTime = metav1.NewTime(p.now)
			p.shelf.put(&record)
			p.memory(&record, 0).found = p.now
		}
		since := p.now.Sub(begun)
		if told, want := p.news(4), since >= holdMost && since < 2*holdMost; told != want {
			t.Errorf("%s after the first came c2 is told of a new service of that: %t", since, told)
		}
		if since%(10*step) == 0 && !p.news(0) {
			t.Errorf("%s after the first came c2 is not told of a new service of c1", since)
		}
	}
}

// TestWhoSaysNothingIsWaitedForBriefly: clusters that were accepted and do not answer.
func TestWhoSaysNothingIsWaitedForBriefly(t *testing.T) {
	p := playWith(t, manyServices(4, 10, 1), true)
	p.pass(10) // each member is called once more
	for n := 11; n < 11+crowd; n++ {
		p.join(cluster(n), true, p.now)
	}
	p.come(21, 1, 1)
	p.now = p.now.Add(firstReport - time.Second)
	if p.news(4) {
		t.Error("nobody waits for those that have said nothing yet")
	}
	p.now = p.now.Add(time.Second)
	if !p.news(4) {
		t.Errorf("those that say nothing are waited for %s after they came", firstReport)
	}
}

// TestAHoldKeepsNobodysHalves: what a cluster exports that was there before is told during a hold also where it takes
// other halves to tell it.
func TestAHoldKeepsNobodysHalves(t *testing.T) {
	const services, more = 40, 200
	p := playWith(t, manyServices(4, services, 1), true)
	p.pass(10) // each member is called once more
	p.come(11, crowd, 1)
	before := len(p.revisions())
	for n := range more {
		e := web(1)
		e.Name = fmt.Sprintf("more-%d", n)
		p.members[0].Exports = append(p.members[0].Exports, e)
	}
	p.answerAll()
	p.decide(0)
	if p.news(4) {
		t.Fatal("nobody waits for those that have come: this could not fail")
	}
	if n := p.toldOf("c2"); n < services+more {
		t.Errorf("c2 is told of %d services, want %d", n, services+more)
	}
	p.pass(30)
	if n := len(p.revisions()); n <= before {
		t.Errorf("there are %d Works, and were %d: the test has seen no halves", n, before)
	}
}

// TestWhoFlapsIsNotWaitedFor: clusters that are accepted, and are not, again and again came but once.
func TestWhoFlapsIsNotWaitedFor(t *testing.T) {
	p := playWith(t, manyServices(4, 10, 1), true)
	p.pass(10) // each member is called once more
	p.come(11, crowd, 1)
	p.come(21, 1, 1)
	for second := range 60 {
		p.now = p.now.Add(time.Second)
		for n := 11; n < 11+crowd; n++ {
			var record v1alpha1.Member
			if err := p.shelf.Get(t.Context(), client.ObjectKey{Name: fmt.Sprintf("c%d", n)}, &record); err != nil {
				t.Fatal(err)
			}
			c := &record.Status.Conditions[0]
			c.LastTransitionTime = metav1.NewTime(p.now)
			if c.Status = metav1.ConditionTrue; second%2 == 0 {
				c.Status = metav1.ConditionFalse
			}
			p.shelf.put(&record)
		}
		p.decide(0)
		if told := p.news(4 + crowd); second >= 10 && !told {
			t.Fatalf("after %d s others wait for those that flap", second+1)
		}
	}
}

// TestOnlyAdds says of changes of a Bundle whether they only add.
func TestOnlyAdds(t *testing.T) {
	sent := func() *Bundle {
		in := manyServices(3, 12, 1)
		b := Decide(in).Bundles["c1"]
		return &b
	}
	of := func(clusters ...string) (out []v1alpha1.ImportCluster) {
		for _, c := range clusters {
			out = append(out, v1alpha1.ImportCluster{Cluster: c})
		}
		return out
	}
	h := hold{newcomers: map[string]bool{"z": true}}
	for name, c := range map[string]struct {
		change func(b *Bundle)
		want   bool
	}{
		"nothing": {func(*Bundle) {}, true},
		"a service": {func(b *Bundle) {
			b.Imports = append(b.Imports, &v1alpha1.Import{Namespace: "z", Clusters: of("z")})
		}, true},
		"the first service": {func(b *Bundle) {
			b.Imports = append([]*v1alpha1.Import{{Namespace: "a", Clusters: of("z")}}, b.Imports...)
		}, true},
		"a service that another cluster exports, too": {func(b *Bundle) {
			b.Imports = append(b.Imports, &v1alpha1.Import{Namespace: "z", Clusters: of("c2", "z")})
		}, false},
		"a cluster": {func(b *Bundle) {
			b.Imports[3].Clusters = append(slices.Clone(b.Imports[3].Clusters), of("z")...)
		}, true},
		"a cluster that was there": {func(b *Bundle) {
			b.Imports[3].Clusters = append(slices.Clone(b.Imports[3].Clusters), of("y")...)
		}, false},
		"a condition": {func(b *Bundle) {
			b.ExportConditions = append(slices.Clone(b.ExportConditions), v1alpha1.ExportCondition{Namespace: "z"})
		}, false},
		"a service less":        {func(b *Bundle) { b.Imports = b.Imports[1:] }, false},
		"the last service less": {func(b *Bundle) { b.Imports = b.Imports[:len(b.Imports)-1] }, false},
		"no service":            {func(b *Bundle) { b.Imports = nil }, false},
		"a cluster more and the last service less": {func(b *Bundle) {
			b.Imports = b.Imports[:len(b.Imports)-1]
			b.Imports[3].Clusters = append(slices.Clone(b.Imports[3].Clusters), of("z")...)
		}, false},
		"the last cluster less": {func(b *Bundle) {
			b.Imports[3].Clusters = b.Imports[3].Clusters[:len(b.Imports[3].Clusters)-1]
		}, false},
		"the last condition less": {func(b *Bundle) {
			b.ExportConditions = b.ExportConditions[:len(b.ExportConditions)-1]
		}, false},
		"another service": {func(b *Bundle) {
			b.Imports = append(slices.Clone(b.Imports[:len(b.Imports)-1]), &v1alpha1.Import{Namespace: "z"})
		}, false},
		"a cluster less": {func(b *Bundle) { b.Imports[3].Clusters = b.Imports[3].Clusters[1:] }, false},
		"a pod": {func(b *Bundle) {
			clusters := slices.Clone(b.Imports[3].Clusters)
			for i := range clusters {
				clusters[i].Backends = []v1alpha1.Backends{pods(9, 1)}
			}
			b.Imports[3].Clusters = clusters
		}, false},
		"a setting":        {func(b *Bundle) { b.Imports[3].Settings.SessionAffinity = "ClientIP" }, false},
		"what is withheld": {func(b *Bundle) { b.Imports[3].Withheld = true }, false},
		"other halves":     {func(b *Bundle) { b.Halves = []string{"0", "1"} }, false},
		"another condition": {func(b *Bundle) {
			b.ExportConditions = slices.Clone(b.ExportConditions)
			b.ExportConditions[0].Message = "other"
		}, false},
	} {
		b := sent()
		b.Imports = slices.Clone(b.Imports)
		if c.change(b); h.onlyAdds("c1", sent(), b, comparison{}) != c.want {
			t.Errorf("%s: only adds: %t, want %t", name, !c.want, c.want)
		}
	}
	if !h.onlyAdds("c1", nil, sent(), comparison{}) {
		t.Error("a half that is made takes nothing away")
	}
	b := sent()
	b.ExportConditions = append(slices.Clone(b.ExportConditions), v1alpha1.ExportCondition{Namespace: "z"})
	if h.newcomers["c1"] = true; !h.onlyAdds("c1", sent(), b, comparison{}) {
		t.Error("what is said of a newcomer's own exports does not wait")
	}
}
