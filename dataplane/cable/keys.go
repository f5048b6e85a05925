// SPDX-License-Identifier: Apache-2.0

package cable

import (
	"crypto/ecdh"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/sealane-io/sealane/dataplane/ipsec"
	"github.com/sealane-io/sealane/dataplane/plan"
)

const (
	nextKeyFile = "wireguard.next.key"
	keysFile    = "keys.json"
)

// Keys are the node's private keys: one, and while that is replaced the next one. Every step is on the disk before it
// returns, and a process that dies between two writes leaves what the step began from or what it leads to. It is safe
// for concurrent use.
type Keys struct {
	dir string

	mu            sync.Mutex
	current, next wgtypes.Key // next is zero while there is none, and current once it is promoted
	about         aboutKeys
	// ipsec are the keys of P-256 that belong to these; nil where the node has none.
	ipsec ipsecKeys
}

// aboutKeys is what is kept of keys besides: nothing of it is secret.
type aboutKeys struct {
	// Key is the public key of the current one, as it was when this was written.
	Key    string    `json:"key"`
	MadeAt time.Time `json:"madeAt"`
	// Next and NextMadeAt are of the next one.
	Next       string    `json:"next,omitempty"`
	NextMadeAt time.Time `json:"nextMadeAt,omitzero"`
	// Since is when the next key was made or promoted, and Former the public key before that.
	Since  time.Time `json:"since,omitzero"`
	Former string    `json:"former,omitempty"`
}

// OneKey returns keys that are not kept: there is no next one.
func OneKey(key wgtypes.Key) *Keys { return &Keys{current: key} }

// OpenKeys returns the keys in the state directory, as LoadKey does the current one. A next key that does not belong to
// the current one was never told to anybody, or is of an identity that is lost, and is removed.
func OpenKeys(dir string) (keys *Keys, problem string, err error) {
	current, problem, err := LoadKey(dir)
	if err != nil {
		return nil, "", err
	}
	k := &Keys{dir: dir, current: current}
	var kept aboutKeys
	if text, err := os.ReadFile(k.path(keysFile)); err == nil && json.Unmarshal(text, &kept) != nil {
		kept = aboutKeys{} // written by nobody here: as if it were not there
	}
	id := current.PublicKey().String()
	switch id {
	case kept.Key:
		k.about = kept
	case kept.Next: // promoted, and ended before that was noted
		k.about = aboutKeys{Key: id, MadeAt: kept.NextMadeAt, Next: id, Since: k.modified(keyFile), Former: kept.Key}
	default:
		k.about = aboutKeys{Key: id, MadeAt: k.modified(keyFile)}
	}
	k.next = k.readNext()
	if k.next == (wgtypes.Key{}) {
		k.about = aboutKeys{Key: id, MadeAt: k.about.MadeAt}
	}
	return k, problem, nil
}

func (k *Keys) path(name string) string { return filepath.Join(k.dir, name) }

// modified is when a file was written; now if nobody knows.
func (k *Keys) modified(name string) time.Time {
	if i, err := os.Stat(k.path(name)); err == nil {
		return i.ModTime()
	}
	return time.Now()
}

// readNext returns the next key, if it is the one that is noted.
func (k *Keys) readNext() wgtypes.Key {
	text, err := os.ReadFile(k.path(nextKeyFile))
	if err != nil {
		return wgtypes.Key{}
	}
	key, err := wgtypes.ParseKey(strings.TrimSpace(string(text)))
	if err != nil || k.about.Next == "" || key.PublicKey().String() != k.about.Next {
		_ = os.Remove(k.path(nextKeyFile)) // if it stays, it is of no use either
		return wgtypes.Key{}
	}
	return key
}

// Secret is the pre-shared key of this node, by an ID that one of its keys has, and a peer.
func (k *Keys) Secret(own, peer plan.PeerID) ([]byte, error) {
	k.mu.Lock()
	keys := []wgtypes.Key{k.current, k.next}
	k.mu.Unlock()
	for _, key := range keys {
		if key == (wgtypes.Key{}) || idOf(key.PublicKey()) != own {
			continue
		}
		private, err := ecdh.X25519().NewPrivateKey(key[:])
		if err != nil {
			return nil, fmt.Errorf("read the node's key: %w", err)
		}
		public, err := ecdh.X25519().NewPublicKey([]byte(peer))
		if err != nil {
			return nil, fmt.Errorf("read a peer's key: %w", err)
		}
		return ipsec.Secret(private, public)
	}
	return nil, errors.New("the node's key is another one by now")
}

// Current is the ID of this gateway to its peers.
func (k *Keys) Current() plan.PeerID {
	k.mu.Lock()
	defer k.mu.Unlock()
	return idOf(k.current.PublicKey())
}

// Next is the ID that belongs to the next key: empty while there is none, and Current once it is promoted.
func (k *Keys) Next() plan.PeerID {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.next == (wgtypes.Key{}) {
		return ""
	}
	return idOf(k.next.PublicKey())
}

// Former is the ID before the key was promoted, until Finish.
func (k *Keys) Former() plan.PeerID {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, err := wgtypes.ParseKey(k.about.Former)
	if err != nil {
		return ""
	}
	return idOf(key)
}

// MadeAt is when the current key was made.
func (k *Keys) MadeAt() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.about.MadeAt
}

// Since is when the next key was made, or promoted if it is.
func (k *Keys) Since() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.about.Since
}

// private returns the private key that belongs to an ID, if it is the node's.
func (k *Keys) private(id plan.PeerID) (wgtypes.Key, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range []wgtypes.Key{k.current, k.next} {
		if key != (wgtypes.Key{}) && idOf(key.PublicKey()) == id {
			return key, true
		}
	}
	return wgtypes.Key{}, false
}

// Offer makes the next key, which counts as made at a time.
func (k *Keys) Offer(madeAt time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.next != (wgtypes.Key{}) {
		return errors.New("there is a next key already")
	}
	next, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		return fmt.Errorf("make the next private key: %w", err)
	}
	about := k.about
	about.Key = k.current.PublicKey().String()
	about.Next, about.NextMadeAt, about.Since = next.PublicKey().String(), madeAt, time.Now()
	ipsec, err := k.withIPsecOf(next)
	if err != nil {
		return err
	}
	if err := k.write(nextKeyFile, next); err != nil {
		return fmt.Errorf("keep the next private key: %w", err)
	}
	if err := k.note(about); err != nil {
		return err
	}
	k.next, k.about, k.ipsec = next, about, ipsec
	return nil
}

// Promote makes the next key the current one. The former one is forgotten.
func (k *Keys) Promote() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.next == (wgtypes.Key{}) || k.next == k.current {
		return errors.New("there is no next key to promote")
	}
	if err := k.write(keyFile, k.next); err != nil {
		return fmt.Errorf("keep the private key: %w", err)
	}
	about := k.about
	about.Former, about.Key, about.MadeAt, about.Since = about.Key, about.Next, about.NextMadeAt, time.Now()
	k.current, k.about = k.next, about // from here on it is, whether noted or not
	return errors.Join(k.note(about), k.forgetIPsec())
}

// Finish ends the replacement of a key that is promoted.
func (k *Keys) Finish() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.next != k.current {
		return errors.New("the next key is not promoted")
	}
	if err := os.Remove(k.path(nextKeyFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the next private key: %w", err)
	}
	k.next = wgtypes.Key{}
	k.about = aboutKeys{Key: k.about.Key, MadeAt: k.about.MadeAt}
	return k.note(k.about)
}

func (k *Keys) write(name string, key wgtypes.Key) error {
	if k.dir == "" {
		return errors.New("there is no state directory")
	}
	return keep(k.path(name), key)
}

func (k *Keys) note(about aboutKeys) error {
	text, err := json.Marshal(about)
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(k.path(keysFile), text, 0o600); err != nil {
		return fmt.Errorf("note what the private keys are: %w", err)
	}
	return nil
}
