// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
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
	shard      int32
	half       string
	generation int64
}

func newGuarded(t *testing.T) *guarded {
	size := Size{Clusters: 4, Services: 1, Exporters: 2, Backends: 1, Namespaces: 1}
	f := &Fleet{Size: size, Tally: newTally(), members: map[string]*member{}, away: map[int]bool{}}
	for n := range size.Clusters {
		f.members[size.cluster(n)] = newMember(size, n)
	}
	f.guard = newGuard(f)
	namespace, name := size.service(0)
	return &guarded{Fleet: f, t: t, shard: v1alpha1.Shard(namespace, name, shards),
		half: v1alpha1.HalfOf([]string{"0", "1"}, namespace, name)}
}

// work of a Bundle with these imports.
func (g *guarded) work(half string, spec v1alpha1.BundleSpec) *workv1alpha1.Work {
	g.t.Helper()
	raw, err := propagation.Encode(map[string]any{"kind": propagation.KindBundle, "spec": spec})
	if err != nil {
		g.t.Fatal(err)
	}
	g.generation++
	key := propagation.HalfKey(g.Size.cluster(1), g.shard, half)
	work := &workv1alpha1.Work{}
	work.Namespace, work.Name, work.Generation = key.Namespace, key.Name, g.generation
	work.Labels = map[string]string{propagation.LabelKind: propagation.KindBundle,
		propagation.LabelShard: fmt.Sprint(g.shard)}
	if half != "" {
		work.Labels[propagation.LabelHalf] = half
	}
	work.Spec.Workload.Manifests = []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}
	return work
}

// imported is the service as so many of its exporters have it.
func (g *guarded) imported(exporters ...int) []v1alpha1.Import {
	namespace, name := g.Size.service(0)
	out := v1alpha1.Import{Namespace: namespace, Name: name, Clusters: []v1alpha1.ImportCluster{}}
	for _, n := range exporters {
		out.Clusters = append(out.Clusters, v1alpha1.ImportCluster{Cluster: g.Size.cluster(n),
			Backends: g.Size.export(n, 0, []int{256}).Backends})
	}
	return []v1alpha1.Import{out}
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
		"by halves that leave it out": {func(g *guarded) {
			own(g, nil, map[string]string{"0": "1", "1": "0"}[g.half])
		}, [2]int{2, 1}},
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
