// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestCompleteByDeltas is about a first cluster whose pod at 256 was replaced by one at 257: what a member is told is
// what is in force.
func TestCompleteByDeltas(t *testing.T) {
	type bundles map[string]v1alpha1.BundleSpec
	g := newGuarded(t)
	g.replace()
	own, first := v1alpha1.BundleName(g.shard), v1alpha1.DeltaName(0)
	before, now := g.with(256), g.with(257)
	for name, c := range map[string]struct {
		has      bundles
		complete bool
	}{
		"as it was": {bundles{own: {Imports: before, Sequence: 5}}, false},
		"as it is":  {bundles{own: {Imports: now, Sequence: 5}}, true},
		"newer": {bundles{own: {Imports: before, Sequence: 5, Deltas: 1}, first: {Imports: now, Sequence: 6}},
			true},
		"older": {bundles{own: {Imports: now, Sequence: 7, Deltas: 1}, first: {Imports: before, Sequence: 6}}, true},
		"an old copy that wins": {bundles{own: {Imports: now, Sequence: 5, Deltas: 1},
			first: {Imports: before, Sequence: 6}}, false},
		"not listed": {bundles{own: {Imports: before, Sequence: 5}, first: {Imports: now, Sequence: 6}}, false},
		"listed and missing": {bundles{own: {Imports: now, Sequence: 5, Deltas: 2},
			first: {Imports: now, Sequence: 6}}, false},
		"in a half": {bundles{own: {Sequence: 5, Deltas: 1, Halves: []string{"0", "1"}}, first: {Imports: now, Sequence: 6},
			v1alpha1.HalfName(own, g.half): {Imports: before, Sequence: 5}}, true},
		"in deltas alone": {bundles{own: {Sequence: 5, Deltas: 1}, first: {Imports: now, Sequence: 6}}, false},
		"in a half that is not listed": {bundles{own: {Sequence: 5}, v1alpha1.HalfName(own, g.half): {Imports: now}},
			false},
	} {
		t.Run(name, func(t *testing.T) {
			named := map[string]*v1alpha1.Bundle{}
			for name, spec := range c.has {
				named[name] = &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
			}
			if err := g.completeImports(1, named); (err == nil) != c.complete {
				t.Errorf("complete: %v, want %t", err, c.complete)
			}
		})
	}
}
