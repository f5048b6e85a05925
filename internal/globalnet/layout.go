// SPDX-License-Identifier: Apache-2.0

// Package globalnet is how a cluster's block of global addresses is divided. Other clusters route by it and the
// cluster's own agents allocate by it, so that nothing of it has to travel. It is pure.
//
// The lower half of a block is for what others connect to: services, and pods with an address of their own. The
// upper half has a share for each of the 16 slots of gateways. A gateway sends from its own share what it translates,
// so the answers come back to it, whatever the other gateways do. Its first address is the gateway's own.
//
// What is said of blocks holds for those of IPv4 and for what these have of IPv6, and numbers are the same in both.
package globalnet

import (
	"encoding/binary"
	"net/netip"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// slots is how many shares there are: a power of two.
const (
	slotBits = 4
	slots    = v1alpha1.MaxSlot + 1
)

var _ = [1]struct{}{}[slots-1<<slotBits]

// Ingress returns the part of a block that services and pods have their addresses in.
func Ingress(block netip.Prefix) netip.Prefix {
	b := ipv4(block)
	return of(block, netip.PrefixFrom(b.Addr(), b.Bits()+1))
}

// Share returns the part of a block from which the gateway of a slot sends.
func Share(block netip.Prefix, slot int) netip.Prefix {
	b := ipv4(block)
	bits := b.Bits() + 1 + slotBits
	return of(block, netip.PrefixFrom(add(b.Addr(), 1<<(32-b.Bits()-1)+uint32(slot)<<(32-bits)), bits))
}

// Own returns the address of the gateway of a slot itself: the source of what it sends in its own name.
func Own(block netip.Prefix, slot int) netip.Addr { return Share(block, slot).Addr() }

// ShareSize is how many addresses a share has that flows of the cluster can be sent from.
func ShareSize(block netip.Prefix) int { return 1<<(32-ipv4(block).Bits()-1-slotBits) - 1 }

// maxEgress bounds what of a share is given to namespaces and pods: all of that of a /15 or less.
const maxEgress = 4095

// EgressSize is how many addresses of each gateway's share can be given to the cluster, to namespaces and to pods.
// Their numbers begin with 1.
func EgressSize(block netip.Prefix) int { return min(ShareSize(block), maxEgress) }

// Egress returns the first and the last of the addresses of a gateway that have these numbers within its share. The
// first number is 1, for 0 is the gateway's own.
func Egress(block netip.Prefix, slot, from, to int) (first, last netip.Addr) {
	base := Own(ipv4(block), slot)
	return ofAddr(block, add(base, uint32(from))), ofAddr(block, add(base, uint32(to)))
}

// ClusterEgress is how many addresses of each gateway's share the flows of pods have that nothing else is said
// of: 8, or half of a share that has fewer than 16.
func ClusterEgress(block netip.Prefix) int { return min(8, (ShareSize(block)+1)/2) }

// At returns an address of the ingress part by its number: 0 is not used.
func At(block netip.Prefix, n int) netip.Addr {
	return ofAddr(block, add(ipv4(block).Addr(), uint32(n)))
}

// IngressSize is how many addresses the ingress part has; their numbers begin with 1.
func IngressSize(block netip.Prefix) int { return 1<<(32-ipv4(block).Bits()-1) - 1 }

// Number is the reverse of At; it is false for what is not an address that At gives.
func Number(block netip.Prefix, a netip.Addr) (int, bool) {
	if !Ingress(block).Contains(a) || a == block.Addr() {
		return 0, false
	}
	b := ipv4(block)
	if a.Is6() {
		four := ipv4Addr(a)
		if IPv6Addr(block, four) != a {
			return 0, false // it stands for none
		}
		a = four
	}
	return int(number(a) - number(b.Addr())), true
}

func number(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func add(a netip.Addr, n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], number(a)+n)
	return netip.AddrFrom4(b)
}
