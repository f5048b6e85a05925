// SPDX-License-Identifier: Apache-2.0

package globalnet_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// TestLayout shows that the parts of a block are all of it and none overlaps another, for every size of a block.
func TestLayout(t *testing.T) {
	for bits := netfacts.MinBlockBits; bits <= netfacts.MaxBlockBits; bits++ {
		block := netip.PrefixFrom(netip.MustParseAddr("242.0.0.0"), bits)
		parts := []netip.Prefix{globalnet.Ingress(block)}
		for slot := range v1alpha1.MaxSlot + 1 {
			share := globalnet.Share(block, slot)
			parts = append(parts, share)
			first, last := globalnet.Egress(block, slot, 1, globalnet.ShareSize(block))
			if !share.Contains(first) || !share.Contains(last) || share.Contains(last.Next()) {
				t.Errorf("%s: gateway %d sends from %s to %s, its share is %s", block, slot, first, last, share)
			}
			if own := globalnet.Own(block, slot); own != share.Addr() || own.Next() != first {
				t.Errorf("%s: gateway %d has the address %s, and its flows begin with %s", block, slot, own, first)
			}
			if n := globalnet.ClusterEgress(block); n < 1 || n > globalnet.ShareSize(block) {
				t.Errorf("%s: the cluster's flows have %d addresses of %d", block, n, globalnet.ShareSize(block))
			}
		}
		addresses := 0
		for i, p := range parts {
			addresses += 1 << (32 - p.Bits())
			if p != p.Masked() || !block.Contains(p.Addr()) {
				t.Errorf("%s: part %s", block, p)
			}
			for _, q := range parts[:i] {
				if p.Overlaps(q) {
					t.Errorf("%s: %s overlaps %s", block, p, q)
				}
			}
		}
		if addresses != 1<<(32-bits) {
			t.Errorf("%s: its parts have %d addresses", block, addresses)
		}
	}
}

// FuzzIPv6 holds what a block has of IPv6 to what it is: one prefix, disjoint from those of other blocks, with
// the parts and the numbers of the block, and no others.
func FuzzIPv6(f *testing.F) {
	f.Add(uint32(0xf2010000), uint8(16), uint32(0xf2020000), uint8(16), uint8(3), uint32(10), uint64(0))
	f.Add(uint32(0x78010000), uint8(24), uint32(0x78010100), uint8(24), uint8(15), uint32(127), uint64(1))
	f.Add(uint32(0xf2000000), uint8(8), uint32(0xf2010000), uint8(26), uint8(0), uint32(1<<20), uint64(1<<63))
	pool := netip.MustParsePrefix("fd5e:a1a4:e242::/48")
	f.Fuzz(func(t *testing.T, a uint32, aBits uint8, b uint32, bBits uint8, slot uint8, n uint32, middle uint64) {
		block := func(a uint32, bits uint8) netip.Prefix {
			span := uint8(netfacts.MaxBlockBits - netfacts.MinBlockBits + 1)
			return netip.PrefixFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, a))),
				netfacts.MinBlockBits+int(bits%span)).Masked()
		}
		x, y := block(a, aBits), block(b, bBits)
		six, other := globalnet.IPv6(pool, x), globalnet.IPv6(pool, y)
		if six != six.Masked() || !pool.Contains(six.Addr()) || six.Overlaps(other) != x.Overlaps(y) ||
			(six == other) != (x == y) {
			t.Fatalf("%s has %s, and %s has %s", x, six, y, other)
		}
		s := int(slot % (v1alpha1.MaxSlot + 1))
		for what, pair := range map[string][2]netip.Prefix{
			"ingress": {globalnet.Ingress(x), globalnet.Ingress(six)},
			"share":   {globalnet.Share(x, s), globalnet.Share(six, s)},
			"own":     {netfacts.Host(globalnet.Own(x, s)), netfacts.Host(globalnet.Own(six, s))},
		} {
			if pair[1] != globalnet.IPv6(pool, pair[0]) || pair[1] != pair[1].Masked() || !six.Contains(pair[1].Addr()) {
				t.Errorf("%s: the %s of %s is %s, and of %s it is %s", what, what, x, pair[0], six, pair[1])
			}
		}
		size := globalnet.IngressSize(x)
		number := 1 + int(n)%size
		address := globalnet.At(six, number)
		if got, ok := globalnet.Number(six, address); !ok || got != number || size != globalnet.IngressSize(six) ||
			address != globalnet.IPv6Addr(six, globalnet.At(x, number)) {
			t.Errorf("%d of %s is %s, whose number is %d, %v", number, six, address, got, ok)
		}
		last := globalnet.EgressSize(six)
		from, to := globalnet.Egress(six, s, 1, last)
		if share := globalnet.Share(six, s); !share.Contains(from) || !share.Contains(to) ||
			to.As16()[13] != from.As16()[13] || last != globalnet.EgressSize(x) {
			t.Errorf("%s: gateway %d sends from %s to %s", six, s, from, to)
		}
		if middle != 0 {
			wrong := address.As16()
			binary.BigEndian.PutUint64(wrong[6:], binary.BigEndian.Uint64(wrong[6:])^middle>>16)
			stray := netip.AddrFrom16(wrong)
			if back, ok := globalnet.Number(six, stray); ok && globalnet.At(six, back) != stray {
				t.Errorf("%s has number %d, which is %s", stray, back, globalnet.At(six, back))
			}
		}
		if got, err := globalnet.ParseIPv6(six.String(), x); err != nil || got != six {
			t.Errorf("%s is read as %s: %v", six, got, err)
		}
		if _, err := globalnet.ParseIPv6(six.String(), y); (err == nil) != (x == y) {
			t.Errorf("%s is taken for that of %s", six, y)
		}
	})
}

func TestNumbers(t *testing.T) {
	block := netip.MustParsePrefix("120.1.0.0/24")
	for n, want := range map[int]string{1: "120.1.0.1", 127: "120.1.0.127"} {
		a := globalnet.At(block, n)
		if got, ok := globalnet.Number(block, a); a.String() != want || !ok || got != n {
			t.Errorf("number %d is %s, whose number is %d, %v", n, a, got, ok)
		}
	}
	if globalnet.IngressSize(block) != 127 {
		t.Errorf("%d addresses", globalnet.IngressSize(block))
	}
	for _, text := range []string{"120.1.0.0", "120.1.0.128", "120.0.255.255", "fd00::1", "::ffff:120.1.0.1"} {
		if n, ok := globalnet.Number(block, netip.MustParseAddr(text)); ok {
			t.Errorf("%s has number %d", text, n)
		}
	}
}
