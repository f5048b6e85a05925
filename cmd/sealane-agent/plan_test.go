// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/memberagent/node"
)

// plans is an agent that always answers the same.
type plans struct {
	answer node.Planned
	err    error
}

func (p plans) Planned(context.Context) (node.Planned, error) { return p.answer, p.err }

// asksPlan runs `sealane-agent plan`, and returns what it prints.
func asksPlan(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := newPlanCommand()
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(args)
	c.SetOut(&out)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// TestPlanIsAskedOfTheAgentThatHasItsTurn: also after one that died, whose socket is still there, and never by anybody
// but root.
func TestPlanIsAskedOfTheAgentThatHasItsTurn(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, planSocket)
	if _, err := asksPlan(t, "--state-dir="+dir); err == nil || !strings.Contains(err.Error(), "has its turn") {
		t.Errorf("nobody listens: %v", err)
	}
	if err := os.WriteFile(socket, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	first, end := context.WithCancel(t.Context())
	servePlan(first, dir, plans{answer: node.Planned{Holds: []string{"link sl-vx", "route 10.9.0.0/16"},
		Changes: []string{"add route 10.9.0.0/16"}, Problem: "netlink: busy"}})
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v", info, err)
	}
	is := func(want string, args ...string) {
		t.Helper()
		if got, err := asksPlan(t, append(args, "--state-dir="+dir)...); err != nil || got != want {
			t.Errorf("%q, %v: want %q", got, err, want)
		}
	}
	is("link sl-vx\nroute 10.9.0.0/16\n\nthe last sync failed: netlink: busy\n\n" +
		"the kernel differs, in 1 places:\nadd route 10.9.0.0/16\n")
	is(`{"holds":["link sl-vx","route 10.9.0.0/16"],"changes":["add route 10.9.0.0/16"],"problem":"netlink: busy"}`+"\n",
		"-o", "json")
	if _, err := asksPlan(t, "--state-dir="+dir, "-o", "xml"); err == nil {
		t.Error("-o xml is taken")
	}
	end()
	for {
		if _, err := os.Stat(socket); errors.Is(err, os.ErrNotExist) {
			break // it takes its socket away
		}
		if t.Context().Err() != nil {
			t.Fatal("the socket of an agent that has ended stays")
		}
		time.Sleep(10 * time.Millisecond)
	}
	servePlan(t.Context(), dir, plans{answer: node.Planned{Holds: []string{}}})
	is("\nthe kernel holds that, and no more\n")
	servePlan(t.Context(), dir, plans{err: errors.New("the loop is busy")})
	if _, err := asksPlan(t, "--state-dir="+dir); err == nil || !strings.Contains(err.Error(), "the loop is busy") {
		t.Errorf("an agent that cannot say: %v", err)
	}
}
