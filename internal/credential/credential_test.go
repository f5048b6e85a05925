// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// sign makes a token of claims that nobody verifies.
func sign(claims string) string {
	return "h." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".s"
}

func TestParse(t *testing.T) {
	got, err := Parse(sign(`{"sub":"system:serviceaccount:sealane-system:sealane-controller","iat":1000,"exp":1600}`) +
		"\n")
	if err != nil {
		t.Fatal(err)
	}
	if got.Account.String() != "sealane-system/sealane-controller" || !got.RenewAt().Equal(time.Unix(1300, 0)) {
		t.Errorf("%+v, to renew at %s", got, got.RenewAt())
	}
	for name, text := range map[string]string{
		"empty":             "",
		"not three parts":   "a.b",
		"not base64":        "a.!.c",
		"not JSON":          "a." + base64.RawURLEncoding.EncodeToString([]byte("{")) + ".c",
		"of a user":         sign(`{"sub":"admin","iat":1,"exp":2}`),
		"never expires":     sign(`{"sub":"system:serviceaccount:a:b","iat":1}`),
		"without namespace": sign(`{"sub":"system:serviceaccount:b","iat":1,"exp":2}`),
	} {
		if _, err := Parse(text); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFileIsReplacedWhole(t *testing.T) {
	file := File(filepath.Join(t.TempDir(), "token"))
	for _, token := range []string{"first, longer", "second"} {
		if err := file.Write(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		if got, err := file.Read(t.Context()); got != token || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	if info, err := os.Stat(string(file)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info, err)
	}
	if left, err := os.ReadDir(filepath.Dir(string(file))); err != nil || len(left) != 1 {
		t.Errorf("left over: %v, %v", left, err)
	}
	if err := File(filepath.Join(t.TempDir(), "none", "token")).Write(t.Context(), "x"); err == nil {
		t.Error("written to a directory that does not exist")
	}
}
