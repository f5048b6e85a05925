// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"github.com/karmada-io/karmada/pkg/util/names"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/metrics"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
	"github.com/sealane-io/sealane/propagation"
)

// importer is the importing member c3 as Karmada and its agent treat it: each Work comes, and is answered, on its own.
type importer struct {
	*played
	t     *testing.T
	rnd   *rand.Rand
	reads bool // that its agent reads halves
	tells bool // and that it says so
	// deltas says that it reads those, too, and says so, and apart that it answers them where it is asked to.
	deltas, apart bool
	lies          int64 // is added to the revisions that it answers
	// problems that it has with the imports of its Bundles, by their names.
	problems map[string][]v1alpha1.ImportProblem
	absent   bool   // that it has not the namespace
	bundles  *shelf // what its API server has
	// left are Bundles in the member that Karmada knows nothing of, by name.
	left map[string]bool
	// imported is what its agent has made.
	imported map[types.NamespacedName]v1alpha1.Import
	// exported says which services were always exported from the first time on that they were imported.
	exported map[types.NamespacedName]bool
	steps    int
	// seen is called when its agent has looked, if it is not nil.
	seen func()
	// early says that the broker is one of before deltas.
	early bool
}

const importing = "c3"

// newImporter plays two clusters that export the same services, and one that imports them.
func newImporter(t *testing.T, seed uint64, services int) *importer {
	in := Input{Shards: 1, Now: now, Members: []Member{cluster(1), cluster(2), cluster(3)}}
	i := &importer{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), reads: true, tells: true, apart: seed%3 > 0,
		bundles: newShelf(), imported: map[types.NamespacedName]v1alpha1.Import{}, exported: map[types.NamespacedName]bool{}}
	i.played = play(t, in)
	i.tell()
	i.export(services)
	return i
}

// tell records whether the agent says that it reads halves.
func (i *importer) tell() {
	i.t.Helper()
	var record v1alpha1.Member
	if err := i.shelf.Get(i.t.Context(), client.ObjectKey{Name: importing}, &record); err != nil {
		i.t.Fatal(err)
	}
	record.Status.ReadsParts, record.Status.ReadsText, record.Status.ReadsDeltas = i.tells, true, i.deltas && !i.early
	i.shelf.put(&record)
}

// export has the first two clusters export as many services, and says so at once.
func (i *importer) export(services int) {
	for n := range 2 {
		var exports []v1alpha1.Export
		for s := range services {
			e := web(1 + n)
			e.Name = fmt.Sprintf("web-%d", s)
			exports = append(exports, e)
		}
		i.members[n].Exports = exports
		i.answer(n, 0)
	}
	i.let(services)
}

// let the services from a number on disappear.
func (i *importer) let(services int) {
	maps.DeleteFunc(i.exported, func(k types.NamespacedName, _ bool) bool {
		var s int
		_, _ = fmt.Sscanf(k.Name, "web-%d", &s)
		return s >= services
	})
}

// withdraw has them export no more than so many, and waits until the names of the others are not kept any more.
func (i *importer) withdraw(services int, crash float64) {
	i.export(services)
	i.rest(crash)
	i.let(services)
	i.now = i.now.Add(retention + time.Second)
	i.rest(crash)
}

// restart has another controller go on, that knows nothing but what is written.
func (i *importer) restart() {
	i.Reconciler = &Reconciler{Client: i.shelf, Works: propagation.Writer{Client: i.shelf, Live: i.shelf},
		Metrics: metrics.New(prometheus.NewRegistry()), Problems: NewProblemIndex(), Now: func() time.Time { return i.now }}
}

// works are those of the importer's Bundles, the shard's own first.
func (i *importer) works() []workv1alpha1.Work {
	i.t.Helper()
	var list workv1alpha1.WorkList
	namespace := client.InNamespace(names.GenerateExecutionSpaceName(importing))
	if err := i.shelf.List(i.t.Context(), &list, namespace); err != nil {
		i.t.Fatal(err)
	}
	own := propagation.BundleKey(importing, 0).Name
	slices.SortFunc(list.Items, func(a, b workv1alpha1.Work) int { return strings.Compare(a.Name, b.Name) })
	if at := slices.IndexFunc(list.Items, func(w workv1alpha1.Work) bool { return w.Name == own }); at > 0 {
		first := list.Items[at]
		copy(list.Items[1:], list.Items[:at])
		list.Items[0] = first
	}
	return list.Items
}

// object is what a Work carries.
func (i *importer) object(work *workv1alpha1.Work) *v1alpha1.Bundle {
	i.t.Helper()
	b := new(v1alpha1.Bundle)
	if err := json.Unmarshal(work.Spec.Workload.Manifests[0].Raw, b); err != nil {
		i.t.Fatal(err)
	}
	return b
}

// deliver has Karmada write to the member what a Work carries, or delete what none does any more.
func (i *importer) deliver(work *workv1alpha1.Work) {
	i.bundles.put(i.object(work))
	i.look()
}

// look has the agent bring its imports in line, as far as it reads halves.
func (i *importer) look() {
	i.t.Helper()
	i.steps++
	keys := maps.Clone(i.imported)
	for _, o := range i.bundles.objects[reflect.TypeFor[*v1alpha1.Bundle]()] {
		for _, imported := range o.(*v1alpha1.Bundle).Spec.Imports {
			keys[types.NamespacedName{Namespace: imported.Namespace, Name: imported.Name}] = imported
		}
	}
	for key := range keys {
		found, known := i.find(key)
		switch {
		case !known:
		case i.absent:
			delete(i.imported, key)
			delete(i.exported, key)
		case found == nil:
			delete(i.imported, key)
			if i.exported[key] {
				i.t.Errorf("step %d: %s is not imported any more", i.steps, key)
				delete(i.exported, key)
			}
		case !found.Withheld:
			i.imported[key] = *found
			if len(found.Clusters) > 0 { // else the name alone is kept
				i.exported[key] = true
			}
		}
	}
	if i.seen != nil {
		i.seen()
	}
}

// find returns what the member's agent finds of an import, nil if that is nothing, and whether it knows.
func (i *importer) find(key types.NamespacedName) (found *v1alpha1.Import, known bool) {
	i.t.Helper()
	if i.deltas {
		found, known, err := v1alpha1.CurrentImport(key.Namespace, key.Name, i.shards,
			func(name string) (*v1alpha1.Bundle, error) {
				b := new(v1alpha1.Bundle)
				err := i.bundles.Get(i.t.Context(), client.ObjectKey{Name: name}, b)
				if err != nil {
					return nil, client.IgnoreNotFound(err)
				}
				return b, nil
			})
		if err != nil {
			i.t.Fatal(err)
		}
		return found, known
	}
	b, err := index.BundleOfImport(i.t.Context(), i.bundles, i.shards, key)
	if !i.reads {
		b, err = index.Bundle(i.t.Context(), i.bundles, i.shards, key)
	}
	if err != nil {
		i.t.Fatal(err)
	}
	if b == nil {
		return nil, false
	}
	return b.Spec.Import(key.Namespace, key.Name), true
}

// reply has Karmada write to a Work what the member's agent says.
func (i *importer) reply(work *workv1alpha1.Work) {
	b := new(v1alpha1.Bundle)
	if i.bundles.Get(i.t.Context(), client.ObjectKey{Name: i.object(work).Name}, b) != nil {
		return
	}
	work.Status.ManifestStatuses = []workv1alpha1.ManifestStatus{{Status: &runtime.RawExtension{Raw: i.said(b)}}}
	i.shelf.put(work)
}

// said is what the member's agent says of a Bundle.
func (i *importer) said(b *v1alpha1.Bundle) []byte {
	i.t.Helper()
	answersThere := i.bundles.Get(i.t.Context(), client.ObjectKey{Name: v1alpha1.AnswersName}, new(v1alpha1.Bundle)) == nil
	switch {
	case !i.apart && b.Name == v1alpha1.AnswersName: // of which it knows nothing
		return nil
	case i.apart && answersThere && v1alpha1.IsDelta(b.Name) && b.Spec.AnswerApart:
		return []byte(`{}`)
	}
	problems := i.problems[b.Name]
	for _, imported := range b.Spec.Imports {
		var reason string
		switch {
		case i.absent:
			reason = v1alpha1.ReasonNamespaceMissing
		case imported.Withheld:
			reason = v1alpha1.ReasonImportWithheld
		default:
			continue
		}
		problems = append(problems, v1alpha1.ImportProblem{Namespace: imported.Namespace, Names: []string{imported.Name},
			Reason: reason})
	}
	status := v1alpha1.BundleStatus{ObservedRevision: b.Spec.Revision + i.lies, Imports: problems}
	if b.Name == v1alpha1.AnswersName {
		status.Deltas = i.answers()
	}
	data, err := json.Marshal(status)
	if err != nil {
		i.t.Fatal(err)
	}
	return data
}

// answers are the revisions of the deltas that the member has and answers apart.
func (i *importer) answers() (out []int64) {
	for n := range int32(v1alpha1.MaxDeltas) {
		b := new(v1alpha1.Bundle)
		if i.bundles.Get(i.t.Context(), client.ObjectKey{Name: v1alpha1.DeltaName(n)}, b) != nil || !b.Spec.AnswerApart {
			continue
		}
		for len(out) < int(n) {
			out = append(out, 0)
		}
		out = append(out, b.Spec.Revision+i.lies)
	}
	return out
}

// behind are the things that Karmada and the member have still to do.
func (i *importer) behind() (todo []func()) {
	carried := map[string]bool{}
	for _, work := range i.works() {
		b := i.object(&work)
		carried[b.Name] = true
		have := new(v1alpha1.Bundle)
		if i.bundles.Get(i.t.Context(), client.ObjectKey{Name: b.Name}, have) != nil ||
			!reflect.DeepEqual(have.Spec, b.Spec) {
			todo = append(todo, func() { i.deliver(&work) })
			if have.Name == "" {
				continue
			}
		}
		if string(propagation.Status(&work)) != string(i.said(have)) {
			todo = append(todo, func() { i.reply(&work) })
		}
	}
	for key, o := range i.bundles.objects[reflect.TypeFor[*v1alpha1.Bundle]()] {
		if !carried[key.Name] && !i.left[key.Name] {
			todo = append(todo, func() {
				_ = i.bundles.Delete(i.t.Context(), o)
				i.look()
			})
		}
	}
	return todo
}

// rest goes on until nothing is left to do. Of what the controller would write, and of what is under way, one thing is
// done at a time, in any order, and a new controller goes on after each write with a probability.
func (i *importer) rest(crash float64) {
	i.t.Helper()
	for round := 0; ; round++ {
		if round > 5_000 {
			i.t.Fatal("the controller does not come to rest")
		}
		writes := i.wanted()
		todo := i.behind()
		if len(writes)+len(todo) == 0 {
			return
		}
		if i.rnd.IntN(2) == 0 && len(todo) > 0 {
			todo[i.rnd.IntN(len(todo))]()
			continue
		}
		i.rnd.Shuffle(len(writes), func(a, b int) { writes[a], writes[b] = writes[b], writes[a] })
		for _, write := range writes {
			if err := write.do(i.t.Context()); err != nil && !apierrors.IsForbidden(err) { // of which a test may have some
				i.t.Fatal(err)
			}
			if i.rnd.Float64() < crash {
				i.restart()
				break
			}
		}
		for n := range 2 {
			for shard := range i.shards {
				i.answer(n, shard)
			}
		}
	}
}

// wanted are the writes that the controller would do.
func (i *importer) wanted() []write {
	i.t.Helper()
	var out []write
	for round := 0; round < 3 && len(out) == 0; round++ { // one wakes the other
		out = append(i.planned(), i.delivered()...)
	}
	return out
}

// planned are those of the shards.
func (i *importer) planned() (out []write) {
	i.t.Helper()
	for shard := range i.shards {
		p, err := i.plan(i.t.Context(), Shard{"blue", shard})
		if err != nil {
			i.t.Fatal(err)
		}
		out = append(out, p.writes...)
	}
	return out
}

// delivered are those of the deltas.
func (i *importer) delivered() []write {
	i.t.Helper()
	most := parallelWrites
	if i.rnd.IntN(3) == 0 {
		most = 1 // there is no place for more
	}
	writes, _, err := i.delivery(i.t.Context(), importing, most)
	if err != nil {
		i.t.Fatal(err)
	}
	return writes
}

// halves checks, at rest, that all is as it was decided and nothing is left over, and returns what is listed.
func (i *importer) halves(what string, services int) []string {
	i.t.Helper()
	if len(i.imported) != services {
		i.t.Errorf("%s: %d services are imported, want %d", what, len(i.imported), services)
	}
	for _, wanted := range i.last(Shard{"blue", 0}).d.Bundles[importing].Imports {
		key := types.NamespacedName{Namespace: wanted.Namespace, Name: wanted.Name}
		got, _ := propagation.Encode(i.imported[key])
		want, _ := propagation.Encode(wanted)
		if string(got) != string(want) {
			i.t.Errorf("%s: %s is imported as\n%s, want\n%s", what, key, got, want)
		}
	}
	works := i.works()
	own := i.object(&works[0])
	if own.Name != v1alpha1.BundleName(0) || len(works) != 1+len(own.Spec.Halves) {
		i.t.Errorf("%s: %d Works beside %s, that lists %v", what, len(works)-1, own.Name, own.Spec.Halves)
	}
	for w := range works {
		size := len(works[w].Spec.Workload.Manifests[0].Raw)
		if b := i.object(&works[w]); size > maxHalf && len(b.Spec.Imports) > 1 && i.tells && i.lies == 0 {
			i.t.Errorf("%s: the Work of %s has %d bytes", what, b.Name, size)
		}
	}
	i.now = i.now.Add(recordPace)
	i.rest(0)
	i.restart()
	if p, err := i.plan(i.t.Context(), Shard{"blue", 0}); err != nil || len(p.writes) > 0 {
		i.t.Errorf("%s: a controller that starts writes %d Works, %v", what, len(p.writes), err)
	}
	return own.Spec.Halves
}
