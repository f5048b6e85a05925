// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Undisturbed is the longest gap of a connection that a fault must not disturb.
const Undisturbed = time.Second

// ConnectionSurvives holds one TCP connection from a worker of c1 to a pod on a worker of c2 while the fault
// happens, and for as long as after says when it has returned. It must live to the end, without a reset, and have no
// gap longer than gap. What a loaded machine adds is allowed for: a second connection, between pods of one node, which
// no fault touches, is measured at the same time, and its longest gap is added.
func ConnectionSurvives(t *testing.T, after, gap time.Duration, fault func()) {
	t.Helper()
	fromC1ToC2(t).Survives(t, after, gap, fault)
}

// GatewayRestartSurvives is ConnectionSurvives while the agent of c1's gateway is restarted, when during says so. The
// path is away for as long as the kubelet takes to start another agent, and that to take over; and TCP, which tries
// again after a time that doubles, may notice only after twice as long.
func GatewayRestartSurvives(t *testing.T, after time.Duration, during func(restart func())) {
	t.Helper()
	const cluster, node, takeOver = "c1", "c1-gw", 2 * time.Second
	var begun time.Time
	went, reference := fromC1ToC2(t).while(t, after, func() {
		during(func() {
			begun = time.Now()
			RestartNodeAgent(t, cluster, node)
		})
	})
	started := agentStarted(t, node).Sub(begun)
	t.Logf("the agent was started anew after %s", started)
	went.within(t, 2*(started+takeOver), reference)
}

// agentStarted is when the agent of a node was started.
func agentStarted(t *testing.T, node string) time.Time {
	t.Helper()
	data, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	uptime, err := time.ParseDuration(strings.Fields(string(data))[0] + "s")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	const ticks = 100 // a second, of /proc/<pid>/stat
	var first time.Time
	for _, pid := range agentsOf(t, node) {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		// Behind the name, which may have anything in it, is the third field; the start is the 22nd.
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		start, err := strconv.ParseInt(fields[22-3], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		age := uptime - time.Duration(start)*time.Second/ticks
		if at := now.Add(-age); first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// fromC1ToC2 is from a worker of c1 to a pod on a worker of c2.
func fromC1ToC2(t *testing.T) Connection {
	t.Helper()
	return Connection{"c1", "c1-worker", PodIP(t, "c2", "server-c2-worker") + ":8080"}
}

// Connection is one from the client on a node of a cluster to an address and port.
type Connection struct{ Cluster, Node, To string }

// Survives is what ConnectionSurvives does, with another connection.
func (c Connection) Survives(t *testing.T, after, gap time.Duration, fault func()) {
	t.Helper()
	went, reference := c.while(t, after, fault)
	went.within(t, gap, reference)
}

// while holds a connection, and the one within the node, while a fault happens.
func (c Connection) while(t *testing.T, after time.Duration, fault func()) (went, reference wentBy) {
	t.Helper()
	Eventually(t, Patience, func(ctx context.Context) error {
		_, err := Ask(ctx, c.Cluster, "client-"+c.Node, "http://"+c.To)
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // also of a fault that fails the test
	over := make(chan struct{})
	within := c
	within.To = PodIP(t, c.Cluster, "server-"+c.Node) + ":8080"
	connection, control := c.hold(ctx, over), within.hold(ctx, over)
	fault()
	time.Sleep(after)
	close(over)
	went, reference = <-connection, <-control
	if err := errors.Join(went.err, reference.err); err != nil {
		t.Fatalf("the connection did not survive: %v", err)
	}
	return went, reference
}

// wentBy is how a TCP connection went.
type wentBy struct {
	longest time.Duration
	err     error
}

// within checks that there was no gap longer than gap beyond that of the connection within the node.
func (w wentBy) within(t *testing.T, gap time.Duration, reference wentBy) {
	t.Helper()
	t.Logf("longest gap %s, at most %s expected; within the node %s", w.longest, gap, reference.longest)
	if w.longest > gap+reference.longest {
		t.Errorf("longest gap %s, expected at most %s beyond the %s within the node", w.longest, gap, reference.longest)
	}
}

// hold sends and receives on one TCP connection until all is over.
func (c Connection) hold(ctx context.Context, over <-chan struct{}) <-chan wentBy {
	stdin, untilOver := io.Pipe()
	go func() {
		select {
		case <-over:
		case <-ctx.Done():
		}
		_ = untilOver.Close()
	}()
	ended := make(chan wentBy, 1)
	go func() {
		out, err := inPodWith(ctx, stdin, c.Cluster, "client-"+c.Node, "tcp", "-until-eof", c.To)
		if err != nil {
			ended <- wentBy{err: fmt.Errorf("%w: %s", err, out)}
			return
		}
		_, gap, _ := strings.Cut(out, "longest-gap=")
		gap, _, _ = strings.Cut(gap, " ")
		longest, err := time.ParseDuration(strings.TrimSpace(gap))
		if err != nil {
			err = fmt.Errorf("expected a report of the connection, found %q: %w", out, err)
		}
		ended <- wentBy{longest, err}
	}()
	return ended
}

// RestartNodeAgent deletes the pod of a node's agent and does not wait.
func RestartNodeAgent(t *testing.T, cluster, node string) {
	t.Helper()
	Kubectl(t, "--context", cluster, "-n", "sealane-system", "delete", "pod", "--wait=false",
		"-l", "app.kubernetes.io/name=sealane-node", "--field-selector=spec.nodeName="+node)
}

// Reboot leaves a node as a boot does, for as long as meanwhile takes: without its agent, and without the links, routes
// and tables that the agent had made. Then the kubelet starts the agent again. Other pods stay.
func Reboot(t *testing.T, node string, meanwhile func()) {
	t.Helper()
	WithoutAgent(t, node, func() {
		const remove = `for l in $(ip -o link | grep -o 'sl-[a-z0-9]*' | sort -u); do
				ip link del "$l" 2>/dev/null || true
			done
			for f in -4 -6; do
				ip $f route flush table 5100 2>/dev/null || true
				while ip $f rule del lookup 5100 2>/dev/null; do :; done
			done
			nft delete table ip sealane; nft delete table ip6 sealane || true`
		if out, err := Lab().InNode(t.Context(), node, "sh", "-ec", remove); err != nil {
			t.Fatalf("%s as after a boot: %v: %s", node, err, out)
		}
		meanwhile()
	})
}

// WithoutAgent kills a node's agent, and keeps the kubelet from starting it again for as long as meanwhile takes.
func WithoutAgent(t *testing.T, node string, meanwhile func()) {
	t.Helper()
	Outage(t, node+"-kubelet", 0, func() {
		for _, pid := range agentsOf(t, node) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Errorf("kill the agent of %s: %v", node, err)
			}
		}
		meanwhile()
	})
}

// CrashAgent kills the agent of a node, and not the process that holds its cables and starts it again.
func CrashAgent(t *testing.T, node string) {
	t.Helper()
	killed := 0
	for _, pid := range agentsOf(t, node) {
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(args), "--supervised") {
			err = syscall.Kill(pid, syscall.SIGKILL)
			killed++
		}
		if err != nil {
			t.Errorf("kill the agent of %s: %v", node, err)
		}
	}
	if killed == 0 {
		t.Errorf("no agent of %s runs under a supervisor", node)
	}
}

// agentsOf finds the processes of a node's agent by its program and the node's network.
func agentsOf(t *testing.T, node string) []int {
	t.Helper()
	ns, err := os.Stat(filepath.Join("/run/netns", Lab().Netns(node)))
	if err != nil {
		t.Fatal(err)
	}
	programs, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, exe := range programs {
		path, err := os.Readlink(exe)
		its, statErr := os.Stat(filepath.Join(filepath.Dir(exe), "ns/net"))
		if err != nil || statErr != nil || filepath.Base(path) != "sealane-agent" || !os.SameFile(ns, its) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(exe)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		t.Fatalf("no agent runs on %s", node)
	}
	return pids
}

// WaitForAPI waits until a member's API server serves the resources of CRDs again, a little later than its own.
func WaitForAPI(t *testing.T, cluster string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	err := waitFor(ctx, func(ctx context.Context) error {
		_, err := TryKubectl(ctx, "--context", cluster, "get", "serviceexports.multicluster.x-k8s.io", "-A")
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// called is how long after an outage a member can go without a call of the broker that it answers: the broker has to
// start or Karmada to see the cluster Ready again, the call comes within a minute of that, and Karmada's writes fail
// for up to a minute after the outage.
const called = 3 * time.Minute

// WaitCalled returns what waits until the broker has called each of the clusters since, and has heard the answer.
// Before that Karmada may deliver a report minutes late, which no test of how fast reports are may blame on Sealane.
func WaitCalled(t *testing.T, clusters ...string) func() {
	t.Helper()
	a, err := API("karmada")
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]int64{}
	for _, c := range clusters {
		m := &v1alpha1.Member{}
		if err := a.Get(t.Context(), client.ObjectKey{Name: c}, m); err != nil {
			t.Fatal(err)
		}
		before[c] = m.Status.Revision
	}
	return func() {
		began := time.Now()
		Eventually(t, called, func(ctx context.Context) error {
			for _, c := range clusters {
				m := &v1alpha1.Member{}
				if err := a.Get(ctx, client.ObjectKey{Name: c}, m); err != nil {
					return err
				}
				if m.Status.ObservedRevision <= before[c] {
					return fmt.Errorf("%s has not answered a call since revision %d: sent %d, answered %d", c,
						before[c], m.Status.Revision, m.Status.ObservedRevision)
				}
			}
			return nil
		})
		t.Logf("%s answered a call %s after the outage", clusters, time.Since(began).Round(time.Second))
	}
}

// Outage stops a process of the lab, calls meanwhile, and starts the process again when length has passed.
func Outage(t *testing.T, process string, length time.Duration, meanwhile func()) {
	t.Helper()
	// Also if meanwhile fails the test: every other test needs the process.
	defer func() {
		if err := Lab().StartProcess(process); err != nil {
			t.Error(err)
		}
	}()
	if err := Lab().StopProcess(t.Context(), process); err != nil {
		t.Error(err)
	}
	over := time.After(length)
	meanwhile()
	<-over
}

// isolationTable is the firewall table with which Isolate drops packets.
const isolationTable = "e2e_isolate"

// Isolate drops the packets of a gateway's cables, as a firewall on the way would, until Reconnect or the end of the
// test.
func Isolate(t *testing.T, node string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		// The test may have reconnected it already.
		_, _ = Lab().InNode(ctx, node, "nft", "delete", "table", "inet", isolationTable)
	})
	rules := "table inet " + isolationTable + " {\n" +
		" chain in { type filter hook prerouting priority -500; udp dport 4500 drop; udp sport 4500 drop; }\n" +
		" chain out { type filter hook output priority -500; udp dport 4500 drop; udp sport 4500 drop; }\n}"
	if _, err := Lab().InNode(t.Context(), node, "nft", rules); err != nil {
		t.Fatal(err)
	}
}

// Reconnect ends an Isolate.
func Reconnect(t *testing.T, node string) {
	t.Helper()
	if _, err := Lab().InNode(t.Context(), node, "nft", "delete", "table", "inet", isolationTable); err != nil {
		t.Fatal(err)
	}
}

// WaitConnection waits until a gateway of a cluster reports a connection to a remote cluster with such a status.
func WaitConnection(t *testing.T, cluster, remote string, is func(v1alpha1.ConnectionStatus) bool) {
	t.Helper()
	a, err := API(cluster)
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, Patience, func(ctx context.Context) error {
		list := &v1alpha1.GatewayList{}
		if err := a.List(ctx, list, client.InNamespace("")); err != nil {
			return err
		}
		var found []string
		for _, g := range list.Items {
			for _, c := range g.Status.Connections {
				if c.Cluster == remote && is(c.Status) {
					return nil
				}
				found = append(found, c.Cluster+": "+string(c.Status))
			}
		}
		return errors.New(strings.Join(found, ", "))
	})
}

// PauseAgent stops a node's agent, and not the process that holds its cables, until the end of the test.
func PauseAgent(t *testing.T, node string) {
	t.Helper()
	for _, pid := range agentsOf(t, node) {
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || !strings.Contains(string(args), "--supervised") {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // its supervisor may have killed it for being stuck
	}
}
