// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// dialPatience is how long a candidate address is given before the next is tried: less than the 5 s
// between two attempts at a handshake (WireGuard, REKEY_TIMEOUT), so that each attempt has its own.
const dialPatience = 4 * time.Second

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

// proven remembers, across restarts, where peers were last reached. Userspace cables end with the
// process, and a peer that is dialled there at once is back after one round trip.
type proven struct {
	path      string
	endpoints map[string]netip.AddrPort // by public key, base64
}

func newProven(dir string) (*proven, error) {
	p := &proven{path: filepath.Join(dir, "endpoints.json"), endpoints: map[string]netip.AddrPort{}}
	text, err := os.ReadFile(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(text, &p.endpoints) != nil {
		p.endpoints = map[string]netip.AddrPort{} // it saves time, no more
	}
	return p, nil
}

// set replaces what is remembered, if it differs.
func (p *proven) set(endpoints map[string]netip.AddrPort) error {
	if maps.Equal(endpoints, p.endpoints) {
		return nil
	}
	text, err := json.Marshal(endpoints)
	if err != nil {
		return err
	}
	p.endpoints = endpoints
	return replaceFile(p.path, text)
}

// first returns the candidates with the proven one ahead.
func (p *proven) first(key [32]byte, candidates []netip.AddrPort) []netip.AddrPort {
	known, ok := p.endpoints[keyText(key)]
	if !ok {
		return candidates
	}
	others := slices.DeleteFunc(slices.Clone(candidates), func(c netip.AddrPort) bool { return c == known })
	return append([]netip.AddrPort{known}, others...)
}

func keyText(key [32]byte) string { return base64.StdEncoding.EncodeToString(key[:]) }
