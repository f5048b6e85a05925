// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/memberagent/node"
)

// follow starts an agent that waits for the one that runs, and returns it once it has rehearsed.
func (m *machine) follow(t *testing.T) *exec.Cmd {
	t.Helper()
	next, said := m.newAgent(t)
	if line, err := said.ReadString('\n'); err != nil || line != rehearsed {
		t.Fatalf("%s: expected that the new agent rehearses, it said %q: %v", m.name, line, err)
	}
	return next
}

// TestANewAgentTakesOver: on the only gateway of its cluster and on a worker, from an agent that is told to end, and
// from one that is killed.
func TestANewAgentTakesOver(t *testing.T) {
	n := newNetwork(t)
	eventually(t, 20*time.Second, "connected", func() bool { return n.worker1.pings("10.9.0.10", "") })
	address := n.gw2.pods + ".10:7000"
	flows := []*flow{udpFlow(t, n.worker1.pod, n.gw2.pod, address, address), tcpFlow(t, n.worker1.pod, n.gw2.pod, address)}
	check := func(t *testing.T, when string, most time.Duration) {
		t.Helper()
		for _, f := range flows {
			silence, lost, err := f.reset()
			t.Logf("%s: %s: longest silence %d ms, %d lost", when, f.name, silence.Milliseconds(), lost)
			if err != nil || silence > most*time.Duration(*slow) {
				t.Errorf("%s: %s: expected no break and at most %s of silence, found %s: %v", when, f.name, most, silence, err)
			}
		}
	}
	for _, m := range []*machine{n.gw1, n.worker1} {
		for name, signal := range map[string]syscall.Signal{"ends": syscall.SIGTERM, "is killed": syscall.SIGKILL} {
			t.Run(m.name+" "+name, func(t *testing.T) {
				eventually(t, 10*time.Second, "programmed", func() bool { return m.says(v1alpha1.ReasonNodeProgrammed) })
				for _, f := range flows {
					_, _, _ = f.reset()
				}
				before := m.ours(t)
				next := m.follow(t)
				if now := m.ours(t); now != before {
					t.Errorf("an agent that waits changed the node from\n%s\nto\n%s", before, now)
				}
				check(t, "waiting", 500*time.Millisecond)
				m.stop(t, signal)
				m.agent = next
				time.Sleep(3 * time.Second)
				check(t, "taken over", time.Second)
			})
		}
	}
	t.Run("one that is told to end while it waits leaves the node alone", func(t *testing.T) {
		before, next := n.gw1.ours(t), n.gw1.follow(t)
		if err := errors.Join(next.Process.Signal(syscall.SIGTERM), next.Wait()); err != nil {
			t.Error(err)
		}
		if now := n.gw1.ours(t); now != before {
			t.Errorf("the node changed from\n%s\nto\n%s", before, now)
		}
		check(t, "meanwhile", 500*time.Millisecond)
	})
}

// unready is a cluster whose objects cannot be had at first.
type unready struct {
	directory
	ready atomic.Bool
}

func (u *unready) Objects(context.Context) (node.Objects, bool, error) {
	if !u.ready.Load() {
		return node.Objects{}, false, errors.New("forbidden")
	}
	return node.Objects{}, true, nil
}

// TestATurnIsRehearsed: an agent that cannot read its cluster does not say that it is ready to take over.
func TestATurnIsRehearsed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made by the first") // as on a new node
	key, _, err := cable.LoadKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := cable.OpenWireGuard(key, cable.NewHolder(logr.Discard()))
	if err != nil {
		t.Fatal(err)
	}
	newAgent := func(cluster node.Cluster) *node.Agent {
		k, err := kernel.New(map[string]kernel.Driver{string(v1alpha1.CableWireGuard): c}, "/proc/sys/net")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.Close)
		metrics, err := node.NewMetrics(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		a, err := node.New(node.Options{Node: "n1", ID: c.ID(), Version: "test", StateDir: dir}, k, metrics)
		if err != nil {
			t.Fatal(err)
		}
		a.SetCluster(cluster)
		return a
	}
	lock := func() *os.File {
		f, err := node.OpenLock(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	cluster, first := new(unready), lock()
	err = newAgent(cluster).TakeTurn(t.Context(), first, func() { t.Error("who does not wait does not rehearse") })
	if err != nil {
		t.Fatal(err)
	}
	// A child that the same process starts anew has the turn that the one before had.
	if err := newAgent(cluster).TakeTurn(t.Context(), first, func() { t.Error("rehearsed") }); err != nil {
		t.Fatal(err)
	}
	said, turn := make(chan struct{}), make(chan error, 1)
	second := lock()
	go func() { turn <- newAgent(cluster).TakeTurn(t.Context(), second, func() { close(said) }) }()
	select {
	case <-said:
		t.Error("rehearsed without the cluster's objects")
	case err := <-turn:
		t.Fatalf("two agents have the turn: %v", err)
	case <-time.After(1500 * time.Millisecond):
	}
	cluster.ready.Store(true)
	select {
	case <-said:
	case err := <-turn:
		t.Fatalf("two agents have the turn: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("it did not rehearse")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-turn:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it did not get its turn")
	}
	t.Run("told to end while it waits", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		if err := newAgent(cluster).TakeTurn(ctx, lock(), cancel); !errors.Is(err, context.Canceled) {
			t.Errorf("expected that it ends, found %v", err)
		}
	})
	t.Run("a file that cannot be locked", func(t *testing.T) {
		closed := lock()
		if err := errors.Join(closed.Close(), newAgent(cluster).TakeTurn(t.Context(), closed, func() {})); err == nil {
			t.Error("no error")
		}
	})
}
