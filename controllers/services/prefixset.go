// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"net/netip"
	"slices"
)

// prefixSet holds disjoint prefixes, sorted by address: a cluster may have a pod prefix for every node.
type prefixSet []netip.Prefix

func newPrefixSet(all []netip.Prefix) prefixSet {
	sorted := make(prefixSet, 0, len(all))
	for _, p := range all {
		if p.IsValid() {
			sorted = append(sorted, p.Masked())
		}
	}
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	// Of two prefixes that overlap, the wider now comes first and holds the other.
	out := sorted[:0]
	for _, p := range sorted {
		if len(out) == 0 || !out[len(out)-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

func (p prefixSet) contain(ip netip.Addr) bool {
	// The last prefix that starts at or below ip.
	at, found := slices.BinarySearchFunc(p, ip, func(x netip.Prefix, ip netip.Addr) int { return x.Addr().Compare(ip) })
	if found {
		return true
	}
	return at > 0 && p[at-1].Contains(ip)
}
