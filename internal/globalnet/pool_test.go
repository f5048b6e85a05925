// SPDX-License-Identifier: Apache-2.0

package globalnet_test

import (
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
)

func TestPoolOfIPv6(t *testing.T) {
	for text, want := range map[string]string{"": "fd5e:a1a4:e242::/48", "fd00:1:2::/48": "fd00:1:2::/48",
		"fd00:1:2::/47": "", "fd00:1:2::/56": "", "2001:db8:1::/48": "", "fd51:1:2::/48": "", "fd00:1:2:3::/48": "",
		"fd00:ec2::/48": "", "242.0.0.0/8": "", "fd00:1:2::": "", "x": ""} {
		p, err := globalnet.PoolOf(v1alpha1.GlobalnetSpec{IPv6CIDR: text})
		if (err == nil) != (want != "") || err == nil && p.IPv6.String() != want {
			t.Errorf("%q: %s, %v, want %q", text, p.IPv6, err, want)
		}
	}
}

func TestParsePool(t *testing.T) {
	for _, c := range []struct {
		cidrs string
		bits  int
		size  int // 0: refused
	}{
		{"242.0.0.0/8", 16, 256},
		{"242.0.0.0/8 243.0.0.0/10", 16, 320},
		{"120.0.0.0/8", 24, 65536},
		{"120.0.0.0/8", 25, 0},
		{"242.1.0.0/16", 16, 1},
		{"242.1.0.0/16", 15, 0},
		{"242.1.0.0/26", 26, 1},
		{"242.1.0.0/16", 27, 0},
		{"242.0.0.0/8 242.1.0.0/16", 16, 0},
		{"242.0.0.1/8", 16, 0},
		{"127.0.0.0/8", 16, 0},
		{"fd00::/48", 16, 0},
		{"", 16, 0},
		{"242.0.0.0/8", 0, 0},
		{"242.0.0.0/8", -8, 0},
	} {
		p, err := globalnet.ParsePool(strings.Fields(c.cidrs), c.bits)
		if p.Size() != c.size || (err == nil) != (c.size > 0) {
			t.Errorf("%q in blocks of /%d: %d blocks, %v", c.cidrs, c.bits, p.Size(), err)
		}
	}
}
