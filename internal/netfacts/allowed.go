// SPDX-License-Identifier: Apache-2.0

package netfacts

import (
	"fmt"
	"net/netip"

	"go4.org/netipx"

	"github.com/sealane-io/sealane/internal/clip"
)

// ParseAllowed parses the networks, in CIDR notation, that an admin allows clusters to have. They may be wider
// than one cluster's own can be, and hold reserved ranges: those stay refused to each cluster. The error is an
// *Error.
func ParseAllowed(texts []string) (*netipx.IPSet, error) {
	var b netipx.IPSetBuilder
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, errorf(ReasonInvalidCIDR, "%s is not a CIDR such as 10.0.0.0/8", clip.Quote(text))
		}
		if p != p.Masked() {
			return nil, errorf(ReasonNotMasked, "%s has host bits set, the network is %s", p, p.Masked())
		}
		b.AddPrefix(p)
	}
	set, err := b.IPSet()
	if err != nil {
		return nil, fmt.Errorf("join networks: %w", err)
	}
	return set, nil
}
