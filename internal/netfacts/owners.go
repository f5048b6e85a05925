// SPDX-License-Identifier: Apache-2.0

package netfacts

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
)

// Owners is a table of prefixes and of who has them. A prefix may have several owners. Whatever it holds, a
// question about a prefix costs the prefixes that overlap it and no more, so that a hostile list costs only
// whoever is compared with it. The zero value is empty and ready to use.
type Owners struct {
	table bart.Table[[]string]
}

// Owned is one prefix of an owner.
type Owned struct {
	Prefix netip.Prefix
	Owner  string
}

// Add a prefix of an owner.
func (o *Owners) Add(p netip.Prefix, owner string) {
	o.table.Modify(p, func(owners []string, _ bool) ([]string, bool) {
		if slices.Contains(owners, owner) {
			return owners, false
		}
		return append(slices.Clip(owners), owner), false
	})
}

// Remove a prefix of an owner.
func (o *Owners) Remove(p netip.Prefix, owner string) {
	o.table.Modify(p, func(owners []string, _ bool) ([]string, bool) {
		left := slices.DeleteFunc(slices.Clone(owners), func(s string) bool { return s == owner })
		return left, len(left) == 0
	})
}

// Overlapping yields what anybody but one owner has that overlaps a prefix: first what contains it, the
// narrowest first, then what it contains, by address.
func (o *Owners) Overlapping(p netip.Prefix, but string) func(yield func(Owned) bool) {
	return func(yield func(Owned) bool) {
		all := func(q netip.Prefix, owners []string) bool {
			for _, owner := range owners {
				if owner != but && !yield(Owned{q, owner}) {
					return false
				}
			}
			return true
		}
		for q, owners := range o.table.Supernets(p) {
			if !all(q, owners) {
				return
			}
		}
		for q, owners := range o.table.Subnets(p) {
			if q != p && !all(q, owners) {
				return
			}
		}
	}
}

// Overlap returns the first that Overlapping yields.
func (o *Owners) Overlap(p netip.Prefix, but string) (Owned, bool) {
	for found := range o.Overlapping(p, but) {
		return found, true
	}
	return Owned{}, false
}
