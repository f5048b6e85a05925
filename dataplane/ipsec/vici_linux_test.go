// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
)

// TestRefused: that charon does not do something is said in its answer, and is one peer's trouble. That it does not
// answer is everybody's.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		what    string
		answer  []byte // of VICI, without its length; none ends the connection
		refused bool
		fails   bool
	}{
		{"done", answer("success", "yes"), false, false},
		{"refused", answer("success", "no", "errmsg", "invalid value"), true, true},
		{"no answer", nil, false, true},
	} {
		path := filepath.Join(t.TempDir(), "vici.sock")
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		go answerOnce(l, c.answer)
		s, err := dial(t.Context(), path, answerWithin)
		if err != nil {
			t.Fatal(err)
		}
		err = s.do("load-conn", values{"name": "one"})
		var r refusal
		if errors.As(err, &r) != c.refused || (err != nil) != c.fails || ofPeer(err) != (c.refused || !c.fails) {
			t.Errorf("%s: %v", c.what, err)
		}
		_ = s.Close()
		_ = l.Close()
	}
}

// answer of VICI to a command, of keys and values.
func answer(pairs ...string) []byte {
	out := []byte{1}
	for i := 0; i < len(pairs); i += 2 {
		key, value := pairs[i], pairs[i+1]
		out = append(append(out, 3, byte(len(key))), key...)
		out = append(binary.BigEndian.AppendUint16(out, uint16(len(value))), value...)
	}
	return out
}

// answerOnce answers the first command of a session; its second connection, for events, is left alone.
func answerOnce(l net.Listener, answer []byte) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			var size [4]byte
			if _, err := io.ReadFull(c, size[:]); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(size[:]))); err != nil || answer == nil {
				return
			}
			_, _ = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...))
			_, _ = io.Copy(io.Discard, c)
		}()
	}
}

// TestAssociation: one is up whose child is installed, bare if it has none at all, and else on its way.
func TestAssociation(t *testing.T) {
	child := func(state string) values {
		return values{"ula-1": values{"spi-in": "c0ffee", "state": state, "bytes-in": "10", "bytes-out": "20"}}
	}
	for what, c := range map[string]struct {
		ike      values
		up, bare bool
	}{
		"connecting":             {values{"state": "CONNECTING"}, false, false},
		"established by two":     {values{"state": "ESTABLISHED", "child-sas": child("INSTALLED")}, true, false},
		"its child comes":        {values{"state": "ESTABLISHED", "child-sas": child("INSTALLING")}, false, false},
		"its child is rekeyed":   {values{"state": "ESTABLISHED", "child-sas": child("REKEYING")}, true, false},
		"its child moves":        {values{"state": "ESTABLISHED", "child-sas": child("UPDATING")}, true, false},
		"rekeyed":                {values{"state": "REKEYING", "child-sas": child("INSTALLED")}, true, false},
		"its child has gone":     {values{"state": "REKEYED"}, false, false},
		"none of it could be":    {values{"state": "ESTABLISHED"}, false, true},
		"none of it is left":     {values{"state": "ESTABLISHED", "child-sas": values{}}, false, true},
		"deleted, child and all": {values{"state": "DELETING", "child-sas": child("INSTALLED")}, false, false},
	} {
		m, err := message(c.ike)
		if err != nil {
			t.Fatal(err)
		}
		if a := associationOf("one", m); a.up != c.up || a.bare != c.bare {
			t.Errorf("%s: up %v, bare %v, want %v, %v", what, a.up, a.bare, c.up, c.bare)
		}
	}
}
