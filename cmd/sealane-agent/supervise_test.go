// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/memberagent/node"
)

// TestMain runs the program itself where a test's supervisor starts it as its child.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "node" {
		main()
		return
	}
	os.Exit(m.Run())
}

// children of this process that are supervised agents.
func children(t *testing.T) []int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, task := range tasks {
		text, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children") // a thread may end
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // as may a child
			if slices.Contains(strings.Split(string(args), "\x00"), "--supervised") {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// TestAnAgentThatDiesIsStartedAgain, at once, and ends when its supervisor is told to.
func TestAnAgentThatDiesIsStartedAgain(t *testing.T) {
	if !*inNamespace {
		inChild(t)
		return
	}
	dir := t.TempDir()
	kubeconfig := prepare(t, dir, silent(t))
	lock, err := node.OpenLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	s := supervisor{log: logr.Discard(), holder: cable.NewHolder(logr.Discard()), lock: lock, health: "127.0.0.1:9812",
		args: []string{"node", "--node-name=n1", "--kubeconfig=" + kubeconfig, "--state-dir=" + dir,
			"--metrics-bind-address=0", "--supervised"},
		every: lookEvery}
	defer s.holder.Close()
	if err := s.holder.Create("sl-c0", 1420); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.loop(ctx) }()
	healthy(t)
	for range 2 {
		before := children(t)
		if len(before) != 1 {
			t.Fatalf("expected one agent, found %v", before)
		}
		killed := time.Now()
		if err := syscall.Kill(before[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for !slices.ContainsFunc(children(t), func(pid int) bool { return pid != before[0] }) {
			if time.Since(killed) > 10*time.Second {
				t.Fatal("it is not started again within 10 s")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if !s.holder.Running("sl-c0") {
			t.Error("the device has ended with the agent")
		}
		t.Logf("started again %s after it was killed", time.Since(killed))
		healthy(t)
	}
	// With nothing left to hold, an agent that dies is for the kubelet.
	if err := s.holder.Delete("sl-c0"); err != nil {
		t.Fatal(err)
	}
	last := children(t)
	if err := syscall.Kill(last[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Errorf("expected how it ended, found %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it did not end within 20 s")
	}
	go func() { ended <- s.loop(ctx) }()
	healthy(t)
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it did not end within 20 s")
	}
	if left := children(t); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestAnAgentThatGivesUpIsNotStartedAgain: wrong options are for the kubelet to show.
func TestAnAgentThatGivesUpIsNotStartedAgain(t *testing.T) {
	dir := t.TempDir()
	err := supervise(t.Context(), logr.Discard(), dir, "0", []string{"node", "--nonsense", "--state-dir=" + dir})
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("expected exit code 1, found %v", err)
	}
}

// TestAChildThatIsStuckIsKilled: one that does not say that it is alive six times in a row, no earlier.
func TestAChildThatIsStuckIsKilled(t *testing.T) {
	var good, asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		// All but the last of stuckLooks fail, then one succeeds, then all fail.
		if n := asked.Add(1); n == stuckLooks {
			good.Store(n)
			return
		}
		http.Error(w, "the loop is stuck", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	child := exec.CommandContext(t.Context(), "sleep", "infinity")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	s := supervisor{log: logr.Discard(), health: server.Listener.Addr().String(), every: 500 * time.Millisecond}
	s.watch(t.Context(), child.Process)
	var exit *exec.ExitError
	if err := child.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 || !s.stuck.Load() {
		t.Errorf("expected that it was killed, found %v", err)
	}
	if got := asked.Load(); got != 2*stuckLooks || good.Load() != stuckLooks {
		t.Errorf("killed after %d questions, expected %d", got, 2*stuckLooks)
	}
}
