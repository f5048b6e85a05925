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
			got, left := arrange(c.drifts, c.sent, comparison{})
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

// TestArrangeHasBounds: no delta is larger than it may be, and where there is no room for more that is said.
func TestArrangeHasBounds(t *testing.T) {
	drifts := map[key]*drift{}
	for i := range 2 * v1alpha1.MaxDeltas * maxDelta / largestChange {
		want := v1alpha1.Import{Namespace: "sample", Name: fmt.Sprintf("web-%d", i)}
		drifts[keyOf(&want)] = &drift{want: &want, size: largestChange - 1, since: 5, stale: 5}
	}
	got, left := arrange(drifts, nil, comparison{})
	if !left || len(got) != v1alpha1.MaxDeltas {
		t.Errorf("%d deltas, left %t", len(got), left)
	}
	for n, imports := range got {
		if len(imports)*(largestChange-1) > maxDelta {
			t.Errorf("delta %d has %d imports", n, len(imports))
		}
	}
}
