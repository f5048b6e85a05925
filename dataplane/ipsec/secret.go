// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
)

// secretInfo sets the keys apart from all others that are derived from the same secret.
const secretInfo = "sealane ipsec psk v1"

// Secret is the pre-shared key of two gateways: HKDF with SHA-256 of what X25519 makes of one's private and the other's
// public key, for both public keys in their order. Each end derives it for itself.
func Secret(own *ecdh.PrivateKey, peer *ecdh.PublicKey) ([]byte, error) {
	shared, err := own.ECDH(peer)
	if err != nil {
		return nil, fmt.Errorf("derive the pre-shared key: %w", err)
	}
	first, second := own.PublicKey().Bytes(), peer.Bytes()
	if bytes.Compare(first, second) > 0 {
		first, second = second, first
	}
	return hkdf.Key(sha256.New, shared, nil, secretInfo+string(first)+string(second), sha256.Size)
}
