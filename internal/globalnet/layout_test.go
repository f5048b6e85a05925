// SPDX-License-Identifier: Apache-2.0

package globalnet_test

import (
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
