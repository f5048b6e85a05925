// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// TestHalvesComeAndGo: while services come and go, Works arrive in any order and controllers start in between, every
// service stays imported, and there is nothing left in the end but what is needed.
func TestHalvesComeAndGo(t *testing.T) {
	for seed, crash := range []float64{0, 0.2, 1} {
		t.Run(fmt.Sprintf("seed=%d,crash=%.1f", seed, crash), func(t *testing.T) {
			t.Parallel()
			i := newImporter(t, uint64(seed), 20)
			i.rest(crash)
			if halves := i.halves("few services", 20); halves != nil {
				t.Errorf("few services are in %v", halves)
			}
			i.export(60)
			i.rest(crash)
			two := i.halves("more services", 60)
			if len(two) < 2 || len(two) > 4 {
				t.Errorf("more services are in %v", two)
			}
			for round := range 4 {
				i.export(60 + 20*round)
				i.replacePod(0, round)
				i.answer(0, 0)
				i.rest(crash)
			}
			many := i.halves("many services", 120)
			if len(many) <= len(two) {
				t.Errorf("many services are in %v", many)
			}
			i.withdraw(12, crash)
			if less := i.halves("less services", 12); len(less) == 0 || len(less) >= len(many) {
				t.Errorf("less services are in %v", less)
			}
			i.withdraw(3, crash)
			if halves := i.halves("next to none", 3); halves != nil {
				t.Errorf("next to no services are in %v", halves)
			}
		})
	}
}

// TestOneChangeIsOneHalf: an endpoint costs an importer the one half that its service is in, which is small.
func TestOneChangeIsOneHalf(t *testing.T) {
	i := newImporter(t, 1, 150)
	i.rest(0)
	i.halves("many services", 150)
	i.rest(0)
	i.replacePod(0, 1)
	i.answer(0, 0)
	p, err := i.plan(t.Context(), Shard{"blue", 0})
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]string{}
	for _, work := range i.works() {
		before[work.Name] = string(work.Spec.Workload.Manifests[0].Raw)
	}
	if _, err := i.carryOut(t.Context(), p.writes); err != nil {
		t.Fatal(err)
	}
	changed := 0
	for _, work := range i.works() {
		if raw := string(work.Spec.Workload.Manifests[0].Raw); raw != before[work.Name] {
			changed++
			if len(raw) > maxHalf {
				t.Errorf("the Work has %d bytes", len(raw))
			}
		}
	}
	if changed != 1 {
		t.Errorf("%d Works of the importer are written, want one", changed)
	}
}

// TestProblemsInHalves: what an importer cannot use is told to the exporters, whichever half it is in, if that counts.
func TestProblemsInHalves(t *testing.T) {
	i := newImporter(t, 8, 100)
	i.rest(0)
	halves := i.halves("before", 100)
	problem := func(name string) []v1alpha1.ImportProblem {
		return []v1alpha1.ImportProblem{{Namespace: "sample", Names: []string{name}, Reason: "NameTaken", Message: "by me"}}
	}
	first := v1alpha1.HalfOf(halves, "sample", "web-1")
	second := halves[0]
	if second == first {
		second = halves[1]
	}
	own := v1alpha1.BundleName(0)
	i.problems = map[string][]v1alpha1.ImportProblem{v1alpha1.HalfName(own, first): problem("web-1"),
		v1alpha1.HalfName(own, second): problem("web-2"), v1alpha1.HalfName(own, "0000000"): problem("web-3")}
	i.rest(0)
	told := func() (out []string) {
		for _, c := range i.last(Shard{"blue", 0}).d.Bundles["c1"].ExportConditions {
			if strings.Contains(c.Message, `not usable in c3 (NameTaken: "by me")`) {
				out = append(out, c.Name)
			}
		}
		return out
	}
	if got := told(); !slices.Equal(got, []string{"web-1", "web-2"}) {
		t.Errorf("c1 is told of %v", got)
	}
	decided := i.last(Shard{"blue", 0}).d.Bundles
	i.decide(0)
	if reflect.ValueOf(decided).Pointer() != reflect.ValueOf(i.last(Shard{"blue", 0}).d.Bundles).Pointer() {
		t.Error("it is decided again though nothing is new")
	}
	i.problems = nil
	i.rest(0)
	if got := told(); got != nil {
		t.Errorf("c1 is still told of %v", got)
	}
}

// TestHalvesThatGoWrong: whatever happens to halves, nothing that is exported disappears.
func TestHalvesThatGoWrong(t *testing.T) {
	divided := func(t *testing.T, seed uint64) (*importer, []string) {
		i := newImporter(t, seed, 100)
		i.rest(0)
		halves := i.halves("before", 100)
		if len(halves) < 3 {
			t.Fatalf("it is divided into %v", halves)
		}
		return i, halves
	}
	t.Run("a half is deleted by hand", func(t *testing.T) {
		i, halves := divided(t, 1)
		for _, known := range []bool{true, false} {
			key := propagation.HalfKey(importing, 0, halves[1])
			work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			if err := i.shelf.Delete(t.Context(), work); err != nil {
				t.Fatal(err)
			}
			if !known {
				i.restart()
			}
			i.replacePod(0, 1)
			i.answer(0, 0)
			i.rest(0)
			if got := i.halves("after", 100); !slices.Equal(got, halves) {
				t.Errorf("it is divided into %v, was %v", got, halves)
			}
		}
	})
	t.Run("the shard's own is deleted by hand", func(t *testing.T) {
		i, halves := divided(t, 2)
		for _, known := range []bool{true, false} {
			key := propagation.BundleKey(importing, 0)
			if err := i.shelf.Delete(t.Context(), &workv1alpha1.Work{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}); err != nil {
				t.Fatal(err)
			}
			if !known {
				i.restart()
			}
			i.rest(0)
			if got := i.halves("after", 100); !slices.Equal(got, halves) {
				t.Errorf("it is divided into %v, was %v", got, halves)
			}
		}
	})
	t.Run("the agent is put back to one that reads none", func(t *testing.T) {
		// As upgrade --rollback does: the agent of the release before reads them, too, and only then says so no more.
		i, _ := divided(t, 3)
		i.tells = false
		i.tell()
		i.rest(0.2)
		if got := i.halves("after", 100); got != nil {
			t.Errorf("it is divided into %v", got)
		}
		i.reads = false
		i.look()
		i.replacePod(0, 1)
		i.answer(0, 0)
		i.rest(0.2)
		i.halves("with the older agent", 100)
	})
	t.Run("a member answers revisions that it was not sent", func(t *testing.T) {
		for _, lies := range []int64{-1, 1, 1000} {
			i := newImporter(t, 4, 10)
			i.rest(0)
			i.lies = lies
			i.export(100)
			i.rest(0)
			own := i.object(&i.works()[0])
			if len(own.Spec.Halves) > 0 || len(own.Spec.Imports) != 100 || len(i.imported) != 100 {
				t.Errorf("%+d: %v are listed, %d imports in one, %d are imported", lies, own.Spec.Halves, len(own.Spec.Imports),
					len(i.imported))
			}
		}
	})
	t.Run("the controller is put back, and comes back", func(t *testing.T) {
		// One that knows no halves fills the shard's own Bundle, and leaves the halves as they are.
		i, halves := divided(t, 5)
		key := propagation.BundleKey(importing, 0)
		var work workv1alpha1.Work
		if err := i.shelf.Get(t.Context(), key, &work); err != nil {
			t.Fatal(err)
		}
		whole := i.last(Shard{"blue", 0}).d.Bundles[importing]
		whole.Revision = i.object(&work).Spec.Revision + 1
		raw, err := propagation.Encode(whole)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := i.Works.ApplyBundle(t.Context(), importing, 0, "", propagation.Written{}, raw); err != nil {
			t.Fatal(err)
		}
		for todo := i.behind(); len(todo) > 0; todo = i.behind() {
			todo[0]()
		}
		i.restart()
		i.replacePod(0, 1)
		i.answer(0, 0)
		i.rest(0)
		if got := i.halves("after", 100); !slices.Equal(got, halves) {
			t.Errorf("it is divided into %v, was %v", got, halves)
		}
	})
	t.Run("a pull member lists what it likes", func(t *testing.T) {
		i, _ := divided(t, 6)
		for _, list := range [][]string{{"0"}, {"x"}, {"0", "1", "1"}, {""}, {"0", "1"}} {
			var work workv1alpha1.Work
			if err := i.shelf.Get(t.Context(), propagation.BundleKey(importing, 0), &work); err != nil {
				t.Fatal(err)
			}
			forged := i.object(&work).Spec
			forged.Halves = list
			raw, err := propagation.Encode(forged)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := i.Works.ApplyBundle(t.Context(), importing, 0, "", propagation.Written{}, raw); err != nil {
				t.Fatal(err)
			}
			i.rest(0)
			i.halves(fmt.Sprint(list), 100)
		}
	})
	t.Run("one service is larger than a half", func(t *testing.T) {
		i := newImporter(t, 7, 40)
		large := &i.members[0].Exports[3]
		large.Backends = []v1alpha1.Backends{pods(1, 500, large.Backends[0].Ports...)}
		i.answer(0, 0)
		i.rest(0.2)
		for _, half := range i.halves("with a large one", 40) {
			var work workv1alpha1.Work
			if err := i.shelf.Get(t.Context(), propagation.HalfKey(importing, 0, half), &work); err != nil {
				t.Fatal(err)
			}
			b := i.object(&work)
			if len(work.Spec.Workload.Manifests[0].Raw) > maxHalf && (len(b.Spec.Imports) != 1 ||
				b.Spec.Imports[0].Name != large.Name) {
				t.Errorf("%s has %d imports", b.Name, len(b.Spec.Imports))
			}
		}
	})
}
