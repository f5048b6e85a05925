// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"fmt"
	"net/netip"
	"strings"

	"go4.org/netipx"

	"github.com/sealane-io/sealane/internal/clip"
)

// addPrefixes adds all of a list, or none if one is no CIDR.
func addPrefixes(into *netipx.IPSetBuilder, texts ...string) error {
	prefixes := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("%s is not a CIDR such as 10.8.0.0/16", clip.Quote(text))
		}
		prefixes = append(prefixes, p.Masked())
	}
	for _, p := range prefixes {
		into.AddPrefix(p)
	}
	return nil
}

func addAll(into, from *netipx.IPSetBuilder) error {
	set, err := from.IPSet()
	if err != nil {
		return err
	}
	into.AddSet(set)
	return nil
}

func removeRanges(from *netipx.IPSetBuilder, separator string, texts []string) error {
	for _, text := range texts {
		r, err := parseRange(text, separator)
		if err != nil {
			return err
		}
		from.RemoveRange(r)
	}
	return nil
}

// parseRange parses one address, or the first and the last of several with a separator in between.
func parseRange(text, separator string) (netipx.IPRange, error) {
	first, last, several := strings.Cut(strings.TrimSpace(text), separator)
	if !several {
		last = first
	}
	from, err := netip.ParseAddr(strings.TrimSpace(first))
	if err == nil {
		var to netip.Addr
		if to, err = netip.ParseAddr(strings.TrimSpace(last)); err == nil {
			if r := netipx.IPRangeFrom(from.WithZone(""), to.WithZone("")); r.IsValid() {
				return r, nil
			}
		}
	}
	return netipx.IPRange{}, fmt.Errorf("%s is neither an address nor a range such as 10.6.0.10%s10.6.0.20",
		clip.Quote(text), separator)
}
