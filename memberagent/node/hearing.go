// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/dataplane/kernel"
)

// heardFor is how long a remote gateway counts as heard after its last packet. A gateway that gets no answer sends a
// handshake every 5 s or so (WireGuard, REKEY_TIMEOUT), and tries each of a few addresses for 4 s.
const heardFor = 30 * time.Second

// hearing knows from which remote gateways packets arrive, by the counters of the cables. Those count what a peer has
// proved to have sent, handshakes among it, whether or not an answer gets through to it.
type hearing map[cablePeer]heard

type heard struct {
	bytes int64
	// since is when the tunnel was first looked at, and at when the counter last grew.
	since, at time.Time
}

// look at the counters of a tunnel.
func (h hearing) look(peer kernel.PeerState, now time.Time) {
	id := cablePeer{peer.Link, peer.ID}
	last, known := h[id]
	if !known {
		last = heard{bytes: peer.ReceivedBytes, since: now}
	}
	if peer.ReceivedBytes != last.bytes && peer.ReceivedBytes > 0 {
		last.at = now
	}
	last.bytes = peer.ReceivedBytes
	h[id] = last
}

// says whether packets of a remote gateway have arrived lately; nil where it is too early to tell.
func (h hearing) says(id cablePeer, now time.Time) *bool {
	last, known := h[id]
	switch {
	case !known:
		return nil
	case !last.at.IsZero() && now.Sub(last.at) < heardFor:
		return ptr.To(true)
	case now.Sub(last.since) < heardFor:
		return nil
	}
	return ptr.To(false)
}

// forget peers that are no more.
func (h hearing) forget(present func(id cablePeer) bool) {
	for id := range h {
		if !present(id) {
			delete(h, id)
		}
	}
}
