// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
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
	"github.com/vishvananda/netlink"

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
	// handOver is after what time associations by other algorithms are ended once there are those that are wanted, and
	// older ones beside a younger one. Charon does so itself, after 10 s, if both have the same addresses.
	handOver = 12 * time.Second
	// moments is the least difference of the ages of two associations by which both ends agree which is the younger one:
	// each hears of them by itself, in whole seconds.
	moments = 4 * time.Second
	// silentFor is how long an association is left alone that carries nothing back, before it is made anew.
	silentFor = 3 * time.Second
	// staysFor is after what time keys are said to stay that are not renewed.
	staysFor = 10 * time.Second
	// sweepEvery is how often the kernel is looked at for security associations that no charon knows.
	sweepEvery = 30 * time.Second
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
	// Kernel says that packets are the kernel's to encrypt, and not charon's.
	Kernel bool
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
	// peers are Run's alone, and kernel, which says that the carrier is the kernel's.
	peers  map[plan.PeerID]*peer
	kernel bool
	// swept is when the kernel was last looked at for what no charon knows, and strays are the SPIs that it had then.
	swept  time.Time
	strays map[string]bool

	// mu is never held while charon is asked something, which may not answer.
	mu     sync.Mutex
	want   Config
	told   bool // there is a want
	states map[plan.PeerID]State
	silent map[plan.PeerID]time.Time
	// answered is when charon did last.
	answered time.Time
	carrier  string
	// carries is the gateway whose address the carrier has; empty while nobody but a former agent knows.
	carries plan.PeerID
	trouble string
}

// Open returns a daemon in a directory. changed is called when the carrier comes or goes. What charon has stays as it
// is until the first Set.
func Open(dir string, secrets Secrets, changed func()) *Daemon {
	return &Daemon{dir: dir, secrets: secrets, changed: changed, wake: make(chan struct{}, 1),
		peers: map[plan.PeerID]*peer{}, silent: map[plan.PeerID]time.Time{}, carrier: present(dir), answered: time.Now()}
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

// Stays says why the keys with a peer, which the kernel goes on to encrypt with, are not about to be renewed; empty if
// they are, or for moments in which charon starts.
func (d *Daemon) Stays(id plan.PeerID) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	state, known := d.states[id]
	switch {
	case d.carrier != plan.KernelCarrier:
		return ""
	case time.Since(d.answered) > staysFor:
		return cmp.Or(d.trouble, "charon does not answer")
	case known && !state.Up && time.Since(state.Since) > staysFor:
		return "charon is another one, and has made none with that gateway"
	}
	return ""
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
	d.mu.Lock()
	if !d.told { // it may be long since Open
		d.carrier, d.answered = present(d.dir), time.Now()
	}
	d.mu.Unlock()
	said := ""
	for ctx.Err() == nil {
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
		case <-ticker.C:
		case <-d.wake:
		}
	}
	return nil
}

// tend makes charon have what it is to have.
func (d *Daemon) tend(ctx context.Context, s *session) error {
	d.mu.Lock()
	want, told := d.want, d.told
	d.mu.Unlock()
	if !told {
		return nil
	}
	err := ask(d.dir, want.port())
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

// port that charon is to have; 0 if it is to be no more.
func (c Config) port() uint16 {
	if len(c.Peers) == 0 {
		return 0
	}
	return c.Port
}

// ask for charon at a port, or at 0 for none.
func ask(dir string, port uint16) error {
	path, text := filepath.Join(dir, portFile), strconv.Itoa(int(port))
	if have, err := os.ReadFile(path); err == nil && string(have) == text {
		return nil
	}
	return renameio.WriteFile(path, []byte(text), 0o600)
}

func (d *Daemon) connect(ctx context.Context, s *session, want Config) error {
	if s.Session != nil {
		return nil
	}
	next, err := dial(ctx, filepath.Join(d.dir, socketFile), answerWithin)
	if err != nil {
		if why, failed := os.ReadFile(filepath.Join(d.dir, failedFile)); failed == nil {
			return fmt.Errorf("charon does not run: %s%s", why, needsPort(string(why), want.Port))
		}
		return fmt.Errorf("charon does not answer: is its container there and running? %w", err)
	}
	*s = next
	d.forget(want)
	return d.sweep(next, want)
}

// needsPort adds to why charon does not run what it needs, where that is about its port.
func needsPort(why string, port uint16) string {
	if !strings.Contains(why, "bind") {
		return ""
	}
	return fmt.Sprintf("; it needs UDP port %d of this node for itself", port)
}

// forget what charon is known to have: it may be another one. What the kernel encrypts passes on without it.
func (d *Daemon) forget(want Config) {
	for id, p := range d.peers {
		if !slices.ContainsFunc(want.Peers, func(w Peer) bool { return w.ID == id }) {
			delete(d.peers, id)
			continue
		}
		p.loaded, p.shut, p.tried = loaded{}, false, time.Time{}
		if p.state.Up {
			p.lost, p.next = true, 0
		}
		if p.state.Up && !d.kernel {
			p.down(time.Now())
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
	d.mu.Lock()
	d.answered = now
	d.mu.Unlock()
	for id := range d.peers {
		if !slices.ContainsFunc(want.Peers, func(p Peer) bool { return p.ID == id }) {
			delete(d.peers, id)
			if err := s.unload(name(id)); !ofPeer(err) {
				return err
			}
		}
	}
	var left map[uint32]netip.AddrPort
	for _, w := range want.Peers {
		p, ok := d.peers[w.ID]
		if !ok {
			p = &peer{state: State{Since: now}, since: now}
			d.peers[w.ID] = p
			if d.kernel && left == nil {
				if left, err = leftAt(); err != nil {
					return err
				}
			}
			if id, err := d.request(want.Own, w.ID); err == nil {
				p.state.Remote, p.lost = left[id], left[id].IsValid()
			}
		}
		if !slices.Equal(p.Candidates, w.Candidates) {
			p.next = 0
		}
		p.Peer = w
		p.note(all, suiteOf(want).group, now)
		p.state.Kernel = d.kernel
		// One peer's trouble, as with a public key that yields no secret, is none of the others.
		err := d.dial(s, want, p, now)
		if p.state.Trouble = ""; err != nil {
			p.state.Trouble = err.Error()
		}
		if !ofPeer(err) {
			return err
		}
	}
	// What charon does not know may be the only keys with a peer, until there are others.
	allUp := !slices.ContainsFunc(slices.Collect(maps.Values(d.peers)), func(p *peer) bool { return !p.state.Up })
	if d.kernel && allUp && now.Sub(d.swept) > sweepEvery {
		d.swept = now
		return d.sweepKernel(all, want)
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

// sweepKernel takes away what a charon that was killed has left in the kernel: security associations that this one knew
// neither now nor the last time, and policies for those who are no peers any more, or with a former address.
func (d *Daemon) sweepKernel(all []association, want Config) error {
	known, peers, strays := map[string]bool{}, map[netip.Addr]bool{}, map[string]bool{}
	for _, a := range all {
		for _, c := range a.children {
			known[c.spi], known[c.out] = true, true
		}
	}
	for _, p := range want.Peers {
		peers[plan.IPsecVTEP(p.ID)] = true
	}
	own := plan.IPsecVTEP(want.Own)
	err := flush(func(s *netlink.XfrmState) bool {
		spi := fmt.Sprintf("%08x", uint32(s.Spi))
		if !known[spi] {
			strays[spi] = true
		}
		return strays[spi] && d.strays[spi]
	}, func(p *netlink.XfrmPolicy) bool {
		far, near := p.Src, p.Dst
		if p.Dir == netlink.XFRM_DIR_OUT {
			far, near = p.Dst, p.Src
		}
		return !peers[addressOf(far)] || addressOf(near) != own
	})
	d.strays = strays
	return err
}

// addressOf a policy's end.
func addressOf(n *net.IPNet) netip.Addr {
	if n == nil {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(n.IP)
	return a
}
