// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/memberagent/node"
)

// turn is what the agent that spoke last says of it.
func (m *machine) turn() string {
	var t node.Turn
	_ = m.read("turn.json", &t) // it may not be there yet
	return t.Reason
}

// follow starts an agent that waits for the one that runs, and returns it once it has rehearsed.
func (m *machine) follow(t *testing.T) *exec.Cmd {
	t.Helper()
	next := m.newAgent(t)
	eventually(t, 10*time.Second, "rehearsed", func() bool { return m.turn() == v1alpha1.ReasonRehearsed })
	return next
}

// TestANewAgentTakesOver: on the only gateway of its cluster and on a worker, from an agent that is told to end, and
// from one that is killed.
func TestANewAgentTakesOver(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	eventually(t, 20*time.Second, "connected", func() bool { return n.worker1.pings("10.9.0.10", "") })
	address := n.gw2.pods + ".10:7000"
	n.gw1.run(t, fmt.Sprintf("ip route add %s.0/24 via %s", n.worker1.pods, n.worker1.ip)) // by which ICMP errors come
	flows := []*flow{udpFlow(t, n.worker1.pod, n.gw2.pod, address, address),
		tcpFlow(t, n.worker1.pod, n.gw2.pod, address, address),
		connects(t, n.worker1.pod, n.gw2.pod, n.gw2.pods+".10:7100")}
	undisturbed := allowed{lost: 50, outage: 500 * time.Millisecond}
	for _, m := range []*machine{n.gw1, n.worker1} {
		for name, signal := range map[string]syscall.Signal{"ends": syscall.SIGTERM, "is killed": syscall.SIGKILL} {
			t.Run(m.name+" "+name, func(t *testing.T) {
				eventually(t, 10*time.Second, "programmed", func() bool {
					return m.says(v1alpha1.ReasonNodeProgrammed) && m.turn() == v1alpha1.ReasonProgramming
				})
				waiting, before := begin(flows), m.ours(t)
				next := m.follow(t)
				if now := m.ours(t); now != before {
					t.Errorf("an agent that waits changed the node from\n%s\nto\n%s", before, now)
				}
				waiting.check(t, "waiting", undisturbed)
				s := begin(flows)
				m.stop(t, signal)
				m.agent = next
				s.lasts(t, 3*time.Second)
				s.check(t, "taken over", allowed{lost: 100, outage: time.Second})
			})
		}
	}
	t.Run("one that is told to end while it waits leaves the node alone", func(t *testing.T) {
		s, before, next := begin(flows), n.gw1.ours(t), n.gw1.follow(t)
		if err := errors.Join(next.Process.Signal(syscall.SIGTERM), next.Wait()); err != nil {
			t.Error(err)
		}
		if now := n.gw1.ours(t); now != before {
			t.Errorf("the node changed from\n%s\nto\n%s", before, now)
		}
		s.check(t, "meanwhile", undisturbed)
	})
}

// rehearsing is a cluster whose objects are given by the test, and that keeps what is said of turns.
type rehearsing struct {
	directory
	mu      sync.Mutex
	objects node.Objects
	err     error
	said    node.Turn
}

func (r *rehearsing) Objects(context.Context) (node.Objects, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.objects, r.err == nil, r.err
}

func (r *rehearsing) SetTurn(_ context.Context, turn node.Turn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = turn
	return nil
}

func (r *rehearsing) set(o node.Objects, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects, r.err = o, err
}

// says waits until what is said of the turn has a reason, and a message with a text in it.
func (r *rehearsing) says(t *testing.T, reason, text string) {
	t.Helper()
	eventually(t, 10*time.Second, reason+" "+text, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.said.Reason == reason && strings.Contains(r.said.Message, text)
	})
}

// TestATurnIsRehearsed: an agent that could not program the node does not say that it could, and gets no turn that
// another agent may come back to.
func TestATurnIsRehearsed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made by the first") // as on a new node
	keys, _, err := cable.OpenKeys(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := cable.OpenWireGuard(keys, cable.NewHolder(logr.Discard()))
	if err != nil {
		t.Fatal(err)
	}
	const revision = "7d9f"
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
		a, err := node.New(node.Options{Node: "n1", Keys: keys, Version: "test", StateDir: dir, Revision: revision}, k,
			metrics)
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
	peering := func(driver v1alpha1.CableDriver, failed ...string) node.Objects {
		p := &v1alpha1.Peering{}
		p.Spec.ClusterID, p.Spec.Cable.Driver, p.Status.FailedRevisions = "c1", driver, failed
		return node.Objects{Peering: p}
	}
	first := lock()
	if err := newAgent(new(rehearsing)).TakeTurn(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	// A child that the same process starts anew has the turn that the one before had.
	if err := newAgent(new(rehearsing)).TakeTurn(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	cluster, turn := &rehearsing{err: errors.New("forbidden")}, make(chan error, 1)
	second := lock()
	go func() { turn <- newAgent(cluster).TakeTurn(t.Context(), second) }()
	cluster.says(t, v1alpha1.ReasonNotRehearsed, "forbidden")
	cluster.set(peering("carrier-pigeon"), nil)
	cluster.says(t, v1alpha1.ReasonNotRehearsed, "carrier-pigeon")
	// The other one crashes, and comes back.
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2500 * time.Millisecond)
	third := lock()
	var back *node.Agent
	eventually(t, 5*time.Second, "the other one is back", func() bool {
		back = newAgent(new(rehearsing))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return back.TakeTurn(ctx, third) == nil
	})
	cluster.set(peering(v1alpha1.CableWireGuard, "others"), nil)
	cluster.says(t, v1alpha1.ReasonRehearsed, "")
	gateways := peering(v1alpha1.CableWireGuard)
	gateways.Gateways = []v1alpha1.Gateway{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}
	cluster.set(gateways, nil)
	cluster.says(t, v1alpha1.ReasonRehearsed, "")
	gateways.Gateways = append(gateways.Gateways, v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	cluster.set(gateways, nil)
	cluster.says(t, v1alpha1.ReasonQueued, "another gateway")
	gateways.Gateways = slices.Clone(gateways.Gateways)
	gateways.Gateways[0].Spec.Turn = true
	cluster.set(gateways, nil)
	cluster.says(t, v1alpha1.ReasonRehearsed, "")
	unreleased := peering(v1alpha1.CableWireGuard)
	unreleased.Peering.Spec.RollOut = &v1alpha1.RollOutTurn{Revision: "before"}
	cluster.set(unreleased, nil)
	cluster.says(t, v1alpha1.ReasonUnreleased, "not this cluster's turn")
	released := peering(v1alpha1.CableWireGuard)
	released.Peering.Spec.RollOut = &v1alpha1.RollOutTurn{Revision: revision}
	cluster.set(released, nil)
	cluster.says(t, v1alpha1.ReasonRehearsed, "")
	elsewhere := peering(v1alpha1.CableWireGuard)
	elsewhere.Peering.Spec.FailedRevisions = []string{revision}
	cluster.set(elsewhere, nil)
	cluster.says(t, v1alpha1.ReasonHeld, "in another cluster")
	cluster.set(peering(v1alpha1.CableWireGuard, "others", revision), nil)
	cluster.says(t, v1alpha1.ReasonHeld, "same revision")
	unreleased.Gateways = nil
	cluster.set(unreleased, nil)
	cluster.says(t, v1alpha1.ReasonUnreleased, "see kubectl")
	select {
	case err := <-turn:
		t.Fatalf("two agents have the turn: %v", err)
	default:
	}
	if err := third.Close(); err != nil {
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
	cluster.says(t, v1alpha1.ReasonProgramming, "")
	t.Run("told to end while it waits", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := newAgent(cluster).TakeTurn(ctx, lock()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("expected that it ends, found %v", err)
		}
	})
	t.Run("a file that cannot be locked", func(t *testing.T) {
		closed := lock()
		if err := errors.Join(closed.Close(), newAgent(cluster).TakeTurn(t.Context(), closed)); err == nil {
			t.Error("no error")
		}
	})
}
