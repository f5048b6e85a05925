// SPDX-License-Identifier: Apache-2.0

package cable_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/sealane-io/sealane/dataplane/cable"
)

func TestKeyIsMadeOnceAndKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first, problem, err := cable.LoadKey(dir)
	if err != nil || problem != "" {
		t.Fatal(problem, err)
	}
	second, problem, err := cable.LoadKey(dir)
	if err != nil || problem != "" || first != second {
		t.Errorf("another key after a restart, or %q, %v", problem, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("state directory holds %v, %v", entries, err)
	}
	info, err := entries[0].Info()
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestAnUnusableKeyGivesWayToANewOne(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "short": "c2VjcmV0", "zero": strings.Repeat("A", 43) + "=", "text": "secret secret\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "wireguard.key")
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // what is found
				t.Fatal(err)
			}
			key, problem, err := cable.LoadKey(dir)
			if err != nil {
				t.Fatal(err)
			}
			invalid, _ := filepath.Glob(path + ".invalid-*")
			if len(invalid) != 1 || !strings.Contains(problem, path) || !strings.Contains(problem, invalid[0]) {
				t.Fatalf("%q does not tell of %s and %v", problem, path, invalid)
			}
			if text != "" && strings.Contains(problem, strings.TrimSpace(text)) {
				t.Errorf("%q quotes the file", problem)
			}
			if kept, err := os.ReadFile(invalid[0]); err != nil || string(kept) != text {
				t.Errorf("kept %q, %v", kept, err)
			}
			for _, file := range []string{path, invalid[0]} {
				if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%s: mode %v, %v", file, info.Mode(), err)
				}
			}
			again, problem, err := cable.LoadKey(dir)
			if err != nil || problem != "" || again != key {
				t.Errorf("after a restart another key, %q, %v", problem, err)
			}
		})
	}
}

func TestFewUnusableKeysAreKept(t *testing.T) {
	dir := t.TempDir()
	for i := range 6 {
		if err := os.WriteFile(filepath.Join(dir, "wireguard.key"), []byte{'0' + byte(i)}, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, problem, err := cable.LoadKey(dir); err != nil || problem == "" {
			t.Fatal(problem, err)
		}
	}
	invalid, _ := filepath.Glob(filepath.Join(dir, "wireguard.key.invalid-*"))
	var texts []string
	for _, path := range invalid {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	if got := strings.Join(texts, ""); got != "345" {
		t.Errorf("kept %q, want the last three", got)
	}
}

// A directory that cannot be read or written costs the identity, not the process.
func TestAKeyThatCannotBeKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	if err := os.Mkdir(filepath.Join(directory, "wireguard.key"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"no directory": file, "no file": directory} {
		t.Run(name, func(t *testing.T) {
			first, problem, err := cable.LoadKey(dir)
			if err != nil || !strings.Contains(problem, "cannot be kept") || !strings.Contains(problem, dir) {
				t.Errorf("%q, %v", problem, err)
			}
			second, _, err := cable.LoadKey(dir)
			if err != nil || first == second || first == (wgtypes.Key{}) {
				t.Errorf("the same key again, %v", err)
			}
		})
	}
}
