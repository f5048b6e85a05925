// SPDX-License-Identifier: Apache-2.0

package ipsec_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"testing"

	"github.com/sealane-io/sealane/dataplane/ipsec"
	"github.com/sealane-io/sealane/dataplane/plan"
)

// TestFIPSSecret is the same at both ends, and another one for whoever claims somebody's key or identity.
func TestFIPSSecret(t *testing.T) {
	const a, b, c = plan.PeerID("a"), plan.PeerID("b"), plan.PeerID("c")
	keys := map[plan.PeerID]*ecdh.PrivateKey{}
	for _, id := range []plan.PeerID{a, b, c} {
		key, err := ecdh.P256().GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keys[id] = key
	}
	secret := func(own, as, peer, claims plan.PeerID) []byte {
		out, err := ipsec.FIPSSecret(keys[own], as, keys[peer].PublicKey(), claims)
		if err != nil || len(out) != 32 {
			t.Fatal(out, err)
		}
		return out
	}
	one := secret(a, a, b, b)
	if !bytes.Equal(one, secret(b, b, a, a)) {
		t.Error("the two ends have different secrets")
	}
	for what, other := range map[string][]byte{
		"of another peer":                  secret(a, a, c, c),
		"of one that claims b's key":       secret(a, a, b, c),
		"of one that claims b's identity":  secret(a, a, c, b),
		"of one that claims a's own key":   secret(a, a, a, c),
		"of the same keys, the other way":  secret(a, b, b, a),
		"of another node that claims to a": secret(c, a, b, b),
	} {
		if bytes.Equal(one, other) {
			t.Errorf("the secret %s is the same", what)
		}
	}
	x, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ipsec.FIPSSecret(keys[a], a, x.PublicKey(), b); err == nil {
		t.Error("a key of X25519 yields a secret")
	}
}
