// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// storm is an importer in whose churn all else happens, too. A service that a cluster has withdrawn is of a version,
// too, which those that see nothing of it are told.
type storm struct {
	*churning
	services int
	exports  [2]map[int]v1alpha1.Export // of each cluster, by service
	gone     map[[2]int][]int           // the versions that are withdrawals
	seen     map[[2]int]int             // the highest version that the importer was told, by cluster and service
	large    map[[2]int]int
	brokers  bool // that there are some of before
	lenient  bool // about what goes back
	log      []string
	shared   readOnly
}

func newStorm(t *testing.T, seed uint64, services int) *storm {
	c := newChurningIn(t, seed, services, []int32{2, 1, 4}[seed%3])
	s := &storm{churning: c, services: services, gone: map[[2]int][]int{},
		seen: map[[2]int]int{}, large: map[[2]int]int{}, shared: readOnly{}}
	for n := range 2 {
		s.exports[n] = map[int]v1alpha1.Export{}
		for k, e := range s.members[n].Exports {
			s.exports[n][k] = e
		}
	}
	clear(s.exported)
	s.importer.seen = func() { clear(s.exported); s.observe() }
	s.observe()
	return s
}

func (s *storm) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%d: ", s.steps)+fmt.Sprintf(format, args...))
}

func (s *storm) key(service int) types.NamespacedName {
	return types.NamespacedName{Namespace: "sample", Name: fmt.Sprintf("web-%d", service)}
}

func (s *storm) observe() {
	s.t.Helper()
	for service := range s.services {
		now := s.versions(s.key(service))
		for n, v := range now {
			at := [2]int{n, service}
			if v == 0 {
				if i := slices.IndexFunc(s.gone[at], func(w int) bool { return w > s.seen[at] }); i >= 0 &&
					len(s.imported[s.key(service)].Clusters) > 0 {
					s.seen[at] = s.gone[at][i]
				}
				continue
			}
			if v < s.seen[at] && !s.lenient && !s.unlisted() {
				tail := s.log[max(0, len(s.log)-12):]
				s.t.Fatalf("step %d: %s goes back from version %d to %d of cluster %d (now %d):\n%s%q", s.steps, s.key(service),
					s.seen[at], v, n+1, s.version[at], s.copies(s.key(service)), tail)
			}
			s.seen[at] = v
		}
	}
}

// unlisted says that a broker of before does, or has taken all deltas out of force.
func (s *storm) unlisted() bool {
	own := new(v1alpha1.Bundle)
	_ = s.bundles.Get(s.t.Context(), types.NamespacedName{Name: v1alpha1.BundleName(0)}, own)
	return s.brokers && own.Spec.Deltas == 0
}

// say has a cluster's exports be what they are.
func (s *storm) say(n int) {
	s.members[n].Exports = nil
	for _, k := range slices.Sorted(maps.Keys(s.exports[n])) {
		s.members[n].Exports = append(s.members[n].Exports, s.exports[n][k])
	}
	for shard := range s.shards {
		s.answerIf(n, shard)
	}
}

func (s *storm) answerIf(n int, shard int32) {
	var work workv1alpha1.Work
	if s.shelf.Get(s.t.Context(), propagation.BundleKey(s.members[n].Cluster, shard), &work) == nil {
		s.answer(n, shard)
	}
}

func (s *storm) change(n, service int) {
	at := [2]int{n, service}
	s.version[at]++
	v := s.version[at]
	e, ok := s.exports[n][service]
	if !ok {
		e = web(1 + n)
		e.Name = fmt.Sprintf("web-%d", service)
	}
	port := v1alpha1.BackendPort{Name: "http", Protocol: "TCP", Port: 8080}
	e.Backends = []v1alpha1.Backends{pods(1+n, max(1, s.large[at]), port)}
	for i := range e.Backends[0].Addresses {
		e.Backends[0].Addresses[i].IP = fmt.Sprintf("10.%d.%d.%d", 1+n, (v+i)/250, 1+(v+i)%250)
	}
	s.exports[n][service] = e
}

func (s *storm) withdrawOne(n, service int) {
	if _, ok := s.exports[n][service]; !ok {
		return
	}
	at := [2]int{n, service}
	s.version[at]++
	s.gone[at] = append(s.gone[at], s.version[at])
	delete(s.exports[n], service)
}

func (s *storm) annotate(n, service int) {
	e, ok := s.exports[n][service]
	if !ok {
		return
	}
	e.Settings.Annotations = map[string]string{"example.com/v": strconv.Itoa(s.rnd.IntN(1000))}
	s.exports[n][service] = e
}

func (s *storm) pick() (int, int) {
	service := s.rnd.IntN(s.services)
	if s.rnd.IntN(2) == 0 {
		service = s.rnd.IntN(max(s.services/8, 1))
	}
	return s.rnd.IntN(2), service
}

// whirl has things happen, of what kinds is given, in any order.
func (s *storm) whirl(rounds int, crash float64, kinds ...func()) {
	s.t.Helper()
	for range rounds {
		for range 1 + s.rnd.IntN(4) {
			n, service := s.pick()
			if _, ok := s.exports[n][service]; ok {
				s.change(n, service)
			}
		}
		if len(kinds) > 0 && s.rnd.IntN(3) == 0 {
			kinds[s.rnd.IntN(len(kinds))]()
		}
		s.say(0)
		s.say(1)
		if s.rnd.IntN(3) == 0 {
			s.now = s.now.Add(time.Duration(s.rnd.IntN(1500)) * time.Millisecond)
		}
		s.writeSome(crash)
		for range s.rnd.IntN(8) {
			if todo := s.behind(); len(todo) > 0 {
				todo[s.rnd.IntN(len(todo))]()
			}
		}
	}
}

func (s *storm) writeSome(crash float64) {
	s.t.Helper()
	writes := s.wanted()
	s.shared.note(s.t, s.Reconciler, s.shards)
	s.rnd.Shuffle(len(writes), func(a, b int) { writes[a], writes[b] = writes[b], writes[a] })
	for _, w := range writes[:s.rnd.IntN(len(writes)+1)] {
		before := s.works()[0]
		if err := w.do(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
		s.asBefore(&before)
		if s.rnd.Float64() < crash {
			s.note("crash")
			s.restart()
			break
		}
	}
}

// asBefore takes back what a broker of before would not have written: it knows of no deltas.
func (s *storm) asBefore(before *workv1alpha1.Work) {
	after := s.works()[0]
	was, is := s.object(before).Spec, s.object(&after).Spec
	if !s.early || was.Shard != is.Shard || was.Deltas == is.Deltas {
		return
	}
	was.Revision, was.Deltas, was.Sequence = is.Revision, is.Deltas, is.Sequence
	if reflect.DeepEqual(was, is) {
		after.Spec = before.Spec
		s.shelf.put(&after)
	}
}

// calm comes to rest, and checks what the importer has then.
func (s *storm) calm(what string, crash float64) {
	s.t.Helper()
	s.say(0)
	s.say(1)
	s.rest(crash)
	for range 3 {
		s.now = s.now.Add(25 * time.Second)
		s.rest(0)
	}
	s.shared.check(s.t)
	wanted := map[types.NamespacedName]v1alpha1.Import{}
	for shard := range s.shards {
		for _, i := range s.last(Shard{"blue", shard}).d.Bundles[importing].Imports {
			wanted[types.NamespacedName{Namespace: i.Namespace, Name: i.Name}] = *i
		}
	}
	for key, want := range wanted {
		if want.Withheld {
			continue
		}
		got, _ := propagation.Encode(s.imported[key])
		w, _ := propagation.Encode(want)
		if string(got) != string(w) {
			s.t.Fatalf("%s: %s is imported as\n%s, want\n%s\n%s\n%q", what, key, got, w, s.copies(key),
				s.log[max(0, len(s.log)-12):])
		}
	}
	for key := range s.imported {
		if _, ok := wanted[key]; !ok {
			s.t.Fatalf("%s: %s is imported", what, key)
		}
	}
	s.restart()
	if writes := s.wanted(); len(writes) > 0 {
		s.t.Errorf("%s: a controller that starts writes %d Works", what, len(writes))
	}
	before := s.generations()
	for range 40 {
		s.now = s.now.Add(15 * time.Second)
		s.rest(0)
	}
	// Each Work may be called once.
	if n := s.generations() - before; n > 2*int64(s.shards) {
		s.t.Errorf("%s: %d writes at rest", what, n)
	}
	for _, w := range s.works() {
		if size := len(w.Spec.Workload.Manifests[0].Raw); size > 64<<10 {
			s.t.Errorf("%s: %s has %d bytes", what, s.object(&w).Name, size)
		}
	}
}

// seeds are one, or those that the environment says: SEEDS=0-30.
func seeds() (from, to uint64) {
	from, to = 1, 2
	if v := os.Getenv("SEEDS"); v != "" {
		_, _ = fmt.Sscanf(v, "%d-%d", &from, &to)
	}
	return from, to
}

func storms(t *testing.T, services int, f func(s *storm, seed uint64, crash float64)) {
	from, to := seeds()
	for seed := from; seed < to; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := newStorm(t, seed, services)
			f(s, seed, []float64{0, 0.03, 0.15}[seed%3])
		})
	}
}

// ofServices are what happens to services.
func (s *storm) ofServices() []func() {
	return []func(){
		func() {
			n, k := s.pick()
			s.note("withdraw %d/%d", n, k)
			s.withdrawOne(n, k)
		},
		func() {
			n, k := s.pick()
			s.note("export %d/%d", n, k)
			s.change(n, k)
		},
		func() { s.annotate(s.pick()) },
		func() {
			n, k := s.pick()
			s.large[[2]int{n, k}] = s.rnd.IntN(100)
			s.note("large %d/%d %d", n, k, s.large[[2]int{n, k}])
			s.change(n, k)
		},
		func() { s.now = s.now.Add(retention); s.note("retention") },
		func() {
			s.note("withdraw many")
			for range 15 {
				s.withdrawOne(s.pick())
			}
		},
		func() {
			s.note("export many")
			for range 15 {
				s.change(s.pick())
			}
		},
	}
}

// terminated has the Works go that are being deleted.
func (s *storm) terminated() {
	for _, w := range s.works() {
		if !w.DeletionTimestamp.IsZero() {
			s.note("terminated %s", s.object(&w).Name)
			_ = s.shelf.Delete(s.t.Context(), &w)
		}
	}
}
