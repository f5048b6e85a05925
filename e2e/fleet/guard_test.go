// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// guarded is a fleet of four clusters, of which the first and the third export the one service, and what the second is
// told of it.
type guarded struct {
	*Fleet
	t          *testing.T
	service    int
	shard      int32
	half       string
	generation int64
}

func newGuarded(t *testing.T) *guarded { return newGuardedOf(t, 0) }

// newGuardedOf has one service, which is the one with this number, a multiple of four.
func newGuardedOf(t *testing.T, service int) *guarded {
	size := Size{Clusters: 4, Services: service + 1, Exporters: 2, Backends: 1, Namespaces: 1}
	f := &Fleet{Size: size, Tally: newTally(), members: map[string]*member{}, away: map[int]bool{}}
	for n := range size.Clusters {
		m := newMember(size, n)
		if m.pods, m.next = map[int][]int{}, 256; size.exports(n, service) {
			m.pods[service] = []int{m.next}
		}
		f.members[size.cluster(n)] = m
	}
	f.guard = newGuard(f)
	namespace, name := size.service(service)
	return &guarded{Fleet: f, t: t, service: service, shard: v1alpha1.Shard(namespace, name, shards),
		half: v1alpha1.HalfOf([]string{"0", "1"}, namespace, name)}
}

// elsewhere is a service that is not in the shard whose Bundle says how many deltas there are.
func elsewhere() int {
	for i := 0; ; i += 4 {
		if namespace, name := (Size{Namespaces: 1}).service(i); v1alpha1.Shard(namespace, name, shards) != 0 {
			return i
		}
	}
}

// work of the Bundle of the service's shard, or of a half of it.
func (g *guarded) work(half string, spec v1alpha1.BundleSpec) *workv1alpha1.Work {
	g.t.Helper()
	return g.workOf(place{number: g.shard, half: half}, spec)
}

// workOf a Bundle of the second cluster.
func (g *guarded) workOf(at place, spec v1alpha1.BundleSpec) *workv1alpha1.Work {
	g.t.Helper()
	raw, err := propagation.Encode(map[string]any{"kind": propagation.KindBundle, "spec": spec})
	if err != nil {
		g.t.Fatal(err)
	}
	g.generation++
	key := propagation.HalfKey(g.Size.cluster(1), at.number, at.half)
	labels := map[string]string{propagation.LabelKind: propagation.KindBundle}
	switch {
	case at.delta:
		key = propagation.DeltaKey(g.Size.cluster(1), at.number)
		labels[propagation.LabelDelta] = fmt.Sprint(at.number)
	case at.half != "":
		labels[propagation.LabelHalf] = at.half
		fallthrough
	default:
		labels[propagation.LabelShard] = fmt.Sprint(at.number)
	}
	work := &workv1alpha1.Work{}
	work.Namespace, work.Name, work.Generation, work.Labels = key.Namespace, key.Name, g.generation, labels
	work.Spec.Workload.Manifests = []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}
	return work
}

// imported is the service as so many of its exporters have it.
func (g *guarded) imported(exporters ...int) []v1alpha1.Import {
	namespace, name := g.Size.service(g.service)
	out := v1alpha1.Import{Namespace: namespace, Name: name, Clusters: []v1alpha1.ImportCluster{}}
	for _, n := range exporters {
		out.Clusters = append(out.Clusters, v1alpha1.ImportCluster{Cluster: g.Size.cluster(n),
			Backends: g.Size.export(n, g.service, []int{256}).Backends})
	}
	return []v1alpha1.Import{out}
}

// with is the service as both have it, the first with pods at these offsets.
func (g *guarded) with(offsets ...int) []v1alpha1.Import {
	out := g.imported(0, 2)
	out[0].Clusters[0].Backends = g.Size.export(0, g.service, offsets).Backends
	return out
}

// TestLostIsWhatItsExportersStillHave, by what importers are told and by the EndpointSlices of a site.
func TestLostIsWhatItsExportersStillHave(t *testing.T) {
	own := func(g *guarded, imports []v1alpha1.Import, halves ...string) {
		g.guard.saw(g.work("", v1alpha1.BundleSpec{Imports: imports, Halves: halves}))
	}
	for name, c := range map[string]struct {
		then func(g *guarded)
		want [2]int // exporters, imports
	}{
		"nothing":      {func(g *guarded) { own(g, g.imported(0, 2)) }, [2]int{}},
		"one exporter": {func(g *guarded) { own(g, g.imported(2)) }, [2]int{1, 0}},
		"both":         {func(g *guarded) { own(g, g.imported()) }, [2]int{2, 1}},
		"the import":   {func(g *guarded) { own(g, nil) }, [2]int{2, 1}},
		"one after the other": {func(g *guarded) {
			own(g, g.imported(2))
			own(g, nil)
		}, [2]int{2, 1}},
		"pods that are gone": {func(g *guarded) {
			g.members[g.Size.cluster(0)].withdrawPods(true)
			own(g, g.imported(2))
		}, [2]int{}},
		"the other's pods, where one's are gone": {func(g *guarded) {
			g.members[g.Size.cluster(0)].withdrawPods(true)
			own(g, nil)
		}, [2]int{1, 1}},
		"an exporter that leaves": {func(g *guarded) {
			g.away[0] = true
			own(g, g.imported(2))
		}, [2]int{}},
		"withheld": {func(g *guarded) {
			imports := g.imported()
			imports[0].Withheld = true
			own(g, imports)
		}, [2]int{}},
		"into a half": {func(g *guarded) {
			g.guard.saw(g.work(g.half, v1alpha1.BundleSpec{Imports: g.imported(0, 2)}))
			own(g, nil, "0", "1")
		}, [2]int{}},
		"into a half that is not there": {func(g *guarded) { own(g, nil, "0", "1") }, [2]int{}},
		"into a half that has nothing": {func(g *guarded) {
			g.guard.saw(g.work(g.half, v1alpha1.BundleSpec{}))
			own(g, nil, "0", "1")
		}, [2]int{2, 1}},
		"in a half, later": {func(g *guarded) {
			g.guard.saw(g.work(g.half, v1alpha1.BundleSpec{Imports: g.imported(0, 2)}))
			own(g, nil, "0", "1")
			g.guard.saw(g.work(g.half, v1alpha1.BundleSpec{Imports: g.imported(0)}))
		}, [2]int{1, 0}},
		"by halves that leave it out, where agents let it be": {func(g *guarded) {
			own(g, nil, map[string]string{"0": "1", "1": "0"}[g.half])
		}, [2]int{}},
		"with the Work, which is made anew": {func(g *guarded) {
			g.guard.forget(g.work("", v1alpha1.BundleSpec{}))
			own(g, nil)
		}, [2]int{}},
		"an EndpointSlice of two": {func(g *guarded) {
			s := &site{name: g.Size.cluster(1)}
			g.guard.sliced(s, 0, "a", 1)
			g.guard.sliced(s, 0, "b", 1)
			g.guard.sliced(s, 0, "a", 0)
		}, [2]int{}},
		"both EndpointSlices": {func(g *guarded) {
			s := &site{name: g.Size.cluster(1)}
			g.guard.sliced(s, 0, "a", 1)
			g.guard.sliced(s, 0, "b", 1)
			g.guard.sliced(s, 0, "a", 0)
			g.guard.sliced(s, 0, "b", 0)
		}, [2]int{2, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t)
			own(g, g.imported(0, 2))
			c.then(g)
			lost := g.Lost()
			if got := [2]int{lost.Exporters, lost.Imports}; got != c.want {
				t.Errorf("lost %+v, want %d exporters and %d imports", lost, c.want[0], c.want[1])
			}
			if again := g.Lost(); again.Exporters > 0 || again.Imports > 0 {
				t.Errorf("lost once more: %+v", again)
			}
			if err := g.Tally.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLostByDeltas is about a first cluster whose pod at 256 was replaced by one at 257: deltas say so first.
func TestLostByDeltas(t *testing.T) {
	base := func(g *guarded, sequence int64, imports []v1alpha1.Import, halves ...string) {
		g.guard.saw(g.work("", v1alpha1.BundleSpec{Imports: imports, Sequence: sequence, Halves: halves}))
	}
	half := func(g *guarded, sequence int64, imports []v1alpha1.Import) {
		g.guard.saw(g.work(g.half, v1alpha1.BundleSpec{Imports: imports, Sequence: sequence}))
	}
	delta := func(g *guarded, n int32, sequence int64, imports []v1alpha1.Import) {
		g.guard.saw(g.workOf(place{number: n, delta: true}, v1alpha1.BundleSpec{Imports: imports, Sequence: sequence}))
	}
	list := func(g *guarded, deltas int32) { g.guard.saw(g.workOf(place{}, v1alpha1.BundleSpec{Deltas: deltas})) }
	// told of the new pod.
	told := func(g *guarded) {
		delta(g, 0, 6, g.with(257))
		list(g, 1)
	}
	for name, c := range map[string]struct {
		then func(g *guarded)
		want [3]int // exporters, imports, stale
	}{
		"newer": {told, [3]int{}},
		"older": {func(g *guarded) {
			base(g, 7, g.with(257))
			told(g)
			delta(g, 0, 6, g.with(256))
		}, [3]int{}},
		"not newer": {func(g *guarded) {
			told(g)
			delta(g, 0, 5, g.with(256, 257))
		}, [3]int{0, 0, 1}},
		"one exporter": {func(g *guarded) {
			told(g)
			delta(g, 0, 8, g.imported(2))
		}, [3]int{1, 0, 0}},
		"one exporter, and a pod of the other": {func(g *guarded) {
			told(g)
			imports := g.with(256)
			imports[0].Clusters = imports[0].Clusters[:1]
			delta(g, 0, 8, imports)
		}, [3]int{1, 0, 1}},
		"no more in the delta": {func(g *guarded) {
			told(g)
			delta(g, 0, 8, nil)
		}, [3]int{0, 0, 1}},
		"no more in the delta, but in the base": {func(g *guarded) {
			told(g)
			base(g, 7, g.with(257))
			delta(g, 0, 8, nil)
			list(g, 0)
		}, [3]int{}},
		"a base that is newer and has it as it was": {func(g *guarded) {
			told(g)
			base(g, 7, g.with(256))
		}, [3]int{0, 0, 1}},
		"of a pod that is gone": {func(g *guarded) {
			told(g)
			g.replace()
			base(g, 7, g.with(256))
		}, [3]int{}},
		"a base that is newer and has nothing": {func(g *guarded) {
			told(g)
			base(g, 7, nil)
		}, [3]int{2, 1, 0}},
		"a base that is older and has nothing": {func(g *guarded) {
			told(g)
			base(g, 4, nil)
		}, [3]int{2, 1, 0}},
		"a base of a broker that knows no deltas": {func(g *guarded) {
			told(g)
			base(g, 0, g.with(256))
		}, [3]int{0, 0, 1}},
		"a base that withholds": {func(g *guarded) {
			told(g)
			imports := g.imported()
			imports[0].Withheld = true
			base(g, 7, imports)
		}, [3]int{}},
		"not listed": {func(g *guarded) {
			list(g, 0)
			delta(g, 0, 6, g.imported())
		}, [3]int{}},
		"listed": {func(g *guarded) {
			list(g, 0)
			delta(g, 0, 6, g.imported())
			list(g, 1)
		}, [3]int{2, 1, 0}},
		"listed no more": {func(g *guarded) {
			told(g)
			list(g, 0)
		}, [3]int{0, 0, 1}},
		"listed and missing": {func(g *guarded) {
			list(g, 2)
			delta(g, 0, 6, g.imported())
			base(g, 5, g.imported())
		}, [3]int{}},
		"listed and missing until then": {func(g *guarded) {
			list(g, 2)
			delta(g, 0, 6, g.imported())
			delta(g, 1, 7, nil)
		}, [3]int{2, 1, 0}},
		"listed and deleted": {func(g *guarded) {
			told(g)
			g.guard.forget(g.workOf(place{delta: true}, v1alpha1.BundleSpec{}))
			base(g, 7, g.with(256))
		}, [3]int{}},
		"listed and deleted, then no more listed": {func(g *guarded) {
			told(g)
			g.guard.forget(g.workOf(place{delta: true}, v1alpha1.BundleSpec{}))
			list(g, 0)
		}, [3]int{0, 0, 1}},
		"no list": {func(g *guarded) {
			g.guard.forget(g.workOf(place{}, v1alpha1.BundleSpec{}))
			delta(g, 0, 6, g.imported())
		}, [3]int{}},
		"the newest of two": {func(g *guarded) {
			told(g)
			delta(g, 1, 5, g.with(256))
			list(g, 2)
		}, [3]int{}},
		"not the newest of two": {func(g *guarded) {
			told(g)
			list(g, 2)
			delta(g, 1, 7, g.with(256))
		}, [3]int{0, 0, 1}},
		"into a half that is older": {func(g *guarded) {
			told(g)
			half(g, 4, g.with(256))
			base(g, 4, nil, "0", "1")
		}, [3]int{}},
		"into a half that is newer and has it as it was": {func(g *guarded) {
			told(g)
			half(g, 7, g.with(256))
			base(g, 4, nil, "0", "1")
		}, [3]int{0, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuardedOf(t, elsewhere())
			list(g, 0)
			base(g, 5, g.with(256))
			g.replace()
			c.then(g)
			lost := g.Lost()
			if got := [3]int{lost.Exporters, lost.Imports, lost.Stale}; got != c.want {
				t.Errorf("lost %+v, want %d exporters, %d imports, %d stale", lost, c.want[0], c.want[1], c.want[2])
			}
			if err := g.Tally.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// replace the one pod of the first cluster.
func (g *guarded) replace() {
	g.t.Helper()
	if _, err := g.members[g.Size.cluster(0)].replacePod(g.service); err != nil {
		g.t.Fatal(err)
	}
}

// TestTheGuardGoesByTheRule: what it takes to be in force is what agents do, whatever Bundles there are.
func TestTheGuardGoesByTheRule(t *testing.T) {
	for _, service := range []int{0, elsewhere()} {
		t.Run(fmt.Sprint(service), func(t *testing.T) { goesByTheRule(t, newGuardedOf(t, service)) })
	}
}

func goesByTheRule(t *testing.T, g *guarded) {
	bundles := map[string]*v1alpha1.Bundle{}
	random := rand.New(rand.NewPCG(1, 2))
	namespace, name := g.Size.service(g.service)
	known, newer := 0, 0
	for range 5000 {
		spec := v1alpha1.BundleSpec{Sequence: random.Int64N(6), Deltas: random.Int32N(4)}
		if random.IntN(4) > 0 {
			spec.Imports = g.with(256 + random.IntN(1<<15))
			spec.Imports[0].Withheld = random.IntN(8) == 0
		}
		at := []place{{}, {number: g.shard}, {number: g.shard, half: "0"}, {number: g.shard, half: "1"},
			{delta: true}, {number: 1, delta: true}, {number: 2, delta: true}}[random.IntN(7)]
		b := &v1alpha1.Bundle{}
		switch b.Name = v1alpha1.BundleName(at.number); {
		case at.delta:
			b.Name = v1alpha1.DeltaName(at.number)
		case at.half != "":
			b.Name = v1alpha1.HalfName(b.Name, at.half)
		case at.number == g.shard && random.IntN(2) == 0:
			spec.Halves = [][]string{{"0"}, {"1"}, {"0", "1"}}[random.IntN(3)]
		}
		if b.Spec = spec; random.IntN(6) == 0 {
			delete(bundles, b.Name)
			g.guard.forget(g.workOf(at, spec))
		} else {
			bundles[b.Name] = b
			g.guard.saw(g.workOf(at, spec))
		}
		want, sure, err := v1alpha1.CurrentImport(namespace, name, shards, func(name string) (*v1alpha1.Bundle, error) {
			return bundles[name], nil
		})
		if err != nil {
			t.Fatal(err)
		}
		got, ok := g.guard.current(g.Size.cluster(1), g.service)
		if want == nil {
			want = &v1alpha1.Import{}
		}
		if expected := g.guard.read(g.service, want); ok != sure || !reflect.DeepEqual(got, expected) {
			t.Fatalf("%+v, known %t, want %+v, known %t, of %+v", got, ok, expected, sure, bundles)
		}
		if base := bundles[v1alpha1.BundleName(g.shard)]; sure && len(want.Clusters) > 0 {
			known++
			if len(base.Spec.Halves) == 0 && !reflect.DeepEqual(base.Spec.Imports[0], *want) {
				newer++
			}
		}
	}
	if known < 100 || newer < 100 {
		t.Errorf("expected many imports that are known, and many that are newer in deltas, found %d and %d", known, newer)
	}
}
