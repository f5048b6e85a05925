// SPDX-License-Identifier: Apache-2.0

package netfacts

import (
	"net/netip"

	"github.com/sealane-io/sealane/internal/clip"
)

// The bits of a block of global addresses: it holds the addresses of 16 gateways, two each at least, and as many again
// for services.
const (
	MinBlockBits = 8
	MaxBlockBits = 26
)

// classE is reserved (RFC 1112 section 4), and Linux routes it: what no cluster has of its own is free for global
// addresses.
var classE = netip.MustParsePrefix("240.0.0.0/4")

// ProbePrefix4 holds every probe address of IPv4, for kernels without IPv6: of a reserved range that no cluster can
// claim, without the limited broadcast address.
func ProbePrefix4() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{248}), 6) }

// broadcast is the limited broadcast address (RFC 919).
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// ParseGlobal parses a range of global addresses, a pool or one cluster's block, in CIDR notation. The error is an
// *Error.
func ParseGlobal(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || !p.Addr().Is4():
		return netip.Prefix{}, errorf(ReasonInvalidCIDR, "%s is not an IPv4 CIDR such as 242.0.0.0/8", clip.Quote(text))
	case p != p.Masked():
		return netip.Prefix{}, errorf(ReasonNotMasked, "%s has host bits set, the network is %s", p, p.Masked())
	case p.Bits() < MinBlockBits || p.Bits() > MaxBlockBits:
		return netip.Prefix{}, errorf(ReasonTooWide, "%s is not of /%d to /%d", p, MinBlockBits, MaxBlockBits)
	case p.Overlaps(ProbePrefix4()):
		return netip.Prefix{}, errorf(ReasonReserved, "%s overlaps %s, Sealane's probe addresses of IPv4", p, ProbePrefix4())
	case p.Contains(broadcast):
		return netip.Prefix{}, errorf(ReasonReserved, "%s contains %s, the broadcast address", p, broadcast)
	}
	if r, bad := reservedFor(p); bad && r.prefix != classE {
		return netip.Prefix{}, errorf(ReasonReserved, "%s overlaps %s, which no cluster can have: %s", p, r.prefix, r.what)
	}
	return p, nil
}

// GlobalIPv6Bits is the length of the prefix of the pool of global addresses of IPv6: with 16 bits more there is a /64
// for each /16 of IPv4.
const GlobalIPv6Bits = 48

// ulas are those of locally assigned global IDs (RFC 4193 section 3.1).
var ulas = netip.MustParsePrefix("fd00::/8")

// ParseGlobalIPv6 parses the pool of global addresses of IPv6 in CIDR notation. The error is an *Error.
func ParseGlobalIPv6(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || !ulas.Contains(p.Addr()) || p.Bits() != GlobalIPv6Bits:
		return netip.Prefix{}, errorf(ReasonInvalidCIDR, "%s is not a /%d of %s such as fd5e:a1a4:e242::/48",
			clip.Quote(text), GlobalIPv6Bits, ulas)
	case p != p.Masked():
		return netip.Prefix{}, errorf(ReasonNotMasked, "%s has host bits set, the network is %s", p, p.Masked())
	}
	if r, bad := reservedFor(p); bad {
		return netip.Prefix{}, errorf(ReasonReserved, "%s overlaps %s, which no cluster can have: %s", p, r.prefix, r.what)
	}
	return p, nil
}
