// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/sealane-io/sealane/dataplane/kernel"
)

const (
	// busyFor is how long a tunnel counts as one that carries traffic after its last.
	busyFor = 10 * time.Second
	// lookEvery is the least time between two looks at a tunnel's counters.
	lookEvery = 500 * time.Millisecond
	// cableOverhead bounds what a cable's counters add to a packet: WireGuard's header and tag, and its padding.
	cableOverhead = 32 + 15
	// chatterPerSecond bounds, in bytes, what else passes by a tunnel without traffic: handshakes, keepalives, and
	// the other end's probes of full size.
	chatterPerSecond = 2048
)

// traffic knows which tunnels carry traffic, by the counters of their cables. The probes of this end are known. Those
// of the other end are not: it may send one every interval of the fastest. So a tunnel that carries
// less than that and chatterPerSecond, in each direction, does not count.
type traffic struct{ peers map[cablePeer]looked }

// looked is what was found at the last look.
type looked struct {
	at             time.Time
	received, sent int64 // without this end's probes
	busy           time.Time
}

// look at a tunnel whose probes have carried so much so far. interval is the least between two of the other end's.
func (t *traffic) look(peer kernel.PeerState, probes Carried, interval time.Duration, now time.Time) {
	if t.peers == nil {
		t.peers = map[cablePeer]looked{}
	}
	last, ok := t.peers[cablePeer{peer.Link, peer.ID}]
	passed := now.Sub(last.at)
	if ok && passed < lookEvery {
		return
	}
	next := looked{at: now, busy: last.busy,
		received: peer.ReceivedBytes - probes.ReceivedBytes - cableOverhead*probes.ReceivedPackets,
		sent:     peer.SentBytes - probes.SentBytes - cableOverhead*probes.SentPackets,
	}
	theirs := 1 + int64(passed*5/4/interval)
	chatter := theirs*(probeBytes+cableOverhead) + int64(passed.Seconds()*chatterPerSecond)
	if ok && max(next.received-last.received, next.sent-last.sent) > chatter {
		next.busy = now
	}
	t.peers[cablePeer{peer.Link, peer.ID}] = next
}

// busy says whether a tunnel has carried traffic lately.
func (t *traffic) busy(id cablePeer, now time.Time) bool {
	last, ok := t.peers[id]
	return ok && !last.busy.IsZero() && now.Sub(last.busy) < busyFor
}

// forget peers that are no more.
func (t *traffic) forget(present func(id cablePeer) bool) {
	for id := range t.peers {
		if !present(id) {
			delete(t.peers, id)
		}
	}
}
