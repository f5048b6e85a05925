// SPDX-License-Identifier: Apache-2.0

package globalnet

import (
	"fmt"
	"net/netip"

	"github.com/sealane-io/sealane/internal/netfacts"
)

// Global addresses of IPv6 are those of IPv4 in another notation. Of the pool's /48 the first half of an IPv4 address
// chooses the /64, and its second half is the end of the address:
//
//	fd5e:a1a4:e242 : <bits 0 to 15> : 0 : 0 : 0 : <bits 16 to 31>
//
// So who has an address, a share or a block has it of both families, and there is nothing more to give out.

// IPv6 returns the prefix of IPv6 that stands for one of IPv4, in the /48 that a prefix of IPv6 is in. It is invalid if
// one of the two is.
func IPv6(in, p netip.Prefix) netip.Prefix {
	if !in.IsValid() || !p.IsValid() {
		return netip.Prefix{}
	}
	bits := poolBits + p.Bits()
	if p.Bits() > 16 {
		bits = 96 + p.Bits()
	}
	return netip.PrefixFrom(IPv6Addr(in, p.Addr()), bits)
}

// IPv6Addr does the same with an address.
func IPv6Addr(in netip.Prefix, a netip.Addr) netip.Addr {
	out, b := in.Addr().As16(), a.As4()
	clear(out[8:])
	copy(out[6:8], b[:2])
	copy(out[14:], b[2:])
	return netip.AddrFrom16(out)
}

// ipv4 returns the block of IPv4 that one of IPv6 stands for, or a block of IPv4 itself.
func ipv4(block netip.Prefix) netip.Prefix {
	if !block.Addr().Is6() {
		return block
	}
	bits := block.Bits() - poolBits
	if bits > 16 {
		bits = block.Bits() - 96
	}
	return netip.PrefixFrom(ipv4Addr(block.Addr()), bits)
}

func ipv4Addr(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom4([4]byte{b[6], b[7], b[14], b[15]})
}

// of returns what a part of a block of IPv4 is in the block itself, which may be of IPv6.
func of(block, part netip.Prefix) netip.Prefix {
	if block.Addr().Is6() {
		return IPv6(block, part)
	}
	return part
}

// ofAddr does the same with an address.
func ofAddr(block netip.Prefix, a netip.Addr) netip.Addr {
	if block.Addr().Is6() {
		return IPv6Addr(block, a)
	}
	return a
}

// ParseIPv6 parses what a block of IPv4 has of IPv6. Which /48 that is in is not known here. The error says what is
// expected.
func ParseIPv6(text string, block netip.Prefix) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil || !p.Addr().Is6() || p != IPv6(p, block) {
		return netip.Prefix{}, fmt.Errorf("%q is not what the block %s has of IPv6", text, block)
	}
	if _, err := netfacts.ParseGlobalIPv6(netip.PrefixFrom(p.Addr(), poolBits).Masked().String()); err != nil {
		return netip.Prefix{}, err
	}
	return p, nil
}

const poolBits = netfacts.GlobalIPv6Bits
