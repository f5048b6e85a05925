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

// dialPatience is how long a candidate address is given before the next is tried: less than the 5 s
// between two attempts at a handshake (WireGuard, REKEY_TIMEOUT), so that each attempt has its own.
const dialPatience = 4 * time.Second

// dialler chooses which candidate address a peer is dialled at. The handshake proves an address right;
// one that does not, or whose tunnel died, makes place for the next.
type dialler struct {
	since map[cablePeer]time.Time // since when a peer has been without a tunnel, at its present address
}

// next returns the address to dial now, if it is another than the one in use.
func (d *dialler) next(id cablePeer, works bool, inUse netip.AddrPort, candidates []netip.AddrPort,
	now time.Time) (netip.AddrPort, bool) {
	if d.since == nil {
		d.since = map[cablePeer]time.Time{}
	}
	if works || len(candidates) == 0 {
		delete(d.since, id)
		return netip.AddrPort{}, false
	}
	since, ok := d.since[id]
	if !ok {
		d.since[id] = now
	}
	i := slices.Index(candidates, inUse)
	if inUse.IsValid() && (!ok || now.Sub(since) < dialPatience) {
		return netip.AddrPort{}, false
	}
	d.since[id] = now
	next := candidates[(i+1)%len(candidates)]
	return next, next != inUse
}

// forget peers that are no more.
func (d *dialler) forget(present func(at cablePeer) bool) {
	for id := range d.since {
		if !present(id) {
			delete(d.since, id)
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
