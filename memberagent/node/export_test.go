// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"time"
)

// Paces returns how a gateway probes n others of which some are busy, which come first.
func Paces(n, busy, full int) []Target {
	targets := make([]target, n)
	for i := range targets {
		address := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		targets[i] = target{address: address, busy: i < busy, full: full}
	}
	byAddress := paces(targets, 50*time.Millisecond)
	out := make([]Target, n)
	for i, t := range targets {
		out[i] = byAddress[t.address]
	}
	return out
}
