// SPDX-License-Identifier: Apache-2.0

package cable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

const keyFile = "wireguard.key"

// LoadKey returns the node's private key from the state directory, and makes it the first time. A key
// file that is there but unusable is an error and left alone: another key would be another identity,
// which every other cluster would first have to learn.
func LoadKey(dir string) (wgtypes.Key, error) {
	path := filepath.Join(dir, keyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newKey(path)
	}
	if err != nil {
		return wgtypes.Key{}, fmt.Errorf("read the node's private key: %w", err)
	}
	// The parser's error may quote the file.
	key, err := wgtypes.ParseKey(strings.TrimSpace(string(text)))
	if err != nil || key == (wgtypes.Key{}) {
		return wgtypes.Key{}, fmt.Errorf("%s does not hold a WireGuard private key (44 characters of base64): "+
			"restore it, or remove it so that this node takes a new identity when it restarts", path)
	}
	return key, nil
}

// newKey makes a key. It is on the disk, whole, before anybody can learn its public half.
func newKey(path string) (wgtypes.Key, error) {
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		return wgtypes.Key{}, fmt.Errorf("make the node's private key: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return wgtypes.Key{}, fmt.Errorf("keep the node's private key: %w", err)
	}
	if err := renameio.WriteFile(path, []byte(key.String()+"\n"), 0o600); err != nil {
		return wgtypes.Key{}, fmt.Errorf("keep the node's private key: %w", err)
	}
	return key, nil
}
