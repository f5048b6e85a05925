// SPDX-License-Identifier: Apache-2.0

package cable

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/google/renameio/v2"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/sealane-io/sealane/dataplane/ipsec"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// ipsecFile holds, for each of the node's WireGuard keys, the key of P-256 that belongs to it: a JSON object of private
// keys by the public keys of WireGuard, all in base64. So one is replaced with the other by a single write of the
// latter, and no process that dies between two writes leaves a pair that does not belong together.
const ipsecFile = "ipsec.key"

// ipsecKeys are private keys of P-256 by the IDs that the WireGuard keys have to which they belong.
type ipsecKeys map[plan.PeerID]*ecdh.PrivateKey

// WithIPsec has the node have keys of P-256 too, for IPsec by FIPS: those of the state directory, or new ones where
// there are none. As with LoadKey, problem says why there are others than before, or that they are for this process
// only.
func (k *Keys) WithIPsec() (problem string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kept, readErr := k.readIPsec()
	have := ipsecKeys{}
	missing := readErr != nil
	for _, key := range []wgtypes.Key{k.current, k.next} {
		if key == (wgtypes.Key{}) {
			continue
		}
		id := idOf(key.PublicKey())
		if have[id] = kept[id]; have[id] != nil {
			continue
		}
		missing = true
		if have[id], err = ecdh.P256().GenerateKey(rand.Reader); err != nil {
			return "", fmt.Errorf("make the node's key for ipsec: %w", err)
		}
	}
	k.ipsec = have
	if !missing && len(kept) > len(have) { // of a key that is gone; if it stays, it is of no use either
		_ = k.keepIPsec(have)
	}
	if !missing {
		return "", nil
	}
	var damaged damagedError
	switch {
	case errors.As(readErr, &damaged):
		aside, err := putAside(k.dir, ipsecFile)
		if err != nil {
			return unkept(err), nil
		}
		problem = fmt.Sprintf("%s did not hold private keys for ipsec: it is kept as %s, and this node has new ones, which "+
			"the other clusters learn by themselves", k.path(ipsecFile), aside)
	case readErr != nil:
		return unkept(readErr), nil
	}
	if err := k.keepIPsec(have); err != nil {
		return unkept(err), nil
	}
	return problem, nil
}

// damagedError is that a file holds no keys.
type damagedError struct{ error }

// readIPsec returns what is kept: nothing where there is no file. An error never quotes the file.
func (k *Keys) readIPsec() (ipsecKeys, error) {
	text, err := os.ReadFile(k.path(ipsecFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var kept map[string]string
	if json.Unmarshal(text, &kept) != nil || len(kept) == 0 {
		return nil, damagedError{errors.New("no JSON object of keys")}
	}
	out := ipsecKeys{}
	for public, private := range kept {
		raw, err := base64.StdEncoding.Strict().DecodeString(private)
		id, idErr := wgtypes.ParseKey(public)
		if err != nil || idErr != nil {
			return nil, damagedError{errors.New("no base64 of keys")}
		}
		if out[idOf(id)], err = ecdh.P256().NewPrivateKey(raw); err != nil {
			return nil, damagedError{errors.New("no private key of P-256")}
		}
	}
	return out, nil
}

// keepIPsec writes keys. They are on the disk, whole, before anybody can learn their public halves.
func (k *Keys) keepIPsec(keys ipsecKeys) error {
	if k.dir == "" {
		return errors.New("there is no state directory")
	}
	kept := map[string]string{}
	for id, key := range keys {
		kept[id.String()] = base64.StdEncoding.EncodeToString(key.Bytes())
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	return renameio.WriteFile(k.path(ipsecFile), append(text, '\n'), 0o600)
}

// withIPsecOf returns the keys of P-256 with that of a WireGuard key which follows, if there are any, kept.
func (k *Keys) withIPsecOf(next wgtypes.Key) (ipsecKeys, error) {
	if k.ipsec == nil {
		return nil, nil
	}
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the next key for ipsec: %w", err)
	}
	own := idOf(k.current.PublicKey())
	out := ipsecKeys{own: k.ipsec[own], idOf(next.PublicKey()): key}
	if err := k.keepIPsec(out); err != nil {
		return nil, fmt.Errorf("keep the next key for ipsec: %w", err)
	}
	return out, nil
}

// forgetIPsec leaves none but the one of the current key.
func (k *Keys) forgetIPsec() error {
	if k.ipsec == nil {
		return nil
	}
	own := idOf(k.current.PublicKey())
	k.ipsec = ipsecKeys{own: k.ipsec[own]}
	if err := k.keepIPsec(k.ipsec); err != nil {
		return fmt.Errorf("forget the former key for ipsec: %w", err)
	}
	return nil
}

func (k *Keys) ipsecOf(own plan.PeerID) *ecdh.PrivateKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ipsec[own]
}

// IPsecPublic is the public key of P-256 that belongs to an ID of this node, as it is published; empty if there
// is none.
func (k *Keys) IPsecPublic(own plan.PeerID) string {
	key := k.ipsecOf(own)
	if key == nil {
		return ""
	}
	return base64.StdEncoding.EncodeToString(key.PublicKey().Bytes())
}

// FIPSSecret is the pre-shared key, by P-256, of this node, by an ID that one of its keys has, and a peer.
func (k *Keys) FIPSSecret(own, peer plan.PeerID, key topology.IPsecKey) ([]byte, error) {
	private := k.ipsecOf(own)
	if private == nil {
		return nil, errors.New("the node's key for ipsec is another one by now")
	}
	public, err := ecdh.P256().NewPublicKey(key[:])
	if err != nil {
		return nil, fmt.Errorf("read a peer's key for ipsec: %w", err)
	}
	return ipsec.FIPSSecret(private, own, public, peer)
}
