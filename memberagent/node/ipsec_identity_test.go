// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bytes"
	"crypto/ecdh"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/strongswan/govici/vici"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/ipsec"
	"github.com/sealane-io/sealane/dataplane/plan"
)

// What vici takes for a pre-shared key and for a connection.
type (
	viciShared struct {
		ID     string   `vici:"id"`
		Type   string   `vici:"type"`
		Data   string   `vici:"data"`
		Owners []string `vici:"owners"`
	}
	viciSide struct {
		Auth string `vici:"auth"`
		ID   string `vici:"id"`
	}
	viciChild struct {
		Local  []string `vici:"local_ts"`
		Remote []string `vici:"remote_ts"`
		ESP    []string `vici:"esp_proposals"`
	}
	viciConnection struct {
		Version   string               `vici:"version"`
		Remotes   []string             `vici:"remote_addrs"`
		Port      string               `vici:"local_port"`
		To        string               `vici:"remote_port"`
		Encap     string               `vici:"encap"`
		Proposals []string             `vici:"proposals"`
		Local     viciSide             `vici:"local"`
		Remote    viciSide             `vici:"remote"`
		Children  map[string]viciChild `vici:"children"`
	}
)

// TestAnotherGatewaysIdentityIsOfNoUse to who has not its private key, nor another's outer address to who has one.
func TestAnotherGatewaysIdentityIsOfNoUse(t *testing.T) {
	t.Parallel()
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{"c1": byIPsec, "c2": byIPsec})
	n.sendBy(t, "sl-ci0", byIPsec)
	f := newTraffic(t, n.worker1, n.worker2)
	thief := n.newMachine(t, "thief", "c2", 9, "10.9.9", "fd09:0:0:9")
	withIPsec(t, thief)
	port := filepath.Join(thief.path("ipsec"), "port")
	if err := os.WriteFile(port, []byte(strconv.Itoa(ipsecPort)), 0o600); err != nil {
		t.Fatal(err)
	}
	own, peer := n.gw1.peer(t), n.gw2.peer(t)
	key := n.gw2.privateKey(t)
	private, err := ecdh.X25519().NewPrivateKey(key[:])
	if err != nil {
		t.Fatal(err)
	}
	public, err := ecdh.X25519().NewPublicKey(peer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := ipsec.Secret(private, public)
	if err != nil {
		t.Fatal(err)
	}
	wrong := bytes.Clone(secret)
	wrong[0] ^= 1
	for range 3 {
		if err := thief.claims(t, own, peer, n.gw1.ip, wrong); err == nil {
			t.Fatal("the thief has an association with gw1 by another secret")
		}
	}
	f.stretch.lasts(t, 500*time.Millisecond)
	f.whole(t, "another claims to be gw2")
	// Who has it is not let speak for another gateway, whose outer address it asks for.
	if err := thief.claimsAs(t, own, bytes.Repeat([]byte{7}, len(own)), peer, n.gw1.ip, secret); err == nil {
		t.Error("by gw2's secret there is an association for the outer address of another gateway")
	}
	if err := thief.claims(t, own, peer, n.gw1.ip, secret); err != nil {
		t.Errorf("by the right secret there is no association either, so this could not fail: %v", err)
	}
}

// claims has charon of a machine begin associations as a gateway, by its public key, with another.
func (m *machine) claims(t *testing.T, own, peer []byte, at string, secret []byte) error {
	t.Helper()
	return m.claimsAs(t, own, own, peer, at, secret)
}

// claimsAs asks in these for the outer address of a gateway that may be another one.
func (m *machine) claimsAs(t *testing.T, own, outer, peer []byte, at string, secret []byte) error {
	t.Helper()
	var s *vici.Session
	eventually(t, 10*time.Second, m.name+" has a charon with a link", func() bool {
		if s != nil {
			_ = s.Close()
		}
		var err error
		s, err = vici.NewSession(vici.WithSocketPath(filepath.Join(m.path("ipsec"), "vici.sock")))
		return err == nil && m.command("ip link set dev ipsec0 up").Run() == nil
	})
	defer func() { _ = s.Close() }()
	id := func(key []byte) string { return "@#" + hex.EncodeToString(key) }
	selects := func(key []byte) []string { return []string{plan.IPsecVTEP(plan.PeerID(key)).String() + "/128"} }
	m.run(t, "ip addr replace "+selects(outer)[0]+" dev ipsec0 nodad")
	do := func(command string, v any) error {
		request, err := vici.MarshalMessage(v)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.CommandRequest(command, request)
		if err == nil {
			err = answer.Err()
		}
		return err
	}
	port := strconv.Itoa(ipsecPort)
	if err := errors.Join(do("load-shared", viciShared{"one", "IKE", string(secret), []string{id(own), id(peer)}}),
		do("load-conn", map[string]viciConnection{"one": {
			"2", []string{at}, port, port, "yes", []string{"aes128gcm16-prfsha256-x25519"}, viciSide{"psk", id(own)},
			viciSide{"psk", id(peer)}, map[string]viciChild{"ula": {selects(outer), selects(peer),
				[]string{"aes128gcm16-x25519"}}}}})); err != nil {
		t.Fatal(err)
	}
	return do("initiate", map[string]string{"child": "ula", "timeout": "5000"})
}
