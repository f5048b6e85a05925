// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestArrange: what is late is written with what has to be kept, and nothing else is.
func TestArrange(t *testing.T) {
	version := func(name string, v int) *v1alpha1.Import {
		return &v1alpha1.Import{Namespace: "sample", Name: name, Clusters: []v1alpha1.ImportCluster{{Cluster: "c1",
			Backends: []v1alpha1.Backends{{Addresses: []v1alpha1.Backend{{IP: fmt.Sprintf("10.1.0.%d", v)}}}}}}}
	}
	list := func(versions ...*v1alpha1.Import) []*v1alpha1.Import { return versions }
	stands := func(name string, v int, since, stale int64, settled bool) *drift {
		return &drift{want: version(name, v), size: 1000, since: since, stale: stale, settled: settled}
	}
	large := func(d *drift, size int) *drift { d.size = size; return d }
	a, b := key{"sample", "a"}, key{"sample", "b"}
	for name, c := range map[string]struct {
		drifts map[key]*drift
		sent   []sentDelta
		want   map[int][]*v1alpha1.Import
	}{
		"nothing is late": {
			map[key]*drift{a: stands("a", 2, 5, 5, false), b: stands("b", 1, 5, 0, true)},
			[]sentDelta{{sequence: 6, imports: list(version("a", 2))}}, nil,
		},
		"the first that is late": {map[key]*drift{a: stands("a", 2, 5, 5, false)}, nil,
			map[int][]*v1alpha1.Import{0: list(version("a", 2))}},
		"late again, beside what is kept": {
			map[key]*drift{a: stands("a", 3, 5, 5, false), b: stands("b", 2, 5, 5, false)},
			[]sentDelta{{sequence: 6, imports: list(version("a", 2), version("b", 2)), answered: true}},
			map[int][]*v1alpha1.Import{0: list(version("a", 3), version("b", 2))},
		},
		"a copy that is not what the shard's Bundle was written with again": {
			map[key]*drift{a: stands("a", 1, 5, 0, true)},
			[]sentDelta{{sequence: 6, imports: list(version("a", 2)), answered: true}},
			map[int][]*v1alpha1.Import{0: list(version("a", 1))},
		},
		"a newer Bundle of the shard ends it once it is answered": {
			map[key]*drift{a: stands("a", 3, 7, 0, true), b: stands("b", 2, 5, 5, false)},
			[]sentDelta{{sequence: 6, imports: list(version("a", 2)), answered: true}},
			map[int][]*v1alpha1.Import{0: list(version("b", 2))},
		},
		"and not before": {
			map[key]*drift{a: stands("a", 3, 7, 0, false), b: stands("b", 2, 5, 5, false)},
			[]sentDelta{{sequence: 6, imports: list(version("a", 2)), answered: true}},
			map[int][]*v1alpha1.Import{0: list(version("a", 3), version("b", 2))},
		},
		"a newer delta ends it once it is answered": {
			map[key]*drift{a: stands("a", 3, 5, 5, false), b: stands("b", 2, 5, 5, false)},
			[]sentDelta{{sequence: 6, imports: list(version("a", 2)), answered: true},
				{sequence: 7, imports: list(version("a", 3)), answered: true}},
			map[int][]*v1alpha1.Import{0: list(version("b", 2))},
		},
		"and not before, either": {
			map[key]*drift{a: stands("a", 3, 5, 5, false), b: stands("b", 2, 5, 5, false)},
			[]sentDelta{{sequence: 6, imports: list(version("a", 2)), answered: true},
				{sequence: 7, imports: list(version("a", 3)), closed: true}},
			map[int][]*v1alpha1.Import{0: list(version("a", 3), version("b", 2))},
		},
		"what does not count any more goes": {
			map[key]*drift{a: {}, b: stands("b", 2, 5, 5, false)},
			[]sentDelta{{sequence: 6, imports: list(version("a", 2), version("z", 1)), answered: true}},
			map[int][]*v1alpha1.Import{0: list(version("b", 2))},
		},
		"one that has more than half to keep is left alone": {
			map[key]*drift{a: large(stands("a", 2, 5, 5, false), maxDelta/2+1), b: stands("b", 2, 5, 5, false)},
			[]sentDelta{{sequence: 6, imports: list(version("a", 2)), answered: true}},
			map[int][]*v1alpha1.Import{1: list(version("b", 2))},
		},
		"one that is gone is written as it should be": {
			map[key]*drift{a: stands("a", 2, 5, 5, false)},
			[]sentDelta{{sequence: 6, imports: list(version("a", 2)), again: true}, {again: true}},
			map[int][]*v1alpha1.Import{0: list(version("a", 2)), 1: {}},
		},
		"one that is being deleted is waited for": {
			map[key]*drift{a: stands("a", 2, 5, 5, false), b: stands("b", 2, 5, 5, false)},
			[]sentDelta{{sequence: 6, imports: list(version("a", 2)), again: true, closed: true}},
			map[int][]*v1alpha1.Import{1: list(version("b", 2))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, left := carriedBy(c.drifts, c.sent).arrange(comparison{})
			if left || len(got) != len(c.want) {
				t.Fatalf("%v, left %t", got, left)
			}
			for n, want := range c.want {
				if !slices.EqualFunc(got[n], want, sameImport) {
					t.Errorf("delta %d has %v, not %v", n, got[n], want)
				}
			}
		})
	}
}

func carriedBy(drifts map[key]*drift, sent []sentDelta) carried {
	copies := map[key]copied{}
	newest(copies, sent)
	return carried{drifts, sent, copies}
}

// TestArrangeHasBounds: no delta is larger than it may be, and where there is no room for more that is said.
func TestArrangeHasBounds(t *testing.T) {
	drifts := map[key]*drift{}
	for i := range 2 * v1alpha1.MaxDeltas * maxDelta / largestChange {
		want := v1alpha1.Import{Namespace: "sample", Name: fmt.Sprintf("web-%d", i)}
		drifts[keyOf(&want)] = &drift{want: &want, size: largestChange - 1, since: 5, stale: 5}
	}
	got, left := carriedBy(drifts, nil).arrange(comparison{})
	if !left || len(got) != v1alpha1.MaxDeltas {
		t.Errorf("%d deltas, left %t", len(got), left)
	}
	for n, imports := range got {
		if len(imports)*(largestChange-1) > maxDelta {
			t.Errorf("delta %d has %d imports", n, len(imports))
		}
	}
}

// TestDeltasAreMadeInReserve where few are left that have room, before changes wait for one to be listed; not where
// others are on their way, and not where one is enough.
func TestDeltasAreMadeInReserve(t *testing.T) {
	drifts := map[key]*drift{}
	full := func(n int) sentDelta {
		i := v1alpha1.Import{Namespace: "sample", Name: fmt.Sprintf("web-%d", n)}
		drifts[keyOf(&i)] = &drift{want: &i, size: maxDelta, since: 5, stale: 5}
		return sentDelta{sequence: 6, imports: []*v1alpha1.Import{&i}, answered: true, counts: true}
	}
	many := func(n int) (out []sentDelta) {
		for n := range n {
			out = append(out, full(n))
		}
		return out
	}
	empty, fresh := sentDelta{sequence: 6, answered: true, counts: true}, sentDelta{sequence: 6}
	const most = v1alpha1.MaxDeltas
	type sizes map[int]int // of what is written, by the number of the Bundle
	for name, c := range map[string]struct {
		arranged sizes
		sent     []sentDelta
		want     []int
	}{
		"none where one has room":      {sizes{0: 100}, many(1), nil},
		"none where one of two has":    {sizes{1: 100}, many(1), nil},
		"two beside two":               {sizes{1: maxDelta}, many(1), []int{2, 3}},
		"none where two have room":     {sizes{0: maxDelta}, append(many(2), empty, empty), nil},
		"nor where one is written":     {sizes{0: maxDelta, 2: 100}, append(many(2), empty, empty), nil},
		"one alone of many has":        {sizes{2: maxDelta}, append(many(2), empty, empty), []int{4, 5, 6, 7}},
		"no more than four at once":    {sizes{0: maxDelta}, many(12), numbers(12, 16)},
		"none where one is not listed": {sizes{2: maxDelta}, append(many(3), fresh), nil},
		"none where nothing changes":   {nil, many(12), nil},
		"no more than there may be":    {sizes{0: maxDelta}, many(most - 3), numbers(most-3, most)},
		"none beyond that":             {sizes{0: maxDelta}, many(most), nil},
	} {
		t.Run(name, func(t *testing.T) {
			arranged := map[int][]*v1alpha1.Import{}
			for n, size := range c.arranged {
				i := v1alpha1.Import{Namespace: "changed", Name: fmt.Sprintf("web-%d", n)}
				drifts[keyOf(&i)] = &drift{want: &i, size: size, since: 5, stale: 5}
				arranged[n] = []*v1alpha1.Import{&i}
			}
			if got := carriedBy(drifts, c.sent).reserve(arranged); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// numbers from the first to that before the last.
func numbers(first, last int) (out []int) {
	for n := first; n < last; n++ {
		out = append(out, n)
	}
	return out
}

// TestChangesGoWhereTheyCount: a Bundle that is not listed yet has a change only where no other has room, whether it is
// written anyhow, as one that failed before, or has least to keep.
func TestChangesGoWhereTheyCount(t *testing.T) {
	want := &v1alpha1.Import{Namespace: "sample", Name: "web"}
	some := &v1alpha1.Import{Namespace: "sample", Name: "other"}
	for name, c := range map[string]struct {
		kept int
		sent func(listed sentDelta) []sentDelta
		in   int
	}{
		"beside one that is on its way": {maxDelta / 4,
			func(listed sentDelta) []sentDelta { return []sentDelta{{sequence: 7}, listed, {sequence: 8}} }, 1},
		"beside one that failed": {maxDelta / 4,
			func(listed sentDelta) []sentDelta { return []sentDelta{listed, {again: true}} }, 0},
		"where there is room": {maxDelta,
			func(listed sentDelta) []sentDelta { return []sentDelta{listed, {sequence: 8}} }, 1},
	} {
		drifts := map[key]*drift{keyOf(want): {want: want, size: 100, since: 5, stale: 5},
			keyOf(some): {want: some, size: c.kept, since: 5, stale: 5}}
		listed := sentDelta{sequence: 6, imports: []*v1alpha1.Import{some}, answered: true, counts: true}
		got, _ := carriedBy(drifts, c.sent(listed)).arrange(comparison{})
		if !slices.Contains(got[c.in], want) {
			t.Errorf("%s: written are %v, want the change in %d", name, got, c.in)
		}
	}
}
