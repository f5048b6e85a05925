// SPDX-License-Identifier: Apache-2.0

package netfacts_test

import (
	"testing"

	"github.com/sealane-io/sealane/internal/netfacts"
)

func TestParseGlobal(t *testing.T) {
	for text, reason := range map[string]string{
		"242.0.0.0/8":        "",
		"120.1.0.0/24":       "",
		"10.0.0.0/8":         "",
		"240.0.0.0/8":        "",
		"242.1.0.0/26":       "",
		"242.1.0.0/27":       netfacts.ReasonTooWide,
		"240.0.0.0/4":        netfacts.ReasonTooWide,
		"0.0.0.0/0":          netfacts.ReasonTooWide,
		"255.0.0.0/8":        netfacts.ReasonReserved,
		"255.255.255.192/26": netfacts.ReasonReserved,
		"254.0.0.0/8":        "",
		"252.0.0.0/8":        "",
		"247.0.0.0/8":        "",
		"248.0.0.0/8":        netfacts.ReasonReserved,
		"251.255.0.0/16":     netfacts.ReasonReserved,
		"224.0.0.0/8":        netfacts.ReasonReserved,
		"127.0.0.0/8":        netfacts.ReasonReserved,
		"169.254.0.0/16":     netfacts.ReasonReserved,
		"100.64.0.0/10":      netfacts.ReasonReserved,
		"242.1.0.1/24":       netfacts.ReasonNotMasked,
		"fd00::/48":          netfacts.ReasonInvalidCIDR,
		"::ffff:242.0.0.0/8": netfacts.ReasonInvalidCIDR,
		"242.0.0.0":          netfacts.ReasonInvalidCIDR,
		"":                   netfacts.ReasonInvalidCIDR,
	} {
		p, err := netfacts.ParseGlobal(text)
		if netfacts.Reason(err) != reason || (err == nil) != p.IsValid() {
			t.Errorf("%q: %v, %v, want %q", text, p, err, reason)
		}
	}
}
