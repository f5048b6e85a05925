// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/strongswan/govici/vici"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// answerWithin bounds what charon may take for an answer.
const answerWithin = 3 * time.Second

// deadlined is a connection on which nothing takes longer than that after the last thing that was sent.
type deadlined struct {
	net.Conn
	within time.Duration
}

func (c deadlined) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.within)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// session with charon.
type session struct{ *vici.Session }

// dial charon, which is to give each answer within that time.
func dial(ctx context.Context, path string, within time.Duration) (session, error) {
	s, err := vici.NewSession(vici.WithAddr("unix", path), vici.WithDialContext(
		func(_ context.Context, network, address string) (net.Conn, error) {
			c, err := (&net.Dialer{Timeout: within}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return deadlined{c, within}, nil
		}))
	if err != nil {
		return session{}, fmt.Errorf("connect to charon: %w", err)
	}
	return session{s}, nil
}

// values of a message, by their names.
type values map[string]any

func message(v values) (*vici.Message, error) {
	m := vici.NewMessage()
	for key, value := range v {
		if inner, ok := value.(values); ok {
			section, err := message(inner)
			if err != nil {
				return nil, err
			}
			value = section
		}
		if err := m.Set(key, value); err != nil {
			return nil, fmt.Errorf("say %s to charon: %w", key, err)
		}
	}
	return m, nil
}

// do has charon do something.
func (s session) do(command string, v values) error {
	m, err := message(v)
	if err != nil {
		return err
	}
	answer, err := s.CommandRequest(command, m)
	if err != nil && answer != nil {
		return refusal{fmt.Errorf("charon: %s: %w", command, err)}
	}
	if err != nil {
		return fmt.Errorf("charon: %s: %w", command, err)
	}
	return nil
}

// refusal is charon's answer that it does not do something. It goes on to answer.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// name of what charon has of a peer.
func name(id plan.PeerID) string { return "sl-" + hex.EncodeToString([]byte(id)) }

// identity of a gateway: its public key, as a KEY_ID of IKE.
func identity(id plan.PeerID) string { return "@#" + hex.EncodeToString([]byte(id)) }

// replayWindow is how many packets another one may have overtaken, of those that the kernel decrypts. Those of several
// processors overtake each other by more than charon's 32. The kernel's limit is 4096.
const replayWindow = "1024"

// rekeyPackets is after how many a security association of the kernel's is replaced: its sequence numbers have 32 bits.
const rekeyPackets = "3000000000"

// load gives charon the connection to a peer, which is dialled at an address and may come from any.
// With a request ID the kernel is to encrypt, else, if that is 0, charon.
func (s session) load(own plan.PeerID, p Peer, at netip.AddrPort, port uint16, secret []byte, with suite,
	request uint32) error {
	if err := s.do("load-shared", values{
		"id": name(p.ID), "type": "IKE", "data": string(secret), "owners": []string{identity(own), identity(p.ID)},
	}); err != nil {
		return err
	}
	remote := []string{"0.0.0.0/0", "::/0"}
	if at.IsValid() {
		remote = append([]string{at.Addr().String()}, remote...)
	}
	child := values{
		"local_ts":      []string{netip.PrefixFrom(plan.IPsecVTEP(own), 128).String()},
		"remote_ts":     []string{netip.PrefixFrom(plan.IPsecVTEP(p.ID), 128).String()},
		"esp_proposals": []string{with.esp}, "mode": "tunnel", "rekey_time": "1h",
		"start_action": "none", "dpd_action": "clear", "close_action": "none",
	}
	if request != 0 {
		child["if_id_in"], child["if_id_out"] = strconv.Itoa(kernelIfID), strconv.Itoa(kernelIfID)
		child["replay_window"], child["rekey_packets"] = replayWindow, rekeyPackets
		child["reqid"] = strconv.FormatUint(uint64(request), 10)
	}
	return s.do("load-conn", values{name(p.ID): values{
		"version": "2", "remote_addrs": remote, "local_port": strconv.Itoa(int(port)),
		"remote_port": strconv.Itoa(int(at.Port())), "encap": "yes", "mobike": "no", "dpd_delay": "10s",
		"unique": "replace", "keyingtries": "1", "rekey_time": "4h", "proposals": []string{with.ike},
		"local":    values{"auth": "psk", "id": identity(own)},
		"remote":   values{"auth": "psk", "id": identity(p.ID)},
		"children": values{childName: child},
	}})
}

// suite of algorithms, as strongSwan writes proposals.
type suite struct {
	ike, esp string
	// group by which keys are exchanged, as list-sas calls it.
	group string
}

var (
	usualSuite = suite{"aes128gcm16-prfsha256-x25519", "aes128gcm16-x25519", "CURVE_25519"}
	fipsSuite  = suite{"aes128gcm16-prfsha256-ecp256", "aes128gcm16-ecp256", "ECP_256"}
)

// suiteOf is the one that all peers are to have.
func suiteOf(c Config) suite {
	if c.FIPS {
		return fipsSuite
	}
	return usualSuite
}

// childName of the one pair of security associations to a peer.
const childName = "ula"

// unload takes all of a peer away.
func (s session) unload(name string) error {
	// What is not there is as it should be.
	_ = s.do("unload-conn", values{"name": name})
	_ = s.do("unload-shared", values{"id": name})
	return s.terminate(name)
}

// terminate ends a peer's security associations, without waiting for it.
func (s session) terminate(name string) error {
	err := s.do("terminate", values{"ike": name, "force": "yes", "timeout": "-1"})
	if err != nil && strings.Contains(err.Error(), "no matching SAs") {
		return nil
	}
	return err
}

// end one association of IKE, without waiting for it.
func (s session) end(id string) error {
	err := s.do("terminate", values{"ike-id": id, "force": "yes", "timeout": "-1"})
	if err != nil && strings.Contains(err.Error(), "no matching SAs") {
		return nil
	}
	return err
}

// initiate begins to establish them, without waiting for it.
func (s session) initiate(name string) error {
	return s.do("initiate", values{"ike": name, "child": childName, "timeout": "-1"})
}

// association is what charon says of one IKE security association.
type association struct {
	name string
	// id of it alone, group by which it has exchanged keys, and algorithms that it and its child have, all as charon
	// calls them.
	id, group, algorithms string

	age      time.Duration // in seconds, since it was established
	up       bool          // and its child is installed
	bare     bool          // established, and has no child
	remote   netip.AddrPort
	children []child
}

type child struct {
	spi, out       string // as hexadecimal numbers
	received, sent int64
}

// associations that charon has.
func (s session) associations() ([]association, error) {
	messages, err := s.StreamedCommandRequest("list-sas", "list-sa", nil)
	if err != nil {
		return nil, fmt.Errorf("charon: list-sas: %w", err)
	}
	var out []association
	for _, m := range messages {
		for _, key := range m.Keys() {
			if ike, ok := m.Get(key).(*vici.Message); ok {
				out = append(out, associationOf(key, ike))
			}
		}
	}
	return out, nil
}

func associationOf(name string, ike *vici.Message) association {
	a := association{name: name, id: text(ike, "uniqueid"), group: text(ike, "dh-group"),
		algorithms: "IKE " + algorithms(ike, "encr-alg", "encr-keysize", "prf-alg", "dh-group"),
		age:        time.Duration(number(ike, "established")) * time.Second}
	port, _ := strconv.ParseUint(text(ike, "remote-port"), 10, 16)
	if addr, err := netip.ParseAddr(text(ike, "remote-host")); err == nil {
		a.remote = netip.AddrPortFrom(addr, uint16(port))
	}
	established := carrying(text(ike, "state"), "ESTABLISHED")
	children, ok := ike.Get("child-sas").(*vici.Message)
	if !ok {
		a.bare = established
		return a
	}
	a.bare = established && len(children.Keys()) == 0
	for _, key := range children.Keys() {
		c, ok := children.Get(key).(*vici.Message)
		if !ok || text(c, "spi-in") == "" {
			continue
		}
		if established && carrying(text(c, "state"), "INSTALLED") {
			if !a.up {
				a.algorithms += ", ESP " + algorithms(c, "encr-alg", "encr-keysize", "dh-group")
			}
			a.up = true
		}
		a.children = append(a.children, child{spi: text(c, "spi-in"), out: text(c, "spi-out"),
			received: number(c, "bytes-in"), sent: number(c, "bytes-out")})
	}
	return a
}

// carrying says whether an association does, by its state, as it does once it is made: also while another one is about
// to take its place.
func carrying(state, made string) bool {
	return state == made || state == "REKEYING" || state == "UPDATING"
}

// algorithms are the values of some keys, as "AES_GCM_16/128/ECP_256". A child has no group until it is rekeyed: the
// first one has its keys from what IKE has exchanged.
func algorithms(m *vici.Message, keys ...string) string {
	var out []string
	for _, key := range keys {
		if value := text(m, key); value != "" {
			out = append(out, value)
		}
	}
	return strings.Join(out, "/")
}

func text(m *vici.Message, key string) string {
	s, _ := m.Get(key).(string)
	return s
}

func number(m *vici.Message, key string) int64 {
	n, _ := strconv.ParseInt(text(m, key), 10, 64)
	return n
}

// before says which of two gateways begins: the one with the smaller key. Both at once would have two of everything.
func before(own, peer plan.PeerID) bool { return bytes.Compare([]byte(own), []byte(peer)) < 0 }
