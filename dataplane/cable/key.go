// SPDX-License-Identifier: Apache-2.0

package cable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

const (
	keyFile = "wireguard.key"
	// invalidKey and the time, in an order that sorts, follow the name of a key file that was of no use; of these
	// the newest maxInvalid are kept.
	invalidKey = ".invalid-"
	timeFormat = "20060102T150405.000000000Z"
	maxInvalid = 3
)

// LoadKey returns the node's private key from the state directory, and makes it the first time. A file that holds
// no key gives way to a new one and is kept beside it; where the directory cannot be read or written, the key
// is for this process only. Then problem says so: such a node has another identity than before, which the other
// clusters learn through its Gateway.
func LoadKey(dir string) (key wgtypes.Key, problem string, err error) {
	path := filepath.Join(dir, keyFile)
	text, readErr := os.ReadFile(path)
	if readErr == nil {
		// The parser's error may quote the file.
		if key, err := wgtypes.ParseKey(strings.TrimSpace(string(text))); err == nil && key != (wgtypes.Key{}) {
			return key, "", nil
		}
	}
	if key, err = wgtypes.GeneratePrivateKey(); err != nil {
		return wgtypes.Key{}, "", fmt.Errorf("make the node's private key: %w", err)
	}
	switch {
	case errors.Is(readErr, fs.ErrNotExist):
	case readErr != nil:
		return key, unkept(readErr), nil
	default:
		aside, err := putAside(dir, keyFile)
		if err != nil {
			return key, unkept(err), nil // the node works without, and says so
		}
		problem = fmt.Sprintf("%s did not hold a WireGuard private key (44 characters of base64): it is kept as %s, and "+
			"this node has a new key, which the other clusters learn by themselves", path, aside)
	}
	if err := keep(path, key); err != nil {
		return key, unkept(err), nil
	}
	return key, problem, nil
}

func unkept(err error) string {
	return fmt.Sprintf("the private key of this node cannot be kept: %s: it has a new one until it restarts, which the "+
		"other clusters learn by themselves; make the directory readable and writable, and restart the agent", err)
}

// keep writes a key. It is on the disk, whole, before anybody can learn its public half.
func keep(path string, key wgtypes.Key) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(path, []byte(key.String()+"\n"), 0o600)
}

// putAside renames a key file, of which somebody may know what it was, and returns its new name. Nobody else
// may read it: it may hold part of a key.
func putAside(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	aside := path + invalidKey + time.Now().UTC().Format(timeFormat)
	if err := errors.Join(os.Chmod(path, 0o600), os.Rename(path, aside)); err != nil {
		return "", err
	}
	old, err := filepath.Glob(path + invalidKey + "*")
	if err != nil {
		return "", err
	}
	slices.Sort(old)
	for _, o := range old[:max(0, len(old)-maxInvalid)] {
		if err := os.Remove(o); err != nil {
			return "", err
		}
	}
	return aside, nil
}
