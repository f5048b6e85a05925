// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// redials is a driver that counts how often another address is dialled.
type redials struct {
	kernel.Driver
	times int
}

func (d *redials) Redial(string, plan.PeerID, netip.AddrPort) error {
	d.times++
	return nil
}

// TestWhoAnswersIsNotDialledElsewhere: a peer that answers, but has to for longer until it counts as alive, is not sent
// to another address, or traffic goes there as soon as it is.
func TestWhoAnswersIsNotDialledElsewhere(t *testing.T) {
	r := remote{cluster: "c2", gateway: topology.Gateway{Node: "gw2", PublicKey: topology.Key{1}}, link: "sl-c0",
		probe: netip.MustParseAddr("fd51::1"), candidates: []netip.AddrPort{
			netip.MustParseAddrPort("192.0.2.1:4500"), netip.MustParseAddrPort("192.0.2.2:4500")}}
	state := kernel.PeerState{Link: r.link, ID: r.id(), Endpoint: r.candidates[0], ReceivedBytes: 1}
	for _, c := range []struct {
		name             string
		series           series
		connected, vxlan bool
		redials          int
	}{
		{"silent", series{live: dead}, false, false, 1},
		{"silent, and by VXLAN, which nobody dials", series{live: dead}, false, true, 0},
		{"answers again, and is held for dead", series{live: dead, streak: 1}, false, false, 0},
		{"alive", series{live: alive}, false, false, 0},
		{"connected", series{}, true, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := r
			if c.vxlan {
				r.gateway.VTEP = r.candidates[0].Addr()
			}
			d := &redials{}
			a := &Agent{cable: d, prober: &Prober{series: map[netip.Addr]*probed{r.probe: {series: &c.series}}}}
			now := time.Unix(1000, 0)
			for range 2 {
				a.dial(t.Context(), r, state, c.connected, now)
				now = now.Add(dialPatience)
			}
			if d.times != c.redials {
				t.Errorf("dialled another address %d times, want %d", d.times, c.redials)
			}
		})
	}
}

func TestDialler(t *testing.T) {
	a, b := netip.MustParseAddrPort("192.0.2.1:4500"), netip.MustParseAddrPort("192.0.2.2:4500")
	roamed := netip.MustParseAddrPort("203.0.113.1:999")
	candidates := []netip.AddrPort{a, b}
	now := time.Unix(1000, 0)
	var d dialler
	step := func(works, heard bool, inUse netip.AddrPort, after time.Duration) netip.AddrPort {
		now = now.Add(after)
		next, ok := d.next(cablePeer{"sl-c0", "peer"}, works, heard, inUse, candidates, now)
		if !ok {
			return netip.AddrPort{}
		}
		return next
	}
	const works, heard = true, true
	for i, c := range []struct {
		works, heard bool
		inUse        netip.AddrPort
		after        time.Duration
		want         netip.AddrPort
	}{
		{!works, heard, a, 0, netip.AddrPort{}},             // new: has its time
		{!works, heard, a, time.Second, netip.AddrPort{}},   // still
		{!works, heard, a, dialPatience, b},                 // the next
		{!works, heard, b, time.Second, netip.AddrPort{}},   // has its time too
		{!works, heard, b, dialPatience, a},                 // round
		{works, heard, a, time.Second, netip.AddrPort{}},    // works
		{works, heard, roamed, time.Hour, netip.AddrPort{}}, // where it roamed to is right
		{!works, heard, roamed, 0, netip.AddrPort{}},        // gets its time
		{!works, heard, roamed, dialPatience, a},            // and then the first
		{!works, heard, netip.AddrPort{}, 0, a},             // no address at all: at once
		{works, heard, a, time.Second, netip.AddrPort{}},
		{!works, !heard, a, 0, netip.AddrPort{}},           // new, and never heard: has its time
		{!works, !heard, a, firstPatience, b},              // which is short
		{!works, !heard, b, firstPatience, a},              //
		{!works, !heard, a, dialHaste, b},                  // for a while
		{!works, !heard, b, time.Second, netip.AddrPort{}}, // and then no more
		{!works, !heard, b, dialPatience, a},
	} {
		if got := step(c.works, c.heard, c.inUse, c.after); got != c.want {
			t.Errorf("step %d: dial %v, want %v", i, got, c.want)
		}
	}
	candidates = []netip.AddrPort{b}
	if got := step(!works, heard, b, time.Hour); got.IsValid() {
		t.Errorf("heard before, at its only address: it is dialled there again, which does nothing")
	}
	if got := step(!works, !heard, b, time.Hour); got != b {
		t.Errorf("never heard, at its only address: expected another attempt there, found %v", got)
	}
	d.forget(func(cablePeer) bool { return false })
	if len(d.peers) != 0 {
		t.Error("a peer that is gone is remembered")
	}
}

// TestTheFirstAttemptIsNotWaitedForLonger than it is given: peers are looked at again when it has had its time.
func TestTheFirstAttemptIsNotWaitedForLonger(t *testing.T) {
	here := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:4500")}
	begin := time.Unix(1000, 0)
	for _, c := range []struct {
		name  string
		heard bool
		at    time.Duration // of the second look
		want  time.Duration // until the next, by then
	}{
		{"its first attempt is on its way", false, 0, firstPatience},
		{"and still is", false, 200 * time.Millisecond, firstPatience - 200*time.Millisecond},
		{"it has had another", false, firstPatience, measureEvery},
		{"it was heard before, and is lost", true, 0, measureEvery},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d dialler
			id := cablePeer{"sl-c0", "peer"}
			d.next(id, false, c.heard, here[0], here, begin)
			d.next(id, false, c.heard, here[0], here, begin.Add(c.at))
			if got := d.due(begin.Add(c.at), measureEvery); got != c.want {
				t.Errorf("expected a look in %s, found in %s", c.want, got)
			}
			if got := d.due(begin.Add(time.Hour), measureEvery); got != measureEvery {
				t.Errorf("a look that is late: the next in %s, expected %s", got, measureEvery)
			}
			d.next(id, false, true, here[0], here, begin.Add(c.at))
			if got := d.due(begin.Add(c.at), measureEvery); got != measureEvery {
				t.Errorf("it was heard, and does not work yet: the next look is in %s", got)
			}
			d.next(id, true, true, here[0], here, begin.Add(c.at))
			if got := d.due(begin.Add(c.at), measureEvery); got != measureEvery {
				t.Errorf("it works, and the next look is in %s", got)
			}
		})
	}
}

func TestProvenEndpointComesFirst(t *testing.T) {
	dir := t.TempDir()
	a, b := netip.MustParseAddrPort("192.0.2.1:4500"), netip.MustParseAddrPort("[2001:db8::1]:4500")
	p := newProven(dir)
	if err := p.load(); err != nil {
		t.Fatal(err)
	}
	if got := p.first("sl-c0", "peer", []netip.AddrPort{a, b}); got[0] != a {
		t.Errorf("nothing known: %v", got)
	}
	if err := p.save(map[string]netip.AddrPort{plan.PeerID("peer").String(): b}); err != nil {
		t.Fatal(err)
	}
	if p = newProven(dir); p.load() != nil {
		t.Fatal("what was saved cannot be loaded")
	}
	if got := p.first("sl-c0", "peer", []netip.AddrPort{a, b}); !slices.Equal(got, []netip.AddrPort{b, a}) {
		t.Errorf("after a restart: %v", got)
	}
	if got := p.first("sl-c16", "peer", []netip.AddrPort{a, b}); got[0] != a {
		t.Errorf("the cable with next keys is dialled at the port of the usual one: %v", got)
	}
	if err := os.WriteFile(p.path, []byte(`{"p`), 0o600); err != nil {
		t.Fatal(err)
	}
	if p = newProven(dir); p.load() == nil || len(p.endpoints) != 0 {
		t.Errorf("half a file gave %v and no error", p.endpoints)
	}
}
