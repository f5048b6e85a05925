// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// ownership answers, in time that does not grow with what it holds, whether a prefix overlaps one that
// somebody has. A hostile list of any length costs no more than an honest one.
type ownership struct {
	at    map[netip.Prefix]string // owner of a prefix
	under map[netip.Prefix]string // an owner of something inside a prefix
}

func newOwnership() ownership {
	return ownership{at: map[netip.Prefix]string{}, under: map[netip.Prefix]string{}}
}

func (o ownership) add(p netip.Prefix, owner string) {
	o.at[p] = owner
	for q := range wider(p) {
		if _, ok := o.under[q]; !ok {
			o.under[q] = owner
		}
	}
}

// overlap returns who has a prefix that overlaps p.
func (o ownership) overlap(p netip.Prefix) (owner string, ok bool) {
	if owner, ok = o.containing(p); ok {
		return owner, true
	}
	owner, ok = o.under[p]
	return owner, ok
}

// containing returns who has a prefix that contains p.
func (o ownership) containing(p netip.Prefix) (owner string, ok bool) {
	for q := range wider(p) {
		if owner, ok = o.at[q]; ok {
			return owner, true
		}
	}
	return "", false
}

// wider yields a masked prefix and every one that contains it.
func wider(p netip.Prefix) func(yield func(netip.Prefix) bool) {
	return func(yield func(netip.Prefix) bool) {
		for bits := p.Bits(); bits >= 0; bits-- {
			if q, err := p.Addr().Prefix(bits); err != nil || !yield(q) {
				return
			}
		}
	}
}

// reserved holds what no cluster can claim, with the reason. The cables' own addresses are among it.
func reserved() ownership {
	o := newOwnership()
	for prefix, what := range map[string]string{
		"0.0.0.0/8":      "this network",
		"127.0.0.0/8":    "loopback",
		"169.254.0.0/16": "link-local",
		"224.0.0.0/4":    "multicast",
		"240.0.0.0/4":    "reserved",
		"::/96":          "loopback or unspecified",
		"::ffff:0:0/96":  "IPv4-mapped",
		"fe80::/10":      "link-local",
		"ff00::/8":       "multicast",
		"fd51::/16":      "Sealane's probe addresses",
	} {
		o.add(netip.MustParsePrefix(prefix), what)
	}
	return o
}

// Nothing wider than this is one cluster's network: half the internet is as good as a default route.
const (
	minBits4 = 8
	minBits6 = 32
)

// parsePrefix parses one CIDR that a cluster claims.
func (b *builder) parsePrefix(s string) (netip.Prefix, *fault) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, faultf(ReasonInvalidCIDR, "%s is not a CIDR", quote(s))
	}
	minBits := minBits4
	if p.Addr().Is6() {
		minBits = minBits6
	}
	switch what, bad := b.reserved.overlap(p.Masked()); {
	case p.Bits() == 0:
		return netip.Prefix{}, faultf(ReasonDefaultRoute, "%s is a default route", p)
	case p != p.Masked():
		return netip.Prefix{}, faultf(ReasonNotMasked, "%s has host bits set, the network is %s", p, p.Masked())
	case bad:
		return netip.Prefix{}, faultf(ReasonReserved, "%s overlaps addresses that no cluster can have: %s", p, what)
	case p.Bits() < minBits:
		return netip.Prefix{}, faultf(ReasonTooWide, "%s is wider than /%d", p, minBits)
	}
	return p, nil
}

// parseAddr parses a unicast address of a node or gateway.
func (b *builder) parseAddr(s string) (netip.Addr, *fault) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, faultf(ReasonInvalidAddress, "%s is not an IP address", quote(s))
	}
	a = a.Unmap()
	if what, bad := b.reserved.containing(single(a)); bad {
		return netip.Addr{}, faultf(ReasonInvalidAddress, "%s is not a unicast address of a node: %s", a, what)
	}
	return a, nil
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// sorted sorts prefixes and drops duplicates.
func sorted(prefixes []netip.Prefix) []netip.Prefix {
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	return slices.Compact(prefixes)
}

// quote shows a hostile string: printable, and not long.
func quote(s string) string {
	const longest = 64
	if len(s) > longest {
		return fmt.Sprintf("%q…", s[:longest])
	}
	return fmt.Sprintf("%q", s)
}
