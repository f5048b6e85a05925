// SPDX-License-Identifier: Apache-2.0

package netfacts

import (
	"cmp"
	"net/netip"

	"go4.org/netipx"

	"github.com/sealane-io/sealane/internal/clip"
)

// The fewest bits of a network that one cluster can have: what is wider comes close to a default route. RFC 1918
// has nothing wider than /8, and a whole provider gets an IPv6 /32.
const (
	MinBitsIPv4 = 8
	MinBitsIPv6 = 32
)

// probePrefix holds the addresses inside the cables; see plan.ULA.
const probePrefix = "fd51::/16"

// reservation is a range that no cluster can have, in part or as a whole.
type reservation struct {
	prefix netip.Prefix
	what   string
}

// reserved is never changed. The providers' metadata addresses are those outside the link-local ranges: whoever
// routes them to a cluster hands it the credentials of the others' nodes.
var reserved = [...]reservation{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
	{netip.MustParsePrefix("100.100.100.200/32"), "the metadata service of Alibaba Cloud"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("168.63.129.16/32"), "the metadata service of Azure"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("::/96"), "loopback or unspecified"},
	{netip.MustParsePrefix("::ffff:0:0/96"), "IPv4-mapped"},
	{netip.MustParsePrefix("fd00:42::42/128"), "the metadata service of Scaleway"},
	{netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), "the metadata service of Oracle Cloud"},
	{netip.MustParsePrefix("fd00:ec2::/32"), "the metadata services of AWS"},
	{netip.MustParsePrefix("fd20:ce::254/128"), "the metadata service of Google Cloud"},
	{netip.MustParsePrefix(probePrefix), "Sealane's probe addresses"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// reservedFor returns the reservation that overlaps a prefix, if there is one.
func reservedFor(p netip.Prefix) (reservation, bool) {
	for _, r := range reserved {
		if r.prefix.Overlaps(p) {
			return r, true
		}
	}
	return reservation{}, false
}

// ParsePrefix parses a network that a cluster has for its pods or services, in CIDR notation. The error is an
// *Error.
func ParsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, errorf(ReasonInvalidCIDR, "%s is not a CIDR such as 10.8.0.0/16", clip.Quote(text))
	}
	minBits := MinBitsIPv6
	if p.Addr().Is4() {
		minBits = MinBitsIPv4
	}
	switch r, bad := reservedFor(p.Masked()); {
	case p.Bits() == 0:
		return netip.Prefix{}, errorf(ReasonDefaultRoute, "%s is a default route", p)
	case p != p.Masked():
		return netip.Prefix{}, errorf(ReasonNotMasked, "%s has host bits set, the network is %s", p, p.Masked())
	case bad:
		return netip.Prefix{}, errorf(ReasonReserved, "%s overlaps %s, which no cluster can have: %s", p, r.prefix, r.what)
	case p.Bits() < minBits:
		return netip.Prefix{}, errorf(ReasonTooWide, "%s is wider than /%d, which no single cluster has", p, minBits)
	}
	return p, nil
}

// ParseAddr parses the unicast address of a node or of a gateway. The error is an *Error.
func ParseAddr(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return netip.Addr{}, errorf(ReasonInvalidAddress, "%s is not a plain IP address", clip.Quote(text))
	}
	if r, bad := reservedFor(Host(a)); bad {
		return netip.Addr{}, errorf(ReasonInvalidAddress, "%s is not the address of a node: %s", a, r.what)
	}
	return a, nil
}

// ParseHost parses the address of a node that is written as a /32 or /128. A wider prefix is an error: it would
// keep others from networks that the node does not have. The error is an *Error.
func ParseHost(text string) (netip.Addr, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Addr{}, errorf(ReasonInvalidAddress, "%s is not a node address such as 192.0.2.1/32", clip.Quote(text))
	}
	if !p.IsSingleIP() {
		return netip.Addr{}, errorf(ReasonTooWide, "%s is not a node address: expected /%d", p, p.Addr().BitLen())
	}
	return ParseAddr(p.Addr().String())
}

// Host returns the /32 or /128 of an address.
func Host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Compare orders prefixes by address, IPv4 first, and then the wider first.
func Compare(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// Set returns the addresses of all valid prefixes of a list. It is never nil.
func Set(prefixes []netip.Prefix) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, p := range prefixes {
		if p.IsValid() {
			b.AddPrefix(p)
		}
	}
	set, err := b.IPSet()
	if err != nil { // only what was added can be wrong, and every prefix is valid
		return new(netipx.IPSet)
	}
	return set
}
