// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// dialPatience is how long a candidate address of a peer that was heard before is given until the next is tried: less
// than the 5 s between two attempts at a handshake (WireGuard, REKEY_TIMEOUT), so that each attempt has its own.
// A peer that was never heard is dialled anew, which begins with an attempt, so that firstPatience will do: what comes
// back needs a round trip. One that cannot be reached so for dialHaste is given more time.
const (
	dialPatience  = 4 * time.Second
	firstPatience = 500 * time.Millisecond // the first time; else peers are looked at every second
	dialHaste     = 30 * time.Second
)

// dialler chooses which candidate address a peer is dialled at. The handshake proves an address right;
// one that does not, or whose tunnel died, makes place for the next.
type dialler struct {
	peers map[cablePeer]lostPeer
}

// lostPeer is a peer without a tunnel.
type lostPeer struct {
	lost  time.Time // when it was first seen to be without one
	since time.Time // when its present address was dialled
	// first says that it was never heard, and that nothing was tried since lost.
	first bool
}

// next returns the address to dial now. Of a peer that was heard before it is another than the one in use; one that was
// not may be dialled at the same address again.
func (d *dialler) next(id cablePeer, works, heard bool, inUse netip.AddrPort, candidates []netip.AddrPort,
	now time.Time) (netip.AddrPort, bool) {
	if d.peers == nil {
		d.peers = map[cablePeer]lostPeer{}
	}
	if works || len(candidates) == 0 {
		delete(d.peers, id)
		return netip.AddrPort{}, false
	}
	peer, known := d.peers[id]
	if !known {
		peer = lostPeer{lost: now, since: now, first: !heard}
		d.peers[id] = peer
	}
	if heard && peer.first { // it is on its way
		peer.first = false
		d.peers[id] = peer
	}
	patience := dialPatience
	if !heard && now.Sub(peer.lost) < dialHaste {
		patience = firstPatience
	}
	if inUse.IsValid() && (!known || now.Sub(peer.since) < patience) {
		return netip.AddrPort{}, false
	}
	peer.since, peer.first = now, false
	d.peers[id] = peer
	next := candidates[(slices.Index(candidates, inUse)+1)%len(candidates)]
	return next, next != inUse || !heard
}

// due is how long until the first attempt of a peer has had its time, at most most. A cable of an agent that begins has
// no peer that was heard, and one packet that is lost then is an interruption.
func (d *dialler) due(now time.Time, most time.Duration) time.Duration {
	for _, p := range d.peers {
		// One that is past was looked at just now.
		if left := p.since.Add(firstPatience).Sub(now); p.first && left > 0 {
			most = min(most, left)
		}
	}
	return most
}

// forget peers that are no more.
func (d *dialler) forget(present func(at cablePeer) bool) {
	for id := range d.peers {
		if !present(id) {
			delete(d.peers, id)
		}
	}
}

// proven remembers, across restarts, where peers were last reached. Userspace cables end with the
// process, and a peer that is dialled there at once is back after one round trip.
type proven struct {
	path      string
	endpoints map[string]netip.AddrPort // by provenName
}

// provenName names a peer of a cable: by its ID in base64, and on a cable with next keys also by the link, for such a
// peer is reached at another port.
func provenName(link string, id plan.PeerID) string {
	if plan.OfNextKeys(link) {
		return link + " " + id.String()
	}
	return id.String()
}

func newProven(dir string) *proven {
	return &proven{path: filepath.Join(dir, "endpoints.json"), endpoints: map[string]netip.AddrPort{}}
}

// load what the process before has kept. That saves time, no more: nothing of it has to be there, or be readable.
func (p *proven) load() error {
	text, err := os.ReadFile(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &p.endpoints)
	}
	if err != nil {
		p.endpoints = map[string]netip.AddrPort{}
	}
	return err
}

// save writes the endpoints for a restart.
func (p *proven) save(endpoints map[string]netip.AddrPort) error {
	text, err := json.Marshal(endpoints)
	if err != nil {
		return err
	}
	return replaceFile(p.path, text)
}

// first returns the candidates with the proven one ahead.
func (p *proven) first(link string, id plan.PeerID, candidates []netip.AddrPort) []netip.AddrPort {
	known, ok := p.endpoints[provenName(link, id)]
	if !ok {
		return candidates
	}
	others := slices.DeleteFunc(slices.Clone(candidates), func(c netip.AddrPort) bool { return c == known })
	return append([]netip.AddrPort{known}, others...)
}
