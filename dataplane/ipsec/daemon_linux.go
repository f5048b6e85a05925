// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/renameio/v2"

	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

const (
	// tendEvery is how often charon is asked for its associations, and given what differs.
	tendEvery = 250 * time.Millisecond
	// waitForOther is how long the gateway that does not begin waits until it does all the same: the other one may not
	// get through to it.
	waitForOther = 2 * time.Second
	// tryFor is how long one address of a peer is tried.
	tryFor = 4 * time.Second
	// tryAgain is after what time the next one is tried, where something refused, or nothing came of it.
	tryAgain = time.Second
	// mostChildren is how many pairs of security associations a peer may have: one, and beside it those that follow. It is
	// the peer that makes more.
	mostChildren = 8
	// handOver is after what time associations by other algorithms are ended once there are those that are wanted. Charon
	// does so itself, after 10 s, if both have the same addresses.
	handOver = 12 * time.Second
	// silentFor is how long an association is left alone that carries nothing back, before it is made anew.
	silentFor = 3 * time.Second
)

// Config is what the daemon is to have. Without peers charon does not run.
type Config struct {
	// Own is this gateway, and Port the UDP port of it and its peers.
	Own  plan.PeerID
	Port uint16
	// MTU of the carrier.
	MTU int
	// FIPS says that no algorithms are good but those that FIPS 140 approves. What is established by others goes on until
	// it is by these.
	FIPS  bool
	Peers []Peer
}

// Peer is a remote gateway.
type Peer struct {
	ID plan.PeerID
	// Candidates at which it may be reached, the most likely first.
	Candidates []netip.AddrPort
	// Key of the curve P-256, which FIPS needs; zero if it has none.
	Key topology.IPsecKey
}

// State of the security associations with a peer.
type State struct {
	// Up says that packets can pass.
	Up bool
	// Remote is where they go, and Since is since when they are up, or down.
	Remote netip.AddrPort
	Since  time.Time
	// Received and Sent are bytes within all that there have been.
	Received, Sent int64
	// Algorithms that they have, as strongSwan calls them; empty while there are none. Other says that these are not what
	// they are to be.
	Algorithms string
	Other      bool
	// Rekeys counts the times that others have followed.
	Rekeys int
	// Trouble says what is in the way of this peer alone; empty if nothing is.
	Trouble string
}

// Secrets derives pre-shared keys.
type Secrets interface {
	// Secret of this node's own ID, which may have become another one, and a peer.
	Secret(own, peer plan.PeerID) ([]byte, error)
	// FIPSSecret is one by the node's key of P-256 and that of the peer.
	FIPSSecret(own, peer plan.PeerID, key topology.IPsecKey) ([]byte, error)
}

// Daemon drives charon. It is safe for concurrent use, and only Run ever waits for charon.
type Daemon struct {
	dir     string
	secrets Secrets
	changed func()
	wake    chan struct{}
	// peers are Run's alone.
	peers map[plan.PeerID]*peer

	// mu is never held while charon is asked something, which may not answer.
	mu      sync.Mutex
	want    Config
	told    bool // there is a want
	states  map[plan.PeerID]State
	silent  map[plan.PeerID]time.Time
	carrier string
	// carries is the gateway whose address the carrier has; empty while nobody but a former agent knows.
	carries plan.PeerID
	trouble string
}

// peer is what is known of one.
type peer struct {
	Peer
	state State
	// loaded is what charon was given; the zero value if nothing.
	loaded loaded
	// shut says that charon has nothing of it, for it has no key.
	shut bool
	// fits says that there is an association with the algorithms that are wanted, and since is since when that is so, or
	// is not.
	fits  bool
	since time.Time
	// lost says that charon had associations with it, and may be another one, which has none: who has lost them knows, and
	// the peer, which may be the one that begins, does not.
	lost bool
	// next is the candidate to dial, and tried when one was dialled last.
	next  int
	tried time.Time
	// pending says that associations are being made, or unmade, and bare that there is one of IKE by itself: its child
	// could not be installed, or was taken away. unfinished are the IDs of both.
	pending, bare bool
	unfinished    []string
	// former are the IDs of those by other algorithms.
	former []string
	// seen are its associations as they were last, by SPI: those of another charon have others.
	seen map[string]child
}

// loaded is what decides about a connection of charon's, beside the addresses.
type loaded struct {
	own  plan.PeerID
	fips bool
	key  topology.IPsecKey
}

// Open returns a daemon in a directory. changed is called when the carrier comes or goes. What charon has stays as it
// is until the first Set.
func Open(dir string, secrets Secrets, changed func()) *Daemon {
	return &Daemon{dir: dir, secrets: secrets, changed: changed, wake: make(chan struct{}, 1),
		peers: map[plan.PeerID]*peer{}, silent: map[plan.PeerID]time.Time{}, carrier: present(dir)}
}

// Set what it is to have.
func (d *Daemon) Set(c Config) {
	d.mu.Lock()
	d.want, d.told = c, true
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Carrier is the name of the link by which packets get encrypted, up and with a gateway's address; empty while there is
// none. For a while after this gateway has another key it has still the address of the former one.
func (d *Daemon) Carrier(own plan.PeerID) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.carries != "" && d.carries != own {
		return ""
	}
	return d.carrier
}

// present says whether there is a carrier, whosever address it has.
func (d *Daemon) present() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.carrier != ""
}

// State of a peer, and what is in the way of all of them; empty if nothing is.
func (d *Daemon) State(id plan.PeerID) (State, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.states[id], d.trouble
}

// Hears says whether something comes from a peer. If nothing does for long, its associations are made anew: its
// address, or its end of them, may be another one.
func (d *Daemon) Hears(id plan.PeerID, something bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.states[id]; !known || something {
		delete(d.silent, id)
	} else if d.silent[id].IsZero() {
		d.silent[id] = time.Now()
	}
}

// silentSince is since when nothing comes from a peer; zero if something does.
func (d *Daemon) silentSince(id plan.PeerID) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.silent[id]
}

// publish what is known of the peers.
func (d *Daemon) publish() {
	states := make(map[plan.PeerID]State, len(d.peers))
	for id, p := range d.peers {
		states[id] = p.state
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.states = states
	maps.DeleteFunc(d.silent, func(id plan.PeerID, _ time.Time) bool { _, is := states[id]; return !is })
}

// Run until the context ends. Charon goes on then, with what it has.
func (d *Daemon) Run(ctx context.Context) error {
	ticker := time.NewTicker(tendEvery)
	defer ticker.Stop()
	log := logr.FromContextOrDiscard(ctx)
	var s session
	defer func() {
		if s.Session != nil {
			_ = s.Close()
		}
	}()
	said := ""
	for {
		err := d.tend(ctx, &s)
		d.publish()
		now := ""
		if err != nil {
			now = err.Error()
		}
		d.mu.Lock()
		d.trouble = now
		d.mu.Unlock()
		if now != said {
			said = now
			log.Info("ipsec", "trouble", now)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-d.wake:
		}
	}
}

// tend makes charon have what it is to have.
func (d *Daemon) tend(ctx context.Context, s *session) error {
	d.mu.Lock()
	want, told := d.want, d.told
	d.mu.Unlock()
	if !told {
		return nil
	}
	err := d.ask(want)
	if err == nil && len(want.Peers) > 0 {
		err = d.connect(ctx, s, want)
	}
	carrier := ""
	// A charon that does not answer may well go on to encrypt: what carries is left to it as long as its link is there.
	if len(want.Peers) > 0 && (err == nil || d.present()) {
		var e error
		carrier, e = d.carry(want)
		err = cmp.Or(err, e)
	}
	d.mu.Lock()
	moved := carrier != d.carrier || carrier != "" && d.carries != want.Own
	d.carrier = carrier
	if carrier != "" {
		d.carries = want.Own
	}
	d.mu.Unlock()
	if moved {
		d.changed()
	}
	if err == nil && len(want.Peers) > 0 {
		if carrier == "" { // charon could install no child
			return errors.New("charon has made no link for what it encrypts, or not yet")
		}
		err = d.sync(*s, want)
	}
	if (err != nil || len(want.Peers) == 0) && s.Session != nil {
		_ = s.Close()
		s.Session = nil
		d.forget(want)
	}
	return err
}

// ask for charon at a port, or for none.
func (d *Daemon) ask(want Config) error {
	path := filepath.Join(d.dir, portFile)
	if len(want.Peers) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	port := strconv.Itoa(int(want.Port))
	if have, err := os.ReadFile(path); err == nil && string(have) == port {
		return nil
	}
	return renameio.WriteFile(path, []byte(port), 0o600)
}

func (d *Daemon) connect(ctx context.Context, s *session, want Config) error {
	if s.Session != nil {
		return nil
	}
	next, err := dial(ctx, filepath.Join(d.dir, socketFile))
	if err != nil {
		if why, failed := os.ReadFile(filepath.Join(d.dir, failedFile)); failed == nil {
			return fmt.Errorf("charon does not run: %s; it needs UDP port %d of this node for itself", why, want.Port)
		}
		return fmt.Errorf("charon does not answer: is its container there and running? %w", err)
	}
	*s = next
	d.forget(want)
	return d.sweep(next, want)
}

// forget what charon is known to have: it may be another one.
func (d *Daemon) forget(want Config) {
	for id, p := range d.peers {
		if !slices.ContainsFunc(want.Peers, func(w Peer) bool { return w.ID == id }) {
			delete(d.peers, id)
			continue
		}
		p.loaded, p.shut, p.tried = loaded{}, false, time.Time{}
		if p.state.Up {
			p.down(time.Now())
			p.lost = true
		}
	}
}

// sweep takes away what charon has of peers that are none any more, which an agent before this one may have given it.
func (d *Daemon) sweep(s session, want Config) error {
	messages, err := s.StreamedCommandRequest("list-conns", "list-conn", nil)
	if err != nil {
		return fmt.Errorf("charon: list-conns: %w", err)
	}
	for _, m := range messages {
		for _, key := range m.Keys() {
			is := func(p Peer) bool { return name(p.ID) == key }
			if strings.HasPrefix(key, "sl-") && !slices.ContainsFunc(want.Peers, is) {
				if err := s.unload(key); !ofPeer(err) {
					return err
				}
			}
		}
	}
	return nil
}

// sync gives charon its peers, looks at them, and dials those that are not up.
func (d *Daemon) sync(s session, want Config) error {
	all, err := s.associations()
	if err != nil {
		return err
	}
	now := time.Now()
	for id := range d.peers {
		if !slices.ContainsFunc(want.Peers, func(p Peer) bool { return p.ID == id }) {
			delete(d.peers, id)
			if err := s.unload(name(id)); !ofPeer(err) {
				return err
			}
		}
	}
	for _, w := range want.Peers {
		p, ok := d.peers[w.ID]
		if !ok {
			p = &peer{state: State{Since: now}, since: now}
			d.peers[w.ID] = p
		}
		if !slices.Equal(p.Candidates, w.Candidates) {
			p.next = 0
		}
		p.Peer = w
		p.note(all, suiteOf(want).group, now)
		// One peer's trouble, as with a public key that yields no secret, is none of the others.
		err := d.dial(s, want, p, now)
		if p.state.Trouble = ""; err != nil {
			p.state.Trouble = err.Error()
		}
		if !ofPeer(err) {
			return err
		}
	}
	return nil
}

// ofPeer says whether an error, if there is one, leaves charon to be asked on.
func ofPeer(err error) bool {
	var refused refusal
	var secret secretError
	return err == nil || errors.As(err, &refused) || errors.As(err, &secret)
}

// secretError is that there is no pre-shared key with a peer.
type secretError struct{ error }

func (e secretError) Unwrap() error { return e.error }

// down notes that nothing passes any more.
func (p *peer) down(now time.Time) {
	p.state.Up, p.state.Since, p.state.Algorithms, p.state.Other = false, now, "", false
	p.fits, p.since = false, now
}

// note what charon says of a peer, whose associations are to have exchanged keys by a group.
func (p *peer) note(all []association, group string, now time.Time) {
	up, fits, seen, fresh, stays := false, false, map[string]child{}, 0, false
	p.pending, p.bare, p.unfinished, p.former = false, false, nil, nil
	p.state.Algorithms, p.state.Other = "", false
	for _, a := range all {
		if a.name != name(p.ID) {
			continue
		}
		switch {
		case a.up:
			up, p.state.Remote = true, a.remote
			other := a.group != group
			if fits = fits || !other; other || p.state.Algorithms == "" {
				p.state.Algorithms, p.state.Other = a.algorithms, other // these may still carry
			}
			if other {
				p.former = append(p.former, a.id)
			}
		case a.bare:
			p.bare, p.unfinished = true, append(p.unfinished, a.id)
		default:
			p.pending, p.unfinished = true, append(p.unfinished, a.id)
		}
		for _, c := range a.children {
			was, known := p.seen[c.spi]
			if stays = stays || known; !known {
				fresh++
			}
			p.state.Received += c.received - was.received
			p.state.Sent += c.sent - was.sent
			seen[c.spi] = c
		}
	}
	if stays { // what comes in place of others comes beside them
		p.state.Rekeys += fresh
	}
	if up != p.state.Up {
		p.state.Up, p.state.Since = up, now
	}
	if fits != p.fits {
		p.fits, p.since = fits, now
	}
	p.lost = p.lost && !up
	p.seen = seen
}

// dial loads a peer's connection, and begins associations where it is time to.
func (d *Daemon) dial(s session, want Config, p *peer, now time.Time) error {
	if want.FIPS && p.Key == (topology.IPsecKey{}) {
		return d.shut(s, p, now)
	}
	p.shut = false
	patience := silentFor
	if !before(want.Own, p.ID) {
		patience += waitForOther // both at once would undo what the other has just made
	}
	silent := d.silentSince(p.ID)
	renew := p.state.Up && !silent.IsZero() && now.Sub(silent) > patience && now.Sub(p.state.Since) > patience ||
		len(p.seen) > mostChildren
	if renew {
		if err := s.terminate(name(p.ID)); err != nil {
			return err
		}
		p.down(now)
		p.tried = time.Time{}
	}
	if p.fits && now.Sub(p.since) > handOver {
		for _, id := range p.former {
			if err := s.end(id); err != nil {
				return err
			}
		}
	}
	begins := p.begins(want.Own, renew, now)
	next := loaded{want.Own, want.FIPS, p.Key}
	if p.loaded == next && !begins {
		return nil
	}
	at := netip.AddrPortFrom(netip.Addr{}, want.Port)
	switch {
	case p.state.Up && p.state.Remote.IsValid():
		at = p.state.Remote // at another address charon would end what there is at once
	case len(p.Candidates) > 0:
		at = p.Candidates[p.next%len(p.Candidates)]
	}
	secret, err := d.secret(want, p)
	if err != nil {
		return secretError{err}
	}
	if err := s.load(want.Own, p.Peer, at, want.Port, secret, suiteOf(want)); err != nil {
		return err
	}
	p.loaded = next
	if !begins {
		return nil
	}
	for _, id := range p.unfinished { // what was begun at the address before
		if err := s.end(id); err != nil {
			return err
		}
	}
	p.next++
	p.tried = now
	return s.initiate(name(p.ID))
}

// begins says whether it is time for this gateway to establish associations. While there are some, by other algorithms,
// that is less often: the other gateway, which may be the one that begins, has not heard of the change yet, and where
// both begin each would end what the other has made.
func (p *peer) begins(own plan.PeerID, renew bool, now time.Time) bool {
	wait := tryFor
	if !p.pending && (!p.state.Up || before(own, p.ID)) {
		wait = tryAgain // it was refused, or is bare
	}
	return !p.fits && len(p.Candidates) > 0 && now.Sub(p.tried) > wait &&
		(before(own, p.ID) || renew || p.lost || now.Sub(p.since) > waitForOther)
}

// shut takes away what charon has of a peer that cannot be reached by FIPS: an agent before this one may have given it
// that, or this one before the setting changed.
func (d *Daemon) shut(s session, p *peer, now time.Time) error {
	if !p.shut || p.state.Up || p.pending || p.bare {
		if err := s.unload(name(p.ID)); err != nil {
			return err
		}
		p.loaded, p.shut = loaded{}, true
		p.down(now)
	}
	return errNoKey
}

// secret in common with a peer.
func (d *Daemon) secret(want Config, p *peer) ([]byte, error) {
	if want.FIPS {
		return d.secrets.FIPSSecret(want.Own, p.ID, p.Key)
	}
	return d.secrets.Secret(want.Own, p.ID)
}

// errNoKey is that a peer cannot be reached by FIPS.
var errNoKey = secretError{errors.New("the gateway publishes no key of P-256, which the algorithms of FIPS need: " +
	"upgrade the agents of its cluster, and have ipsec's container there by install --ipsec")}
