// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/bpf"

	"github.com/sealane-io/sealane/dataplane/kernel"
)

// TestHearing: a gateway is heard while the counter of its tunnel grows, and not heard once it has not for 30 s.
func TestHearing(t *testing.T) {
	start := time.Now()
	h := hearing{}
	id := cablePeer{"sl-c0", "peer"}
	for _, step := range []struct {
		at    time.Duration
		bytes int64
		want  string
	}{
		{0, 0, "<nil>"}, {29 * time.Second, 0, "<nil>"}, {30 * time.Second, 0, "false"}, // never heard
		{31 * time.Second, 148, "true"}, {60 * time.Second, 148, "true"}, {61 * time.Second, 148, "false"},
		{62 * time.Second, 0, "false"},   // the cable was made anew
		{63 * time.Second, 148, "true"},  // and heard of again
		{90 * time.Second, 296, "true"},  // at each look
		{119 * time.Second, 296, "true"}, // since the last growth
	} {
		now := start.Add(step.at)
		h.look(kernel.PeerState{Link: id.link, ID: id.id, ReceivedBytes: step.bytes}, now)
		got := "<nil>"
		if says := h.says(id, now); says != nil {
			got = fmt.Sprint(*says)
		}
		if got != step.want {
			t.Errorf("after %s with %d bytes: %s, want %s", step.at, step.bytes, got, step.want)
		}
	}
	h.forget(func(cablePeer) bool { return false })
	if h.says(id, start) != nil || len(h) != 0 {
		t.Error("a peer that is no more is known")
	}
}

// TestBeaconsOfNodesAlone: addresses that nobody expects take no room, and one that is expected for the first time has
// until it is late.
func TestBeaconsOfNodesAlone(t *testing.T) {
	start := time.Now()
	b := &beacons{}
	one, two, other := netip.MustParseAddr("fd51::1"), netip.MustParseAddr("fd51::2"), netip.MustParseAddr("fd51::3")
	b.expect([]netip.Addr{one}, start)
	b.note(other, start)
	if len(b.heard) != 1 {
		t.Errorf("heard %v", b.heard)
	}
	b.note(one, start.Add(unheardAfter))
	b.expect([]netip.Addr{one, two}, start.Add(unheardAfter+time.Second))
	if got := b.unheard(start.Add(2*unheardAfter + time.Second)); !got[one] || got[two] {
		t.Errorf("unheard %v", got)
	}
}

// TestBeaconFilter lets nothing else pass: not other echo requests, nor answers of the same length.
func TestBeaconFilter(t *testing.T) {
	packet := func(header int, kind byte, length int) []byte {
		p := make([]byte, header+length)
		p[header] = kind
		return p
	}
	for _, c := range []struct {
		name   string
		ipv4   bool
		packet []byte
		passes bool
	}{
		{"a beacon of IPv6", false, packet(0, 128, beaconBytes), true},
		{"a beacon of IPv4", true, packet(20, 8, beaconBytes), true},
		{"a probe", false, packet(0, 128, echoBytes), false},
		{"a large probe", false, packet(0, 128, 1380), false},
		{"an answer", false, packet(0, 129, beaconBytes), false},
		{"an answer of IPv4", true, packet(20, 0, beaconBytes), false},
		{"nothing", false, nil, false},
	} {
		machine, err := bpf.NewVM(beaconFilter(c.ipv4))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := machine.Run(c.packet); err != nil || n > 0 != c.passes {
			t.Errorf("%s: %d, %v", c.name, n, err)
		}
	}
}
