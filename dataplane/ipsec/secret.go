// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// secretInfo and fipsSecretInfo set the keys apart from all others that are derived from the same secrets.
const (
	secretInfo     = "sealane ipsec psk v1"
	fipsSecretInfo = "sealane ipsec psk p256 v1"
)

// Secret is the pre-shared key of two gateways: HKDF with SHA-256 of what X25519 makes of one's private and the other's
// public key, for both public keys in their order. Each end derives it for itself.
func Secret(own *ecdh.PrivateKey, peer *ecdh.PublicKey) ([]byte, error) {
	return derive(own, peer, secretInfo, own.PublicKey().Bytes(), peer.Bytes())
}

// FIPSSecret is that of two gateways by their keys of P-256. It is for their identities as well, in one order with the
// public keys: whoever publishes another's key has nothing in common with anybody.
func FIPSSecret(own *ecdh.PrivateKey, ownID plan.PeerID, peer *ecdh.PublicKey, peerID plan.PeerID) ([]byte, error) {
	return derive(own, peer, fipsSecretInfo, append([]byte(ownID), own.PublicKey().Bytes()...),
		append([]byte(peerID), peer.Bytes()...))
}

func derive(own *ecdh.PrivateKey, peer *ecdh.PublicKey, info string, first, second []byte) ([]byte, error) {
	shared, err := own.ECDH(peer)
	if err != nil {
		return nil, fmt.Errorf("derive the pre-shared key: %w", err)
	}
	if bytes.Compare(first, second) > 0 {
		first, second = second, first
	}
	return hkdf.Key(sha256.New, shared, nil, info+string(first)+string(second), sha256.Size)
}
