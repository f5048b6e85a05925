// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/kernel"
)

const (
	// busyFor is how long a tunnel counts as one that carries traffic after its last.
	busyFor = 10 * time.Second
	// lookEvery is the least time between two looks at a tunnel's counters, rateOver that of which a rate is the average.
	lookEvery = 500 * time.Millisecond
	rateOver  = time.Minute
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
	probes         Carried
	busy           time.Time
	// from are the counters that the next rate is reckoned from, and rate the last one, nil before the first.
	from counted
	rate *v1alpha1.Traffic
}

// counted is what had passed at a time, without this end's probes.
type counted struct {
	at             time.Time
	received, sent int64
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
	if probes.SentPackets < last.probes.SentPackets || probes.ReceivedPackets < last.probes.ReceivedPackets {
		// They count from nothing again, as for a target that was left out for a time, and the cable's do not.
		ok, last.from, last.rate = false, counted{}, nil
	}
	next := looked{at: now, busy: last.busy, from: last.from, rate: last.rate, probes: probes,
		received: peer.ReceivedBytes - probes.ReceivedBytes - cableOverhead*probes.ReceivedPackets,
		sent:     peer.SentBytes - probes.SentBytes - cableOverhead*probes.SentPackets,
	}
	if ok && max(next.received-last.received, next.sent-last.sent) > chatter(passed, interval) {
		next.busy = now
	}
	next.average(counted{now, next.received, next.sent}, interval)
	t.peers[cablePeer{peer.Link, peer.ID}] = next
}

// chatter bounds what passes in one direction, in bytes, within a time without traffic.
func chatter(passed, interval time.Duration) int64 {
	theirs := 1 + int64(passed*5/4/interval)
	return theirs*(probeBytes+cableOverhead) + int64(passed.Seconds()*chatterPerSecond)
}

// average begins a rate, or ends one that is long enough. Counters that have gone back are those of another cable.
func (l *looked) average(now counted, interval time.Duration) {
	passed := now.at.Sub(l.from.at)
	received, sent := now.received-l.from.received, now.sent-l.from.sent
	switch {
	case l.from.at.IsZero() || received < 0 || sent < 0:
		l.from, l.rate = now, nil
	case passed >= rateOver:
		perSecond := func(bytes int64) int64 {
			if bytes <= chatter(passed, interval) {
				return 0
			}
			return int64(float64(bytes) / passed.Seconds())
		}
		l.from, l.rate = now, &v1alpha1.Traffic{ReceivedBytesPerSecond: perSecond(received),
			SentBytesPerSecond: perSecond(sent)}
	}
}

// rate is what a tunnel carried on average in the last minute that has passed; nil before there is one.
func (t *traffic) rate(id cablePeer) *v1alpha1.Traffic { return t.peers[id].rate }

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
