// SPDX-License-Identifier: Apache-2.0

package cable_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/dataplane/plan"
)

func openKeys(t *testing.T, dir string) *cable.Keys {
	t.Helper()
	keys, problem, err := cable.OpenKeys(dir)
	if err != nil || problem != "" {
		t.Fatal(problem, err)
	}
	return keys
}

// What a process knows of its keys, the next one knows as well, after every step.
func TestKeysAreKept(t *testing.T) {
	dir := t.TempDir()
	keys := openKeys(t, dir)
	first := keys.Current()
	same := func(what string) {
		t.Helper()
		again := openKeys(t, dir)
		if again.Current() != keys.Current() || again.Next() != keys.Next() || again.Former() != keys.Former() ||
			again.MadeAt().Sub(keys.MadeAt()).Abs() > time.Second || again.Since().Sub(keys.Since()).Abs() > time.Second {
			t.Errorf("%s: a restart makes %+v of %+v", what, again, keys)
		}
	}
	same("new")
	if keys.Next() != "" || keys.Promote() == nil || keys.Finish() == nil {
		t.Error("a step without a next key")
	}
	madeAt := time.Now().Add(time.Hour)
	if err := keys.Offer(madeAt); err != nil {
		t.Fatal(err)
	}
	same("offered")
	next := keys.Next()
	if keys.Current() != first || next == first || next == "" || keys.Offer(madeAt) == nil || keys.Finish() == nil {
		t.Errorf("offered: %x, next %x", keys.Current(), next)
	}
	if err := keys.Promote(); err != nil {
		t.Fatal(err)
	}
	same("promoted")
	if keys.Current() != next || keys.Next() != next || keys.Former() != first || !keys.MadeAt().Equal(madeAt) ||
		keys.Promote() == nil {
		t.Errorf("promoted: %x, next %x, former %x, made at %s", keys.Current(), keys.Next(), keys.Former(), keys.MadeAt())
	}
	if err := keys.Finish(); err != nil {
		t.Fatal(err)
	}
	same("finished")
	if keys.Current() != next || keys.Next() != "" || keys.Former() != "" || !keys.MadeAt().Equal(madeAt) {
		t.Errorf("finished: %x, next %x, former %x", keys.Current(), keys.Next(), keys.Former())
	}
}

// A process that dies between two writes of a step leaves what the step began from, or what it leads to.
func TestKeysOfAProcessThatDied(t *testing.T) {
	copyFile := func(from, to string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const key, next, about = "wireguard.key", "wireguard.next.key", "keys.json"
	for _, c := range []struct {
		name string
		// die does what the step has written by then, in a directory where a key is offered.
		die  func(t *testing.T, in func(string) string)
		want func(first, second plan.PeerID) (current, next plan.PeerID)
	}{
		{"the next key is written, and nothing is noted", func(t *testing.T, in func(string) string) {
			if err := os.Remove(in(about)); err != nil {
				t.Fatal(err)
			}
		}, func(first, _ plan.PeerID) (plan.PeerID, plan.PeerID) { return first, "" }},
		{"the key is promoted, and that is not noted", func(_ *testing.T, in func(string) string) {
			copyFile(in(next), in(key))
		}, func(_, second plan.PeerID) (plan.PeerID, plan.PeerID) { return second, second }},
		{"the replacement ends, and that is not noted", func(t *testing.T, in func(string) string) {
			copyFile(in(next), in(key))
			if err := os.Remove(in(next)); err != nil {
				t.Fatal(err)
			}
		}, func(_, second plan.PeerID) (plan.PeerID, plan.PeerID) { return second, "" }},
		{"the note is half a note", func(t *testing.T, in func(string) string) {
			if err := os.Truncate(in(about), 9); err != nil {
				t.Fatal(err)
			}
		}, func(first, _ plan.PeerID) (plan.PeerID, plan.PeerID) { return first, "" }},
		{"the next key is half a key", func(t *testing.T, in func(string) string) {
			if err := os.Truncate(in(next), 9); err != nil {
				t.Fatal(err)
			}
		}, func(first, _ plan.PeerID) (plan.PeerID, plan.PeerID) { return first, "" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			keys := openKeys(t, dir)
			if err := keys.Offer(time.Now()); err != nil {
				t.Fatal(err)
			}
			current, following := c.want(keys.Current(), keys.Next())
			c.die(t, func(name string) string { return filepath.Join(dir, name) })
			again := openKeys(t, dir)
			if again.Current() != current || again.Next() != following {
				t.Errorf("expected %x and next %x, found %x and %x", current, following, again.Current(), again.Next())
			}
			if following == "" {
				if err := again.Offer(time.Now()); err != nil {
					t.Errorf("the next replacement: %v", err)
				}
			}
		})
	}
}

// A disk that takes no key keeps the one that there is.
func TestAKeyThatCannotBeKeptIsNotOffered(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	keys := openKeys(t, dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if keys.Offer(time.Now()) == nil || keys.Next() != "" {
		t.Errorf("a key is offered that is kept nowhere: %x", keys.Next())
	}
}
