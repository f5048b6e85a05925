// SPDX-License-Identifier: Apache-2.0

package cable_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/dataplane/cable"
)

func TestKeyIsMadeOnceAndKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first, err := cable.LoadKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := cable.LoadKey(dir)
	if err != nil || first != second {
		t.Errorf("another key after a restart, or %v", err)
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

func TestUnusableKeyIsAnErrorAndStays(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "short": "c2VjcmV0", "zero": strings.Repeat("A", 43) + "=", "text": "secret secret\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "wireguard.key")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := cable.LoadKey(dir)
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "remove it") {
				t.Errorf("error %v does not say what to do with %s", err, path)
			}
			if text != "" && err != nil && strings.Contains(err.Error(), strings.TrimSpace(text)) {
				t.Errorf("error %v quotes the file", err)
			}
			if left, _ := os.ReadFile(path); string(left) != text {
				t.Error("the file was changed")
			}
		})
	}
}
