// SPDX-License-Identifier: Apache-2.0

package cable_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/dataplane/topology"
)

const ipsecFile = "ipsec.key"

func openIPsec(t *testing.T, dir string) *cable.Keys {
	t.Helper()
	keys := openKeys(t, dir)
	if problem, err := keys.WithIPsec(); err != nil || problem != "" {
		t.Fatal(problem, err)
	}
	return keys
}

// TestIPsecKeysGoWithTheOthers: each of the node's keys has one of P-256, which is kept as it is and forgotten with it.
func TestIPsecKeysGoWithTheOthers(t *testing.T) {
	dir := t.TempDir()
	if openKeys(t, dir).IPsecPublic(openKeys(t, dir).Current()) != "" {
		t.Error("a node without ipsec has a key for it")
	}
	keys := openIPsec(t, dir)
	first := keys.Current()
	one := keys.IPsecPublic(first)
	info, err := os.Stat(filepath.Join(dir, ipsecFile))
	if err != nil || info.Mode().Perm() != 0o600 || len(one) != 88 {
		t.Fatalf("%v, %v, key %q", info, err, one)
	}
	if err := keys.Offer(time.Now()); err != nil {
		t.Fatal(err)
	}
	next := keys.Next()
	two := keys.IPsecPublic(next)
	for _, k := range []*cable.Keys{keys, openIPsec(t, dir)} {
		if k.IPsecPublic(first) != one || k.IPsecPublic(next) != two || one == two || two == "" {
			t.Errorf("offered: %q and %q", k.IPsecPublic(first), k.IPsecPublic(next))
		}
	}
	if err := keys.Promote(); err != nil {
		t.Fatal(err)
	}
	for _, k := range []*cable.Keys{keys, openIPsec(t, dir)} {
		if k.IPsecPublic(first) != "" || k.IPsecPublic(next) != two {
			t.Errorf("promoted: %q and %q", k.IPsecPublic(first), k.IPsecPublic(next))
		}
	}
	if err := keys.Finish(); err != nil {
		t.Fatal(err)
	}
	if k := openIPsec(t, dir); k.IPsecPublic(next) != two {
		t.Errorf("finished: %q, want %q", k.IPsecPublic(next), two)
	}

	// A process that died before the former one was forgotten, or before the next one was noted, leaves it.
	if err := keys.Offer(time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "keys.json")); err != nil {
		t.Fatal(err)
	}
	if k := openIPsec(t, dir); k.IPsecPublic(next) != two {
		t.Errorf("after a process that died: %q, want %q", k.IPsecPublic(next), two)
	}
	text, err := os.ReadFile(filepath.Join(dir, ipsecFile))
	if err != nil || bytes.Count(text, []byte(":")) != 1 {
		t.Errorf("the file still has a key that is gone, or %v", err)
	}
}

// TestIPsecSecretOfKeys is the same at both ends.
func TestIPsecSecretOfKeys(t *testing.T) {
	a, b := openIPsec(t, t.TempDir()), openIPsec(t, t.TempDir())
	public := func(k *cable.Keys) topology.IPsecKey {
		raw, err := base64.StdEncoding.DecodeString(k.IPsecPublic(k.Current()))
		if err != nil {
			t.Fatal(err)
		}
		return topology.IPsecKey(raw)
	}
	one, err := a.FIPSSecret(a.Current(), b.Current(), public(b))
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.FIPSSecret(b.Current(), a.Current(), public(a))
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("the other end has another secret, or %v", err)
	}
	usual, err := a.Secret(a.Current(), b.Current())
	if err != nil || bytes.Equal(one, usual) {
		t.Errorf("the secret by X25519 is the same, or %v", err)
	}
	for what, err := range map[string]error{
		"by no key of the node": func() error { _, err := a.FIPSSecret("x", b.Current(), public(b)); return err }(),
		"with no key of a peer": func() error {
			_, err := a.FIPSSecret(a.Current(), b.Current(), topology.IPsecKey{})
			return err
		}(),
	} {
		if err == nil {
			t.Error("there is a secret", what)
		}
	}
}

// TestAnUnusableIPsecKeyGivesWayToANewOne, which is said, and the file is kept without being quoted.
func TestAnUnusableIPsecKeyGivesWayToANewOne(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "half": `{"AAAA`, "nothing": "{}", "text": "secret secret",
		"no keys": `{"secret":"c2VjcmV0"}`,
		"zero":    `{"` + strings.Repeat("A", 42) + `E=":"` + strings.Repeat("A", 43) + `="}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := openIPsec(t, dir)
			path := filepath.Join(dir, ipsecFile)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			keys := openKeys(t, dir)
			problem, err := keys.WithIPsec()
			aside, _ := filepath.Glob(path + ".invalid-*")
			if err != nil || len(aside) != 1 || !strings.Contains(problem, aside[0]) ||
				strings.Contains(problem, "secret secret") {
				t.Fatalf("%q, %v, kept as %v", problem, err, aside)
			}
			id := keys.Current()
			if now := keys.IPsecPublic(id); now == "" || now == first.IPsecPublic(id) ||
				openIPsec(t, dir).IPsecPublic(id) != now {
				t.Errorf("the new key is %q", now)
			}
		})
	}
}

// TestAnIPsecKeyThatCannotBeKept is for the process, and says so; another one is not offered.
func TestAnIPsecKeyThatCannotBeKept(t *testing.T) {
	dir := t.TempDir()
	keys := openKeys(t, dir)
	if err := os.MkdirAll(filepath.Join(dir, ipsecFile, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	problem, err := keys.WithIPsec()
	if err != nil || !strings.Contains(problem, "cannot be kept") || keys.IPsecPublic(keys.Current()) == "" {
		t.Errorf("%q, %v", problem, err)
	}
	if keys.Offer(time.Now()) == nil || keys.Next() != "" {
		t.Error("a key is offered that is kept nowhere")
	}
}
