// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDownAfterHalfFailedUp boots a lab whose API servers end at once: the
// network, etcd and the nodes' container runtimes exist by then.
func TestDownAfterHalfFailedUp(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces: expected root")
	}
	name := filepath.Join(t.TempDir(), "lab")
	broken := brokenTools(t)
	var out strings.Builder
	_, err := Up(t.Context(), Options{Name: name, Out: &out, toolsDir: broken})
	t.Cleanup(func() {
		if err := Down(context.Background(), name, nil); err != nil {
			t.Error(err)
		}
	})
	if err == nil || !strings.Contains(err.Error(), "apiserver died") ||
		!strings.Contains(err.Error(), "this API server is broken") {
		t.Fatalf("got error %v, want the dead process and the end of its log; progress:\n%s", err, &out)
	}
	l, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if !l.Running("c1-gw-init") || len(l.netnsNames()) != 5 {
		t.Fatalf("the boot was to fail half-way; processes %q, namespaces %q", l.Processes(), l.netnsNames())
	}
	other := unrecorded(t, l)
	if err := Down(t.Context(), name, &out); err != nil {
		t.Fatalf("%v; progress:\n%s", err, &out)
	}
	if other.alive() {
		t.Error("a process in the lab's namespace survived")
	}
	if left := leftovers(t, l.layout); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if err := Down(t.Context(), name, nil); err != nil {
		t.Errorf("removing it again: %v", err)
	}
}

// brokenTools has the real etcd, so that something runs, and nothing else.
func brokenTools(t *testing.T) string {
	t.Helper()
	_, real, err := prepare(t.Context(), newProgress(nil))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(real.path("etcd"), filepath.Join(dir, "etcd")); err != nil {
		t.Fatal(err)
	}
	// It stays for as long as the rest needs to get half-way.
	script := "#!/bin/sh\nsleep 5\necho this API server is broken\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "kube-apiserver"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// unrecorded starts what nobody wrote down: somebody's command in a node.
func unrecorded(t *testing.T, l *Lab) process {
	t.Helper()
	enter, err := l.procs.enter("c2-worker")
	if err != nil {
		t.Fatal(err)
	}
	argv := append(enter, "sleep", "600")
	cmd := exec.CommandContext(context.Background(), argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }() // killed by what is tested
	s, err := readStat(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p := process{Name: "other", PID: cmd.Process.Pid, Started: s.started}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err = poll(ctx, 10*time.Millisecond, func(context.Context) error {
		if !l.inNetns(fmt.Sprintf("/proc/%d", p.PID)) {
			return fmt.Errorf("not in the namespace yet")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// leftovers lists everything of a lab that the machine still shows.
func leftovers(t *testing.T, l layout) []string {
	t.Helper()
	var left []string
	for _, p := range l.remaining() {
		left = append(left, fmt.Sprintf("process %s (pid %d)", p.Name, p.PID))
	}
	left = append(left, l.netnsNames()...)
	groups, err := l.cgroups()
	if err != nil {
		t.Fatal(err)
	}
	left = append(left, groups...)
	if linkGone(l.hostLink()) == nil {
		left = append(left, "link "+l.hostLink())
	}
	if _, err := os.Stat(l.dir); err == nil {
		left = append(left, l.dir)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, l.dir) || strings.Contains(line, "/"+l.hostLink()+"-") {
			left = append(left, line)
		}
	}
	routes, err := output(t.Context(), "", "ip", "route", "show", "table", "all")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(routes), l.hostLink()+" ") {
		left = append(left, "routes")
	}
	return left
}
