// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math/bits"
	"strconv"
	"sync"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// guard looks at each version of each Work, and of each EndpointSlice of a site, for an import that has lost the pods
// of an exporter which still has them.
type guard struct {
	f *Fleet

	mu    sync.Mutex
	works map[client.ObjectKey]*content
	// has is what each importer was last told of each service, by cluster; 0 before it was told of any pod.
	has map[string][]exporting
	// sliced counts the endpoints of each service of a site, by the names of its EndpointSlices.
	slices map[string]map[int]map[string]int
	lost   Lost
}

// exporting has a bit for each exporter of a service, in the order of Size.exporters, that has pods.
type exporting uint64

// content is what matters of a Bundle.
type content struct {
	generation int64
	halves     []string
	imports    map[int]told
}

// told is what a Bundle says of an import.
type told struct {
	exporting
	withheld bool
}

// Lost counts what imports have lost that its exporters still had.
type Lost struct {
	// Exporters whose pods all went from an import, and Imports that had no pods left, in the Works of all members and in
	// the EndpointSlices of sites.
	Exporters, Imports int
	// First of them, for people.
	First []string
}

func newGuard(f *Fleet) *guard {
	g := &guard{f: f, works: map[client.ObjectKey]*content{}, has: map[string][]exporting{},
		slices: map[string]map[int]map[string]int{}}
	for n := range f.Size.Clusters {
		g.has[f.Size.cluster(n)] = make([]exporting, f.Size.Services)
	}
	return g
}

// Lost returns what was lost since the last call.
func (f *Fleet) Lost() Lost {
	f.guard.mu.Lock()
	defer f.guard.mu.Unlock()
	out := f.guard.lost
	f.guard.lost = Lost{}
	return out
}

// saw a Work.
func (g *guard) saw(work *workv1alpha1.Work) {
	if work.Labels[propagation.LabelKind] != propagation.KindBundle {
		return
	}
	key := client.ObjectKeyFromObject(work)
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.works[key]
	if before != nil && before.generation == work.Generation {
		return
	}
	var spec v1alpha1.BundleSpec
	if err := propagation.Spec(work, &spec); err != nil {
		g.f.Tally.fail(err)
		return
	}
	now := &content{generation: work.Generation, halves: spec.Halves, imports: map[int]told{}}
	for k := range spec.Imports {
		if i, ok := g.f.Size.index(spec.Imports[k].Namespace, spec.Imports[k].Name); ok {
			now.imports[i] = told{g.exporters(i, &spec.Imports[k]), spec.Imports[k].Withheld}
		}
	}
	g.works[key] = now
	g.compare(work, before, now)
}

// exporters of service i that have pods in an import.
func (g *guard) exporters(i int, in *v1alpha1.Import) (out exporting) {
	for k, n := range g.f.Size.exporters(i) {
		for c := range in.Clusters {
			if in.Clusters[c].Cluster == g.f.Size.cluster(n) && len(addressesOf(&in.Clusters[c])) > 0 {
				out |= 1 << k
			}
		}
	}
	return out
}

// forget a Work that is gone. A Bundle that is not there says nothing.
func (g *guard) forget(work *workv1alpha1.Work) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.works, client.ObjectKeyFromObject(work))
	cluster := propagation.ClusterOf(work)
	if work.Labels[propagation.LabelKind] != propagation.KindBundle || work.Labels[propagation.LabelHalf] != "" ||
		g.has[cluster] == nil {
		return
	}
	for i := range g.f.Size.Services {
		namespace, name := g.f.Size.service(i)
		if fmt.Sprint(v1alpha1.Shard(namespace, name, shards)) == work.Labels[propagation.LabelShard] {
			g.has[cluster][i] = 0 // whoever comes again is told anew
		}
	}
}

// compare what is new in one Bundle with what the member was told before.
func (g *guard) compare(work *workv1alpha1.Work, before, now *content) {
	cluster := propagation.ClusterOf(work)
	shard, err := strconv.ParseInt(work.Labels[propagation.LabelShard], 10, 32)
	if err != nil {
		return
	}
	own := g.works[propagation.BundleKey(cluster, int32(shard))]
	if own == nil || g.has[cluster] == nil {
		return
	}
	if work.Labels[propagation.LabelHalf] == "" {
		// It decides where every service of the shard is looked for.
		for i := range g.f.Size.Services {
			if namespace, name := g.f.Size.service(i); v1alpha1.Shard(namespace, name, shards) == int32(shard) {
				g.look(cluster, int32(shard), own, i)
			}
		}
		return
	}
	for i := range now.imports {
		g.look(cluster, int32(shard), own, i)
	}
	if before == nil {
		return
	}
	for i := range before.imports {
		if _, there := now.imports[i]; !there {
			g.look(cluster, int32(shard), own, i)
		}
	}
}

// look at what a member is told of service i, as its agent does: in the shard's own Bundle or in the half that this
// lists. What is in neither is gone; what is withheld, or in a Bundle that is not there, is not known.
func (g *guard) look(cluster string, shard int32, own *content, i int) {
	in := own
	if len(own.halves) > 0 {
		namespace, name := g.f.Size.service(i)
		if half := v1alpha1.HalfOf(own.halves, namespace, name); half != "" {
			if in = g.works[propagation.HalfKey(cluster, shard, half)]; in == nil {
				return
			}
		}
	}
	now := in.imports[i]
	if now.withheld {
		return
	}
	had := g.has[cluster][i]
	g.has[cluster][i] = now.exporting
	if missing := had &^ now.exporting & g.exporting(cluster, i); missing != 0 {
		g.lose(missing, now.exporting == 0, "%s is told of no pods any more of %s in %s", cluster, i)
	}
}

// exporting are the exporters of service i that have pods and are selected, as is the importer.
func (g *guard) exporting(importer string, i int) (out exporting) {
	for k, n := range g.f.Size.exporters(i) {
		cluster := g.f.Size.cluster(n)
		if cluster != importer && g.f.joined(n) && len(g.f.members[cluster].addresses(i)) > 0 {
			out |= 1 << k
		}
	}
	if !g.f.joined(g.f.members[importer].number) {
		return 0
	}
	return out
}

func (g *guard) lose(of exporting, whole bool, format, cluster string, i int) {
	g.lost.Exporters += bits.OnesCount64(uint64(of))
	if whole {
		g.lost.Imports++
	}
	const most = 5
	if len(g.lost.First) >= most {
		return
	}
	var from []string
	for k, n := range g.f.Size.exporters(i) {
		if of&(1<<k) != 0 {
			from = append(from, g.f.Size.cluster(n))
		}
	}
	_, name := g.f.Size.service(i)
	g.lost.First = append(g.lost.First, fmt.Sprintf(format, cluster, name, fmt.Sprint(from)))
}

// sliced takes note of how many endpoints an EndpointSlice of a site has.
func (g *guard) sliced(s *site, i int, slice string, endpoints int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	of := g.slices[s.name]
	if of == nil {
		of = map[int]map[string]int{}
		g.slices[s.name] = of
	}
	if of[i] == nil {
		of[i] = map[string]int{}
	}
	had := sum(of[i])
	of[i][slice] = endpoints
	if endpoints == 0 {
		delete(of[i], slice)
	}
	if still := g.exporting(s.name, i); had > 0 && sum(of[i]) == 0 && still != 0 {
		g.lose(still, true, "%s has no endpoints any more of %s, which has pods in %s", s.name, i)
	}
}

func sum(m map[string]int) (out int) {
	for _, v := range m {
		out += v
	}
	return out
}
