// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

func testProcesses(t *testing.T) processes {
	t.Helper()
	p := processes{layout{index: maxLabs, dir: t.TempDir()}}
	t.Cleanup(func() {
		for _, name := range p.Names() {
			if err := p.Stop(context.Background(), name, 0); err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

func TestStoppedProcessStartsAgainWithItsArguments(t *testing.T) {
	p := testProcesses(t)
	if err := p.Ensure(process{Name: "sleeper", Argv: []string{"sleep", "600"}}); err != nil {
		t.Fatal(err)
	}
	first, err := p.Load("sleeper")
	if err != nil || !first.alive() {
		t.Fatalf("not running: %v", err)
	}
	if err := p.Ensure(process{Name: "sleeper", Argv: []string{"sleep", "1"}}); err != nil {
		t.Fatal(err)
	}
	if again, err := p.Load("sleeper"); err != nil || again.PID != first.PID {
		t.Errorf("a running process was started again (%v)", err)
	}
	if err := p.Stop(t.Context(), "sleeper", 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := p.Revive(); err == nil || !strings.Contains(err.Error(), "sleeper died") {
		t.Errorf("got %v, want the stopped process named", err)
	}
	if err := p.Start("sleeper"); err != nil {
		t.Fatal(err)
	}
	second, err := p.Load("sleeper")
	if err != nil || !second.alive() || second.PID == first.PID || second.Argv[1] != "600" {
		t.Errorf("got %+v (%v), want a new process with the same arguments", second, err)
	}
	if err := p.Stop(t.Context(), "sleeper", 0); err != nil {
		t.Fatal(err)
	}
}

func TestWhatMayDieIsStartedAgain(t *testing.T) {
	p := testProcesses(t)
	if err := p.Ensure(process{Name: "sleeper", Restarts: 1, Argv: []string{"sleep", "600"}}); err != nil {
		t.Fatal(err)
	}
	first, err := p.Load("sleeper")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(t.Context(), "sleeper", 0); err != nil {
		t.Fatal(err)
	}
	if err := p.Revive(); err != nil {
		t.Fatal(err)
	}
	second, err := p.Load("sleeper")
	if err != nil || !second.alive() || second.PID == first.PID || second.Argv[1] != "600" {
		t.Errorf("got %+v (%v), want a new process with the same arguments", second, err)
	}
	if err := p.Stop(t.Context(), "sleeper", 0); err != nil {
		t.Fatal(err)
	}
	if err := p.Revive(); err == nil || !strings.Contains(err.Error(), "sleeper died") {
		t.Errorf("got %v, want what died twice named", err)
	}
}

func TestRecycledPidIsNotTheProcess(t *testing.T) {
	s, err := readStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !(process{PID: os.Getpid(), Started: s.started}).alive() {
		t.Error("this process should be alive")
	}
	if (process{PID: os.Getpid(), Started: s.started - 1}).alive() {
		t.Error("an older process of the same pid should not be alive")
	}
}

func TestUnknownProcessNamesThoseThereAre(t *testing.T) {
	p := testProcesses(t)
	if err := p.save(process{Name: "etcd"}); err != nil {
		t.Fatal(err)
	}
	if err := p.Start("etdc"); err == nil || !strings.Contains(err.Error(), "it has etcd") {
		t.Errorf("got %v", err)
	}
}

func TestParseStat(t *testing.T) {
	line := "42 (a) R (b)) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 1 1"
	got, err := parseStat([]byte(line))
	if err != nil || got.state != 'S' || got.started != 987654 {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"", "42 (x) S 1", strings.Replace(line, "987654", "soon", 1)} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
