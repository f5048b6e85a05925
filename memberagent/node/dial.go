// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"slices"
	"time"
)

// dialPatience is how long a candidate address is given before the next is tried.
const dialPatience = 5 * time.Second

// dialler chooses which candidate address a peer is dialled at. The handshake proves an address right;
// one that does not, or whose tunnel died, makes place for the next.
type dialler struct {
	since map[[32]byte]time.Time // since when a peer has been without a tunnel, at its present address
}

// next returns the address to dial now, if it is another than the one in use.
func (d *dialler) next(key [32]byte, works bool, inUse netip.AddrPort, candidates []netip.AddrPort, now time.Time) (netip.AddrPort, bool) {
	if d.since == nil {
		d.since = map[[32]byte]time.Time{}
	}
	if works || len(candidates) == 0 {
		delete(d.since, key)
		return netip.AddrPort{}, false
	}
	since, ok := d.since[key]
	if !ok {
		d.since[key] = now
	}
	i := slices.Index(candidates, inUse)
	if inUse.IsValid() && (!ok || now.Sub(since) < dialPatience) {
		return netip.AddrPort{}, false
	}
	d.since[key] = now
	next := candidates[(i+1)%len(candidates)]
	return next, next != inUse
}

// forget peers that are no more.
func (d *dialler) forget(present func(key [32]byte) bool) {
	for key := range d.since {
		if !present(key) {
			delete(d.since, key)
		}
	}
}
