// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/kernel"
)

// TestTheRateOfATunnelIsWithoutProbes: it is the average of whole minutes, and probes of either end are no traffic.
func TestTheRateOfATunnelIsWithoutProbes(t *testing.T) {
	const interval = 50 * time.Millisecond
	start := time.Unix(1e6, 0)
	// a second of probes of both ends, at the fastest, as the counters of the cable have them
	const probes = 20
	const encrypted = probeBytes + cableOverhead
	for name, c := range map[string]struct {
		seconds        int
		received, sent int64 // a second, besides probes
		back           int   // the second in which the cable is made anew
		want           string
	}{
		"not a minute yet":    {59, 1e6, 1e6, 0, "unknown"},
		"no traffic":          {60, 0, 0, 0, "0 0"},
		"one direction":       {60, 1e6, 0, 0, "1001900 0"},
		"both":                {200, 50_000, 2e6, 0, "51900 2001900"},
		"a cable made anew":   {80, 1e6, 1e6, 70, "unknown"},
		"and a minute later":  {131, 1e6, 1e6, 70, "1001900 1001900"},
		"less than is looked": {60, 1000, 1000, 0, "0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			var tr traffic
			var peer kernel.PeerState
			var own Carried
			id := cablePeer{peer.Link, peer.ID}
			for s := range c.seconds + 1 {
				tr.look(peer, own, interval, start.Add(time.Duration(s)*time.Second))
				own.SentPackets, own.SentBytes = own.SentPackets+probes, own.SentBytes+probes*probeBytes
				own.ReceivedPackets, own.ReceivedBytes = own.ReceivedPackets+probes, own.ReceivedBytes+probes*probeBytes
				peer.SentBytes += 2*probes*encrypted + c.sent
				peer.ReceivedBytes += 2*probes*encrypted + c.received
				if s > 0 && s == c.back {
					peer.SentBytes, peer.ReceivedBytes = 0, 0
				}
			}
			got := "unknown"
			if r := tr.rate(id); r != nil {
				got = fmt.Sprint(r.ReceivedBytesPerSecond, " ", r.SentBytesPerSecond)
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	t.Run("probes that are counted anew", func(t *testing.T) {
		var tr traffic
		var peer kernel.PeerState
		own := Carried{SentPackets: 1e6, SentBytes: 1e6 * probeBytes, ReceivedPackets: 1e6, ReceivedBytes: 1e6 * probeBytes}
		peer.SentBytes, peer.ReceivedBytes = 1e6*encrypted, 1e6*encrypted
		id := cablePeer{peer.Link, peer.ID}
		for s := range 200 {
			now := start.Add(time.Duration(s) * time.Second)
			tr.look(peer, own, interval, now)
			if r := tr.rate(id); r != nil && *r != (v1alpha1.Traffic{}) || tr.busy(id, now) {
				t.Fatalf("after %d s: %+v, busy: %t", s, r, tr.busy(id, now))
			}
			if s == 90 {
				own = Carried{}
			}
		}
		if tr.rate(id) == nil {
			t.Error("there is no rate any more")
		}
	})
	var tr traffic
	if tr.rate(cablePeer{}) != nil {
		t.Error("a tunnel that was never looked at has a rate")
	}
}
