// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"sync"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// guard looks at each version of each Work, and of each EndpointSlice of a site, for an import that has lost the pods
// of an exporter which still has them.
type guard struct {
	f *Fleet

	mu sync.Mutex
	// works are what each member's Bundles have, by cluster.
	works map[string]map[place]*content
	// has is what each importer was last told of each service, by cluster; nothing before it was told of any pod.
	has map[string][]told
	// sliced counts the endpoints of each service of a site, by the names of its EndpointSlices.
	slices map[string]map[int]map[string]int
	lost   Lost
}

// place is a Bundle of a member: a shard's own or that of a half of it, or the one of deltas that has a number.
type place struct {
	number int32
	half   string
	delta  bool
}

// placeOf is which Bundle a Work carries.
func placeOf(work *workv1alpha1.Work) (at place, ok bool) {
	if work.Labels[propagation.LabelKind] != propagation.KindBundle {
		return place{}, false
	}
	text, half := work.Labels[propagation.LabelDelta], ""
	delta := text != ""
	if !delta {
		text, half = work.Labels[propagation.LabelShard], work.Labels[propagation.LabelHalf]
	}
	n, err := strconv.ParseInt(text, 10, 32)
	return place{number: int32(n), half: half, delta: delta}, err == nil
}

// exporting has a bit for each exporter of a service, in the order of Size.exporters, that has pods.
type exporting uint64

// content is what matters of a Bundle.
type content struct {
	generation, sequence int64
	halves               []string
	deltas               int32
	imports              map[int]told
}

// told is what a Bundle says of an import.
type told struct {
	exporting
	pods     []pod
	withheld bool
}

// pod is the offset of one in its cluster's network, and which of its service's exporters that is.
type pod struct {
	exporter uint8
	offset   uint16
}

// Lost counts what imports have lost that its exporters still had.
type Lost struct {
	// Exporters whose pods all went from an import, and Imports that had no pods left, in the Works of all members and in
	// the EndpointSlices of sites.
	Exporters, Imports int
	// Stale counts the exporters of which an import in the Works has lost some pods that they still had, but not all: an
	// older copy of it won.
	Stale int
	// First of them, for people.
	First []string
}

// None says that nothing was lost.
func (l *Lost) None() bool { return l.Exporters == 0 && l.Stale == 0 }

func newGuard(f *Fleet) *guard {
	g := &guard{f: f, works: map[string]map[place]*content{}, has: map[string][]told{},
		slices: map[string]map[int]map[string]int{}}
	for n := range f.Size.Clusters {
		g.works[f.Size.cluster(n)] = map[place]*content{}
		g.has[f.Size.cluster(n)] = make([]told, f.Size.Services)
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
	cluster := propagation.ClusterOf(work)
	at, ok := placeOf(work)
	if !ok || g.works[cluster] == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.works[cluster][at]
	if before != nil && before.generation == work.Generation {
		return
	}
	var spec v1alpha1.BundleSpec
	if err := propagation.Spec(work, &spec); err != nil {
		g.f.Tally.fail(err)
		return
	}
	now := &content{generation: work.Generation, sequence: spec.Sequence, halves: spec.Halves, deltas: spec.Deltas,
		imports: map[int]told{}}
	for k := range spec.Imports {
		if i, ok := g.f.Size.index(spec.Imports[k].Namespace, spec.Imports[k].Name); ok {
			now.imports[i] = g.read(i, &spec.Imports[k])
		}
	}
	g.works[cluster][at] = now
	g.compare(cluster, at, before, now)
}

// read an import of service i.
func (g *guard) read(i int, in *v1alpha1.Import) told {
	out := told{withheld: in.Withheld}
	for k, n := range g.f.Size.exporters(i) {
		cluster := g.f.Size.cluster(n)
		for c := range in.Clusters {
			if in.Clusters[c].Cluster != cluster {
				continue
			}
			for _, address := range addressesOf(&in.Clusters[c]) {
				out.exporting |= 1 << k
				if offset, ok := offsetIn(pods(n), address); ok {
					out.pods = append(out.pods, pod{uint8(k), offset})
				}
			}
		}
	}
	return out
}

// forget a Work that is gone. A Bundle that is not there says nothing.
func (g *guard) forget(work *workv1alpha1.Work) {
	g.mu.Lock()
	defer g.mu.Unlock()
	cluster := propagation.ClusterOf(work)
	at, ok := placeOf(work)
	if !ok || g.works[cluster] == nil {
		return
	}
	delete(g.works[cluster], at)
	if at != (place{number: at.number}) {
		return
	}
	for i := range g.f.Size.Services {
		if g.f.Size.shard(i) == at.number {
			g.has[cluster][i] = told{} // whoever comes again is told anew
		}
	}
}

// compare what is new in one Bundle with what the member was told before.
func (g *guard) compare(cluster string, at place, before, now *content) {
	var own, all bool
	switch listing := g.works[cluster][place{}]; {
	case at == place{}:
		// It says which deltas count.
		own, all = true, before == nil || before.deltas != now.deltas
	case at.delta:
		// It may have been the one that was missed.
		all = before == nil && listing != nil && at.number < listing.deltas
	default:
		own = at.half == ""
	}
	if own || all {
		// It decides where every service of the shard is looked for, or of all shards.
		for i := range g.f.Size.Services {
			if all || g.f.Size.shard(i) == at.number {
				g.look(cluster, i)
			}
		}
		return
	}
	for i := range now.imports {
		g.look(cluster, i)
	}
	if before == nil {
		return
	}
	for i := range before.imports {
		if _, there := now.imports[i]; !there {
			g.look(cluster, i)
		}
	}
}

// look at what a member is told of service i. What is withheld is not known.
func (g *guard) look(cluster string, i int) {
	now, known := g.current(cluster, i)
	if !known || now.withheld {
		return
	}
	had := g.has[cluster][i]
	g.has[cluster][i] = now
	if !slices.ContainsFunc(had.pods, func(p pod) bool { return !slices.Contains(now.pods, p) }) &&
		had.exporting&^now.exporting == 0 {
		return
	}
	still := g.still(cluster, i)
	if missing := had.exporting &^ now.exporting & still.exporting; missing != 0 {
		g.lose(missing, now.exporting == 0, "%s is told of no pods any more of %s in %s"+g.copies(cluster, i, had),
			cluster, i)
	}
	var stale exporting
	for _, p := range had.pods {
		if slices.Contains(still.pods, p) && !slices.Contains(now.pods, p) {
			stale |= 1 << p.exporter
		}
	}
	if stale &= now.exporting; stale != 0 {
		g.lost.Stale += bits.OnesCount64(uint64(stale))
		g.tell(stale, "%s is told no more of some pods of %s in %s"+g.copies(cluster, i, had), cluster, i)
	}
}

// copies says, for people, what a member had been told of service i, and what the Bundles that have it say now.
func (g *guard) copies(cluster string, i int, had told) string {
	out := fmt.Sprintf(" at %s: it had %v, and there are", time.Now().UTC().Format("15:04:05.000"), had.pods)
	for at, c := range g.works[cluster] {
		if copied, has := c.imports[i]; has {
			out += fmt.Sprintf(" %+v of sequence %d, generation %d: %v", at, c.sequence, c.generation, copied.pods)
		}
	}
	if listing := g.works[cluster][place{}]; listing != nil {
		out += fmt.Sprintf(", %d deltas are listed", listing.deltas)
	}
	return out
}

// current is what a member is told of service i, by the rule of v1alpha1.CurrentImport: in the shard's own Bundle or in
// the half that this lists, and in deltas that are newer. What is not in the former is gone; what is in no half, or
// where a Bundle is not there, is not known.
func (g *guard) current(cluster string, i int) (now told, known bool) {
	of, shard := g.works[cluster], g.f.Size.shard(i)
	base := of[place{number: shard}]
	if base != nil && len(base.halves) > 0 {
		namespace, name := g.f.Size.service(i)
		half := v1alpha1.HalfOf(base.halves, namespace, name)
		if half == "" {
			return told{}, false
		}
		base = of[place{number: shard, half: half}]
	}
	if base == nil {
		return told{}, false
	}
	now, found := base.imports[i]
	if !found || now.withheld || base.sequence == 0 {
		return now, true
	}
	listing, newest := of[place{}], base.sequence
	if listing == nil {
		return told{}, false
	}
	for n := range min(listing.deltas, v1alpha1.MaxDeltas) {
		delta := of[place{number: n, delta: true}]
		if delta == nil {
			return told{}, false
		}
		if newer, has := delta.imports[i]; has && delta.sequence > newest {
			now, newest = newer, delta.sequence
		}
	}
	return now, true
}

// still are the exporters of service i that have pods and are selected, as is the importer, and their pods.
func (g *guard) still(importer string, i int) (out told) {
	if !g.f.joined(g.f.members[importer].number) {
		return told{}
	}
	for k, n := range g.f.Size.exporters(i) {
		cluster := g.f.Size.cluster(n)
		if cluster == importer || !g.f.joined(n) {
			continue
		}
		for _, offset := range g.f.members[cluster].offsets(i) {
			out.exporting |= 1 << k
			out.pods = append(out.pods, pod{uint8(k), uint16(offset)})
		}
	}
	return out
}

func (g *guard) lose(of exporting, whole bool, format, cluster string, i int) {
	g.lost.Exporters += bits.OnesCount64(uint64(of))
	if whole {
		g.lost.Imports++
	}
	g.tell(of, format, cluster, i)
}

// tell people of the first.
func (g *guard) tell(of exporting, format, cluster string, i int) {
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
	if still := g.still(s.name, i).exporting; had > 0 && sum(of[i]) == 0 && still != 0 {
		g.lose(still, true, "%s has no endpoints any more of %s, which has pods in %s", s.name, i)
	}
}

func sum(m map[string]int) (out int) {
	for _, v := range m {
		out += v
	}
	return out
}
