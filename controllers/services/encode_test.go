// SPDX-License-Identifier: Apache-2.0

package services

import (
	"testing"

	"github.com/sealane-io/sealane/propagation"
)

// TestEncoder: a Bundle is encoded as its type says, and what members share of it once.
func TestEncoder(t *testing.T) {
	e, imports := newEncoder(), 0
	for cluster, spec := range Decide(manyServices(5, 40, 4)).Bundles {
		spec.Revision, spec.Shard = 7, 3
		if cluster == "c2" {
			spec.Halves = []string{"0", "10", "11"}
		}
		got, err := e.bundle(&spec, true)
		if err != nil {
			t.Fatal(err)
		}
		want, err := propagation.Encode(spec)
		if err != nil {
			t.Fatal(err)
		}
		if len(spec.Imports) == 0 || len(spec.ExportConditions) == 0 || string(got) != string(want) {
			t.Errorf("%s has\n%s, want\n%s", cluster, got, want)
		}
		imports += len(spec.Imports)
	}
	// Of each service there is what most get, and what its two exporters do.
	if n := len(e.imports); n != imports*3/5 {
		t.Errorf("%d imports are encoded of %d, want three of each five", n, imports)
	}
}
