// SPDX-License-Identifier: Apache-2.0

package services

import (
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Bundle is what a Bundle says: a v1alpha1.BundleSpec whose imports are shared. A hundred members have the same import
// of a service, each in what was decided, in what is about to be written and in what was. They are to be read only.
type Bundle struct {
	Revision         int64
	Shard            int32
	Imports          []*v1alpha1.Import
	Halves           []string
	Deltas           int32
	Sequence         int64
	AnswerApart      bool
	ExportConditions []v1alpha1.ExportCondition
}

// bundleOf has the memory of what was decoded.
func bundleOf(spec *v1alpha1.BundleSpec) *Bundle {
	out := &Bundle{Revision: spec.Revision, Shard: spec.Shard, Imports: make([]*v1alpha1.Import, len(spec.Imports)),
		Halves: spec.Halves, Deltas: spec.Deltas, Sequence: spec.Sequence, AnswerApart: spec.AnswerApart,
		ExportConditions: spec.ExportConditions}
	for i := range spec.Imports {
		out.Imports[i] = &spec.Imports[i]
	}
	return out
}

// findImport returns where the import of a service is in a list that is sorted, and whether it is there.
func findImport(imports []*v1alpha1.Import, k key) (at int, ok bool) {
	return slices.BinarySearchFunc(imports, k, func(i *v1alpha1.Import, k key) int { return compareKeys(keyOf(i), k) })
}

// imported returns the import of a service, nil if there is none.
func (b *Bundle) imported(k key) *v1alpha1.Import {
	if at, ok := findImport(b.Imports, k); ok {
		return b.Imports[at]
	}
	return nil
}
