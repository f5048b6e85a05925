// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

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
	// former are the IDs of those by other algorithms, and good those by the ones that are wanted.
	former []string
	good   []association
	// seen are its associations as they were last, by SPI: those of another charon have others.
	seen map[string]child
}

// loaded is what decides about a connection of charon's, beside the addresses.
type loaded struct {
	own    plan.PeerID
	fips   bool
	key    topology.IPsecKey
	kernel bool
}

// down notes that nothing passes any more.
func (p *peer) down(now time.Time) {
	p.state.Up, p.state.Since, p.state.Algorithms, p.state.Other = false, now, "", false
	p.fits, p.since = false, now
}

// note what charon says of a peer, whose associations are to have exchanged keys by a group.
func (p *peer) note(all []association, group string, now time.Time) {
	up, fits, seen, fresh, stays := false, false, map[string]child{}, 0, false
	p.pending, p.bare, p.unfinished, p.former, p.good = false, false, nil, nil, nil
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
			} else {
				p.good = append(p.good, a)
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
		for _, id := range append(p.former, p.surplus(want.Own)...) {
			if err := s.end(id); err != nil {
				return err
			}
		}
	}
	begins := p.begins(want.Own, renew, now)
	next := loaded{want.Own, want.FIPS, p.Key, d.kernel}
	if p.loaded == next && !begins {
		return nil
	}
	at := netip.AddrPortFrom(netip.Addr{}, want.Port)
	switch {
	case p.state.Up && p.state.Remote.IsValid():
		at = p.state.Remote // at another address charon would end what there is at once
	case len(p.Candidates) > 0:
		all := p.addresses()
		at = all[p.next%len(all)]
	}
	secret, err := d.secret(want, p)
	if err != nil {
		return secretError{err}
	}
	request, err := d.request(want.Own, p.ID)
	if err != nil {
		return secretError{err}
	}
	if err := s.load(want.Own, p.Peer, at, want.Port, secret, suiteOf(want), request); err != nil {
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

// addresses to dial, in turns: the candidates, and before these, of a peer whose associations charon has lost, the one
// that they had. It may be of a NAT, where nobody else knows the port, and the peer, whose packets all seem to arrive,
// does not dial itself.
func (p *peer) addresses() []netip.AddrPort {
	if p.lost && p.state.Remote.IsValid() {
		return append([]netip.AddrPort{p.state.Remote}, p.Candidates...)
	}
	return p.Candidates
}

// surplus are the IDs of associations that another one has made superfluous, as after both ends have begun. Charon
// ends those of the same addresses, and not one of IPv4 for one of IPv6. What goes by one that the peer's charon has
// forgotten, as it was killed, goes nowhere until that is noticed. Both ends have to keep the same one, and each may
// take another for the younger: the end that begins chooses. The other one, which may be the only one that has two,
// waits for that, and never chooses between two that came within moments.
func (p *peer) surplus(own plan.PeerID) (ids []string) {
	if len(p.good) < 2 {
		return nil
	}
	youngest := slices.MinFunc(p.good, func(a, b association) int { return cmp.Compare(a.age, b.age) })
	chooses := before(own, p.ID)
	if youngest.age < handOver || !chooses && youngest.age < 2*handOver {
		return nil
	}
	for _, a := range p.good {
		if a.id != youngest.id && (chooses || a.age-youngest.age > moments) {
			ids = append(ids, a.id)
		}
	}
	return ids
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

// request is the ID of what the kernel encrypts for a peer; 0 where charon encrypts.
func (d *Daemon) request(own, id plan.PeerID) (uint32, error) {
	if !d.kernel {
		return 0, nil
	}
	secret, err := d.secrets.Secret(own, own)
	if err != nil {
		return 0, err
	}
	return requestID(secret, id), nil
}

// errNoKey is that a peer cannot be reached by FIPS.
var errNoKey = secretError{errors.New("the gateway publishes no key of P-256, which the algorithms of FIPS need: " +
	"upgrade the agents of its cluster, and have ipsec's container there by install --ipsec")}
