// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// spread is a way to spread the services of one importer over Works. change writes what a change of a service takes,
// and returns how many bytes, in one Work or more.
type spread interface {
	change(service int) int
	works() int
}

// sizes are the bytes in JSON of each service's import, and of a Work around them.
type sizes struct {
	imports []int
	around  int
}

// fixed has as many shards as the ClusterSet says: the present layout.
type fixed struct {
	of    []int32
	bytes []int
}

func newFixed(s sizes, shards int32) *fixed {
	f := &fixed{bytes: make([]int, shards)}
	for i, size := range s.imports {
		n := v1alpha1.Shard("sample", fmt.Sprintf("web-%d", i), shards)
		f.of = append(f.of, n)
		f.bytes[n] += size
	}
	for n := range f.bytes {
		f.bytes[n] += s.around
	}
	return f
}

func (f *fixed) change(service int) int { return f.bytes[f.of[service]] }
func (f *fixed) works() int             { return len(f.bytes) }

// split halves a shard by the next bit of the hash where it is larger than a limit.
type split struct {
	of    []uint64 // the leaf of each service: its prefix of the hash, with a one before it
	bytes map[uint64]int
}

func newSplit(s sizes, limit int) *split {
	all := make([]int, len(s.imports))
	for i := range all {
		all[i] = i
	}
	return newSplitOf(s, all, limit)
}

// newSplitOf is of some of the services.
func newSplitOf(s sizes, which []int, limit int) *split {
	out := &split{of: make([]uint64, len(which)), bytes: map[uint64]int{}}
	hashes := make([]uint64, len(which))
	all := make([]int, len(which))
	for i, service := range which {
		h := fnv.New64a()
		_, _ = fmt.Fprintf(h, "sample/web-%d", service)
		// FNV leaves the high bits of similar names alike.
		hashes[i], all[i] = h.Sum64()*0x9e3779b97f4a7c15, i
	}
	var halve func(prefix uint64, depth int, services []int)
	halve = func(prefix uint64, depth int, services []int) {
		total := s.around
		for _, i := range services {
			total += s.imports[which[i]]
		}
		if total <= limit || len(services) == 1 {
			out.bytes[prefix] = total
			for _, i := range services {
				out.of[i] = prefix
			}
			return
		}
		var sides [2][]int
		for _, i := range services {
			side := hashes[i] >> (63 - depth) & 1
			sides[side] = append(sides[side], i)
		}
		for side, of := range sides {
			halve(prefix<<1|uint64(side), depth+1, of)
		}
	}
	halve(1, 0, all)
	return out
}

func (l *split) change(service int) int { return l.bytes[l.of[service]] }
func (l *split) works() int             { return len(l.bytes) }

// withinShards halves the shards of the present layout: what is not too large stays one Bundle.
type withinShards struct {
	shards  *fixed
	split   []*split
	indexes []int // of each service in its shard's
}

func newWithinShards(s sizes, shards int32, limit int) *withinShards {
	out := &withinShards{shards: newFixed(s, shards)}
	of := make([][]int, shards)
	for i, n := range out.shards.of {
		out.indexes = append(out.indexes, len(of[n]))
		of[n] = append(of[n], i)
	}
	for n := range of {
		out.split = append(out.split, newSplitOf(s, of[n], limit))
	}
	return out
}

func (l *withinShards) change(service int) int {
	return l.split[l.shards.of[service]].change(l.indexes[service])
}

func (l *withinShards) works() int {
	works := 0
	for _, s := range l.split {
		if works += s.works(); s.works() > 1 {
			works++ // the shard's own, which names its halves
		}
	}
	return works
}

// overlay has the services that have changed last in a Work of their own beside each shard of the present layout, until
// that is larger than a limit: then the shard is written anew and the other one emptied.
type overlay struct {
	*fixed
	s       sizes
	limit   int
	changed []map[int]bool
}

func newOverlay(s sizes, shards int32, limit int) *overlay {
	o := &overlay{fixed: newFixed(s, shards), s: s, limit: limit}
	for range shards {
		o.changed = append(o.changed, map[int]bool{})
	}
	return o
}

func (o *overlay) change(service int) int {
	n := o.of[service]
	o.changed[n][service] = true
	bytes := o.s.around
	for i := range o.changed[n] {
		bytes += o.s.imports[i]
	}
	if bytes > o.limit {
		o.changed[n] = map[int]bool{}
		return o.bytes[n] + o.s.around
	}
	return bytes
}

func (o *overlay) works() int { return 2 * len(o.bytes) }

// each has a Work for each service.
type each sizes

func (e each) change(service int) int { return e.around + e.imports[service] }
func (e each) works() int             { return len(e.imports) }

// BenchmarkLayouts reckons what layouts of the wire cost one importer, by the real types: the bytes of the Works that
// one changed endpoint writes (mean, 99th percentile, most), and how many Works there are.
func BenchmarkLayouts(b *testing.B) {
	const kib = 1 << 10
	for _, services := range []int{100, 1_000, 10_000} {
		s := sizes{imports: make([]int, services), around: workAround(b)}
		terse := sizes{imports: make([]int, services), around: s.around}
		for i := range s.imports {
			a, c := web(1), web(2)
			a.Name, c.Name = fmt.Sprintf("web-%d", i), fmt.Sprintf("web-%d", i)
			imported := decide(cluster(1, a), cluster(2, c), cluster(3)).Bundles["c3"].Imports[0]
			s.imports[i], terse.imports[i] = sizeOf(imported), sizeOf(shortened(b, imported))
		}
		layouts := map[string]spread{
			"fixed=4": newFixed(s, 4), "fixed=64": newFixed(s, 64), "split=16KiB": newSplit(s, 16*kib),
			"split=32KiB":    newSplit(s, 32*kib),
			"shards=4,32KiB": newWithinShards(s, 4, 32*kib), "shards=4,24KiB": newWithinShards(s, 4, 24*kib),
			"shards=4,32KiB,short": newWithinShards(terse, 4, 32*kib),
			"split=16KiB,short":    newSplit(terse, 16*kib), "split=32KiB,short": newSplit(terse, 32*kib),
			"overlay=4,24KiB":  newOverlay(s, 4, 24*kib),
			"overlay=64,24KiB": newOverlay(s, 64, 24*kib), "each": each(s),
		}
		for _, name := range slices.Sorted(maps.Keys(layouts)) {
			b.Run(fmt.Sprintf("services=%d/%s", services, name), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 1))
				var written []int
				total := 0
				for b.Loop() {
					bytes := layouts[name].change(r.IntN(services))
					written = append(written, bytes)
					total += bytes
				}
				slices.SortFunc(written, cmp.Compare)
				b.ReportMetric(float64(total)/float64(len(written))/kib, "KiB/change")
				b.ReportMetric(float64(written[len(written)*99/100])/kib, "KiB-p99")
				b.ReportMetric(float64(written[len(written)-1])/kib, "KiB-max")
				b.ReportMetric(float64(layouts[name].works()), "Works")
			})
		}
	}
}

// receiver is one of the members of a shard, and what was written to it for changed endpoints.
type receiver struct {
	*played
	r                           *rand.Rand
	rounds, writes, total, most int // of total and most the unit is a byte
}

// sizesOfClusterSets are how many services two clusters export, and in how many shards.
var sizesOfClusterSets = []struct {
	services int
	shards   int32
}{{100, 4}, {1_000, 4}, {10_000, 64}}

// newReceiver has what is in one of the shards.
func newReceiver(t testing.TB, services int, shards int32, halves bool) *receiver {
	in := Input{Shards: shards, Now: now, Members: []Member{cluster(1), cluster(2), cluster(3)}}
	for i := range services {
		name := fmt.Sprintf("web-%d", i)
		for m := range 2 {
			if e := web(m + 1); v1alpha1.Shard("sample", name, shards) == 0 {
				e.Name = name
				in.Members[m].Exports = append(in.Members[m].Exports, e)
			}
		}
	}
	return &receiver{played: playWith(t, in, halves), r: rand.New(rand.NewPCG(1, 1))}
}

// carried are the bytes of the importer's Works, by name and version.
func (i *receiver) carried() map[string]int {
	out := map[string]int{}
	for key, o := range i.shelf.objects[reflect.TypeFor[*workv1alpha1.Work]()] {
		if work := o.(*workv1alpha1.Work); propagation.ClusterOf(work) == "c3" {
			out[key.Name+work.ResourceVersion] = len(work.Spec.Workload.Manifests[0].Raw)
		}
	}
	return out
}

// change replaces the pods of one of the services in one of the clusters.
func (i *receiver) change() {
	i.rounds++
	e := &i.members[0].Exports[i.r.IntN(len(i.members[0].Exports))]
	e.Backends = []v1alpha1.Backends{pods(1, 3, e.Backends[0].Ports...)}
	e.Backends[0].Addresses[0].IP = fmt.Sprintf("10.1.%d.%d", 10+i.rounds/200%200, 1+i.rounds%200)
	i.answer(0, 0)
	before := i.carried()
	i.decide(0)
	for name, bytes := range i.carried() {
		if _, same := before[name]; !same {
			i.total, i.most, i.writes = i.total+bytes, max(i.most, bytes), i.writes+1
		}
	}
	i.answerHalves(2, 0)
}

// TestBytesOfAChangeDoNotGrow with the number of services: an importer is written one Work for a changed endpoint, of
// 32 KiB at most, and on average no more than a fifth more where there are a hundred times as many.
func TestBytesOfAChangeDoNotGrow(t *testing.T) {
	const kib, changes, most = 1 << 10, 100, 32
	var least float64
	for _, c := range sizesOfClusterSets {
		i := newReceiver(t, c.services, c.shards, true)
		for range changes {
			i.change()
		}
		mean := float64(i.total) / float64(i.rounds)
		t.Logf("%d services in %d shards: %.1f KiB for a change, %.1f at most", c.services, c.shards, mean/kib,
			float64(i.most)/kib)
		if i.writes != changes || i.most > most*kib {
			t.Errorf("%d services: %d changes were %d writes of up to %d bytes, expected one each of %d KiB at most",
				c.services, changes, i.writes, i.most, most)
		}
		if least == 0 {
			least = mean
		}
		if mean > 1.2*least {
			t.Errorf("%d services: a change is %.0f bytes, with %d %.0f", c.services, mean, sizesOfClusterSets[0].services,
				least)
		}
	}
}

// BenchmarkWritten takes what is written to one importer for one changed endpoint: the bytes of what its Works carry
// (mean, most), how many Works are written, and how many there are.
func BenchmarkWritten(b *testing.B) {
	const kib = 1 << 10
	for _, c := range sizesOfClusterSets {
		for _, halves := range []bool{false, true} {
			b.Run(fmt.Sprintf("services=%d/shards=%d/halves=%t", c.services, c.shards, halves), func(b *testing.B) {
				i := newReceiver(b, c.services, c.shards, halves)
				for b.Loop() {
					i.change()
				}
				b.ReportMetric(float64(i.total)/float64(i.rounds)/kib, "KiB/change")
				b.ReportMetric(float64(i.most)/kib, "KiB-max")
				b.ReportMetric(float64(i.writes)/float64(i.rounds), "writes/change")
				b.ReportMetric(float64(len(i.carried())), "Works/shard")
			})
		}
	}
}

// shortened is an import with its backends as lists of those addresses that are ready, and ports as text.
func shortened(t testing.TB, i *v1alpha1.Import) map[string]any {
	t.Helper()
	data, err := json.Marshal(i)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	clusters := make([]map[string]any, 0, len(i.Clusters))
	for _, c := range i.Clusters {
		backends := make([]map[string][]string, 0, len(c.Backends))
		for _, g := range c.Backends {
			short := map[string][]string{}
			for _, p := range g.Ports {
				short["ports"] = append(short["ports"], fmt.Sprintf("%s:%d/%s", p.Name, p.Port, p.Protocol))
			}
			for _, b := range g.Addresses {
				short["ready"] = append(short["ready"], b.IP)
			}
			backends = append(backends, short)
		}
		clusters = append(clusters, map[string]any{"cluster": c.Cluster, "createdAt": c.CreatedAt, "ports": c.Ports,
			"clusterIPs": c.ClusterIPs, "backends": backends})
	}
	out["clusters"] = clusters
	return out
}

// workAround is the size of a Bundle's manifest without imports and conditions.
func workAround(t testing.TB) int {
	t.Helper()
	raw, err := newEncoder().bundle(&Bundle{}, true)
	if err != nil {
		t.Fatal(err)
	}
	s := newShelf()
	works := propagation.Writer{Client: s, Live: s}
	written, err := works.ApplyBundle(t.Context(), "c1", 0, "", propagation.Written{}, raw)
	if err != nil {
		t.Fatal(err)
	}
	return len(written.Manifest)
}
