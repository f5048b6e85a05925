// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/internal/netfacts"
)

// parsePrefix parses one CIDR that a cluster claims.
func parsePrefix(s string) (netip.Prefix, *fault) {
	p, err := netfacts.ParsePrefix(s)
	return p, faultOf(err)
}

// parseAddr parses a unicast address of a node or gateway.
func parseAddr(s string) (netip.Addr, *fault) {
	a, err := netfacts.ParseAddr(s)
	return a, faultOf(err)
}

// parseKey parses an X25519 public key in base64.
func parseKey(s string) (Key, *fault) {
	key, err := netfacts.ParsePublicKey(s)
	return key, faultOf(err)
}

// faultOf returns the fault that an error of netfacts is; nil for none.
func faultOf(err error) *fault {
	if err == nil {
		return nil
	}
	return &fault{netfacts.Reason(err), err.Error()}
}

// sorted sorts prefixes and drops duplicates.
func sorted(prefixes []netip.Prefix) []netip.Prefix {
	slices.SortFunc(prefixes, netfacts.Compare)
	return slices.Compact(prefixes)
}
