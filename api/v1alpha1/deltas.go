// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// MaxDeltas is how many Bundles of deltas a member has at most.
const MaxDeltas = 128

// AnswersName is the name of the Bundle that has nothing but the answers to Bundles of deltas.
const AnswersName = "sealane-answers"

// deltaPrefix begins the name of a Bundle of deltas.
const deltaPrefix = "sealane-delta-"

// DeltaName returns the name of a Bundle of deltas: "sealane-delta-0", "sealane-delta-1", … Such a Bundle has imports
// of all shards as they have become since the Bundles of their shards were written, and only counts for those that are
// there, too.
func DeltaName(n int32) string { return deltaPrefix + strconv.Itoa(int(n)) }

// ParseDeltaName returns the number of a Bundle of deltas; false for any other name.
func ParseDeltaName(name string) (n int32, ok bool) {
	digits, ok := strings.CutPrefix(name, deltaPrefix)
	parsed, err := strconv.ParseInt(digits, 10, 32)
	n = int32(parsed)
	return n, ok && err == nil && n >= 0 && n < MaxDeltas && name == DeltaName(n)
}

// IsDelta says that this is the name of a Bundle of deltas.
func IsDelta(name string) bool {
	_, ok := ParseDeltaName(name)
	return ok
}

// Outdates says that what a Bundle of deltas has of an import is newer than what the Bundle of its shard or half has.
func (s *BundleSpec) Outdates(base *BundleSpec) bool {
	return base.Sequence > 0 && s.Sequence > base.Sequence
}

// Import returns what a Bundle has of a service, whose imports are sorted; nil if that is nothing.
func (s *BundleSpec) Import(namespace, name string) *Import {
	at, found := slices.BinarySearchFunc(s.Imports, name, func(i Import, name string) int {
		return cmp.Or(cmp.Compare(i.Namespace, namespace), cmp.Compare(i.Name, name))
	})
	if !found {
		return nil
	}
	return &s.Imports[at]
}

// CurrentImport returns a service's import as a member has it now: that in the Bundle of its shard or half, or the one
// in a Bundle of deltas that is newer. named returns a Bundle of the member, nil where it has none of that name. It is
// nil where the member is to have no such import; where that is not known, as a Bundle is not there, known is false.
//
// What is in no Bundle of a shard or half, or withheld there, is not looked for in deltas: these neither add nor take
// away an import.
func CurrentImport(namespace, name string, shards int32,
	named func(name string) (*Bundle, error)) (found *Import, known bool, _ error) {
	base, err := named(BundleName(Shard(namespace, name, shards)))
	if err != nil || base == nil {
		return nil, false, err
	}
	if of := BundleOf(base, namespace, name); of != base.Name {
		if of == "" {
			return nil, false, nil
		}
		if base, err = named(of); err != nil || base == nil {
			return nil, false, err
		}
	}
	found = base.Spec.Import(namespace, name)
	if found == nil || found.Withheld || base.Spec.Sequence == 0 {
		return found, true, nil
	}
	listing, err := named(BundleName(0))
	if err != nil || listing == nil {
		return nil, false, err
	}
	newest := &base.Spec
	for n := range min(listing.Spec.Deltas, MaxDeltas) {
		delta, err := named(DeltaName(n))
		if err != nil || delta == nil {
			return nil, false, err
		}
		if i := delta.Spec.Import(namespace, name); i != nil && delta.Spec.Outdates(newest) {
			found, newest = i, &delta.Spec
		}
	}
	return found, true, nil
}

// Current returns Bundles of one member without those of deltas, and with each import as it is now, by CurrentImport.
// It is for people to see: deltas which are missing are passed over. What it is given stays as it is.
func Current(bundles []Bundle) []Bundle {
	var out, deltas []Bundle
	listed := int32(0)
	for i := range bundles {
		if IsDelta(bundles[i].Name) {
			deltas = append(deltas, bundles[i])
			continue
		}
		if bundles[i].Name == BundleName(0) {
			listed = bundles[i].Spec.Deltas
		}
		out = append(out, bundles[i])
	}
	deltas = slices.DeleteFunc(deltas, func(b Bundle) bool {
		n, _ := ParseDeltaName(b.Name)
		return n >= listed
	})
	slices.SortFunc(deltas, func(a, b Bundle) int { return cmp.Compare(a.Spec.Sequence, b.Spec.Sequence) })
	for i := range out {
		base := &out[i].Spec
		base.Imports = slices.Clone(base.Imports)
		for j := range deltas {
			delta := &deltas[j].Spec
			if !delta.Outdates(base) {
				continue
			}
			for k := range base.Imports {
				was := &base.Imports[k]
				if is := delta.Import(was.Namespace, was.Name); is != nil && !was.Withheld {
					*was = *is
				}
			}
		}
	}
	return out
}
