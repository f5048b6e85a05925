// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/memberagent/node"
)

// outside and outside6 are a host in the nodes' network, and their default routes.
const outside, outside6 = "172.31.1.254", "fd31::254"

// The comments of the capture's counters: packets to pods and services of c2 that the underlay has carried in
// clear, and packets of nodes and pods to where they may go.
const (
	inClear, inClear6         = "clear of IPv4", "clear of IPv6"
	ofNodes, ofPods           = "control of nodes, IPv4", "control of pods, IPv4"
	ofNodes6, ofPods6         = "control of nodes, IPv6", "control of pods, IPv6"
	allInClear                = "clear of"
	elsewhere, elsewhere6     = "192.0.2.1", "2001:db8:c::1"
	podOfC2, podOfC26         = "10.9.0.10", "fd09::10"
	serviceOfC2, serviceOfC26 = "10.99.0.7", "fd99::7"
)

// withDefaultRoute gives every machine somewhere to send in clear, has it forward what its pods send, and returns
// a capture of the underlay: the count of packets by the comments above.
func (n *network) withDefaultRoute(t *testing.T) func(comment string) int {
	t.Helper()
	n.run(t, fmt.Sprintf("ip addr add %s/24 dev under; ip addr add %s/64 dev under nodad", outside, outside6))
	for _, m := range n.all() {
		m.run(t, fmt.Sprintf(`ip route add default via %s; ip -6 route add default via %s`, outside, outside6))
		m.forwardsItsPods(t)
	}
	n.run(t, fmt.Sprintf(`nft -f - <<EOF
table bridge capture {
	set flows { type ipv4_addr . ipv4_addr . inet_proto; flags dynamic; size 256; }
	set flows6 { type ipv6_addr . ipv6_addr . inet_proto; flags dynamic; size 256; }
	chain seen {
		type filter hook prerouting priority 0;
		ip daddr { 10.9.0.0/16, 10.99.0.0/16 } update @flows { ip saddr . ip daddr . ip protocol } counter comment "%s"
		ip6 daddr { fd09::/48, fd99::/112 } update @flows6 { ip6 saddr . ip6 daddr . meta l4proto } counter comment "%s"
		ip daddr %[7]s ip saddr 172.31.1.0/24 counter comment "%[3]s"
		ip daddr %[7]s ip saddr 10.8.0.0/16 counter comment "%[4]s"
		ip6 daddr %[8]s ip6 saddr fd31::/64 counter comment "%[5]s"
		ip6 daddr %[8]s ip6 saddr fd08::/48 counter comment "%[6]s"
	}
}
EOF`, inClear, inClear6, ofNodes, ofPods, ofNodes6, ofPods6, elsewhere, elsewhere6))
	return func(comment string) int {
		return counted(t, n.command("nft list table bridge capture"), comment)
	}
}

// forwardsItsPods accepts in FORWARD what pods send, as CNIs do.
func (m *machine) forwardsItsPods(t *testing.T) {
	t.Helper()
	m.run(t, "iptables-nft -A FORWARD -i cni0 -j ACCEPT; ip6tables-nft -A FORWARD -i cni0 -j ACCEPT")
}

// flood sends packets of both families from network namespaces to c2 and elsewhere, until the test ends.
func flood(t *testing.T, from ...*exec.Cmd) {
	t.Helper()
	for _, f := range from {
		for _, to := range []string{podOfC2, podOfC26, serviceOfC2, serviceOfC26, elsewhere, elsewhere6} {
			ping := exec.CommandContext(t.Context(), "nsenter", "-t", fmt.Sprint(f.Process.Pid), "-n", "ping", "-q",
				"-i", "0.01", to)
			ping.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := ping.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = ping.Process.Kill(); _ = ping.Wait() })
		}
	}
}

var packetsOf = regexp.MustCompile(`counter packets (\d+) `)

// counted is the sum of the counters in the lines of nft's listing that contain a text.
func counted(t *testing.T, list *exec.Cmd, text string) int {
	t.Helper()
	out, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", list.Args, err, out)
	}
	sum, found := 0, false
	for line := range strings.SplitSeq(string(out), "\n") {
		if m := packetsOf.FindStringSubmatch(line); m != nil && strings.Contains(line, text) {
			packets, _ := strconv.Atoi(m[1])
			sum, found = sum+packets, true
		}
	}
	if !found {
		t.Fatalf("no counter of %q in\n%s", text, out)
	}
	return sum
}

func (m *machine) dropped(t *testing.T, rule string) int {
	t.Helper()
	return m.droppedOf(t, ofIPv4, rule)
}

func (m *machine) droppedOf(t *testing.T, f family, rule string) int {
	t.Helper()
	return counted(t, m.command("nft list table "+string(f)+" sealane"), rule)
}

// inNetworkOf runs f in a holder's network namespace.
func inNetworkOf(t *testing.T, holder *exec.Cmd, f func() error) {
	t.Helper()
	if err := visit(holder, f); err != nil {
		t.Fatal(err)
	}
}

// visit runs f in a holder's network namespace. The thread goes back afterwards rather than end, for it may be the
// parent of processes that die with it.
func visit(holder *exec.Cmd, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer func() { _ = here.Close() }()
	there, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid))
	if err != nil {
		return err
	}
	defer func() { _ = there.Close() }()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	return errors.Join(f(), unix.Setns(int(here.Fd()), unix.CLONE_NEWNET))
}

// TestNothingLeavesInClear: while packets flow from a pod on a worker, from the gateway's own pod and from the
// hosts, agents are killed, links deleted, the gateway is as after a reboot, and the remote has no gateway.
func TestNothingLeavesInClear(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	packets := n.withDefaultRoute(t)
	for _, to := range []string{podOfC2, podOfC26} {
		eventually(t, time.Minute, "traffic", func() bool { return n.worker1.pings(to, "") })
	}
	n.run(t, "nft flush set bridge capture flows; nft flush set bridge capture flows6")
	began := packets(allInClear)
	flood(t, n.worker1.holder, n.worker1.pod, n.gw1.holder, n.gw1.pod)
	again := func() {
		t.Helper()
		for _, to := range []string{podOfC2, podOfC26} {
			eventually(t, 20*time.Second, "traffic again to "+to, func() bool { return n.worker1.pings(to, "") })
		}
	}
	controls := []string{ofNodes, ofPods, ofNodes6, ofPods6}
	// lull lasts until each sender could have sent packets astray.
	lull := func() {
		t.Helper()
		for _, c := range controls {
			before := packets(c)
			eventually(t, 5*time.Second, "packets that may leave", func() bool { return packets(c) > before+20 })
		}
	}
	steps := []struct {
		name string
		do   func(t *testing.T)
	}{
		{"the gateway's agent is killed", func(t *testing.T) {
			n.gw1.stop(t, syscall.SIGKILL)
			lull()
			n.gw1.start(t)
			again()
		}},
		{"the cable is deleted under the agent", func(t *testing.T) { n.gw1.run(t, "ip link del sl-c0"); again() }},
		{"the cable goes down", func(t *testing.T) { n.gw1.run(t, "ip link set sl-c0 down"); again() }},
		{"the worker's overlay is deleted while no agent runs", func(t *testing.T) {
			n.worker1.stop(t, syscall.SIGKILL)
			n.worker1.run(t, "ip link del sl-vx")
			lull()
			n.worker1.start(t)
			again()
		}},
		{"the gateway's links are deleted while no agent runs", func(t *testing.T) {
			n.gw1.stop(t, syscall.SIGKILL)
			n.gw1.run(t, "for l in sl-c0 sl-vx; do ip link del $l || true; done")
			lull()
			n.gw1.start(t)
			again()
		}},
		{"the remote has no gateway", func(t *testing.T) {
			objects := map[*machine]node.Objects{}
			for _, m := range []*machine{n.gw1, n.worker1} {
				var o node.Objects
				if err := m.read("cluster.json", &o); err != nil {
					t.Fatal(err)
				}
				objects[m] = o
				without := o
				without.Peering = o.Peering.DeepCopy()
				without.Peering.Spec.RemoteClusters[0].Endpoints = nil
				if err := m.write("cluster.json", without); err != nil {
					t.Fatal(err)
				}
				_ = m.agent.Process.Signal(syscall.SIGHUP)
			}
			eventually(t, 20*time.Second, "the cable gone", func() bool {
				return n.gw1.command("ip link show sl-c0").Run() != nil
			})
			lull()
			for m, o := range objects {
				if err := m.write("cluster.json", o); err != nil {
					t.Fatal(err)
				}
				_ = m.agent.Process.Signal(syscall.SIGHUP)
			}
			again()
		}},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			before := map[string]int{}
			for _, c := range controls {
				before[c] = packets(c)
			}
			s.do(t)
			for _, c := range controls {
				if packets(c) == before[c] {
					t.Errorf("the capture has not seen the packets that may leave: %s", c)
				}
			}
			if leaked := packets(allInClear) - began; leaked != 0 {
				t.Errorf("%d packets left in clear:\n%s", leaked, n.leakedFlows(t))
				began = packets(allInClear)
			}
		})
	}
	if marked := n.marked(t); marked != 0 {
		t.Errorf("%d packets left with the mark that is for FORWARD only", marked)
	}
}

// leakedFlows lists the flows that the capture has seen in clear.
func (n *network) leakedFlows(t *testing.T) string {
	t.Helper()
	out, _ := n.command("nft list set bridge capture flows; nft list set bridge capture flows6").CombinedOutput()
	return string(out)
}

// marked counts what leaves the gateway with our mark, while a pod of a worker is answered.
func (n *network) marked(t *testing.T) int {
	t.Helper()
	n.gw1.run(t, `nft add table ip test; nft add chain ip test post '{ type filter hook postrouting priority 300; }'
		nft add rule ip test post meta mark and 0x4 == 0x4 counter comment marked`)
	defer n.gw1.run(t, "nft delete table ip test")
	if within(n.worker1.pod, "ping -c3 -i 0.1 -W1 10.9.0.10").Run() != nil {
		t.Error("pod to pod is lost")
	}
	return counted(t, n.gw1.command("nft list table ip test"), "marked")
}

// TestClosedFromBootOn: after a reboot, while the API server is away, remote networks are unreachable before the
// agent falls back to what the API server said last. Packets of nodes and pods flow all the time: before the agent
// runs they leave in clear, and from when it is closed on none does.
func TestClosedFromBootOn(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	packets := n.withDefaultRoute(t)
	for _, m := range []*machine{n.worker1, n.gw1} {
		for _, to := range []string{podOfC2, podOfC26} {
			eventually(t, time.Minute, m.name+" reaches "+to, func() bool { return m.pings(to, "") })
		}
	}
	for _, m := range []*machine{n.worker1, n.gw1} {
		t.Run(m.name, func(t *testing.T) { n.bootsClosed(t, m, packets) })
	}
}

func (n *network) bootsClosed(t *testing.T, m *machine, packets func(comment string) int) {
	flood(t, m.holder, m.pod)
	m.stop(t, syscall.SIGKILL)
	if err := os.Rename(m.path("cluster.json"), m.path("away.json")); err != nil {
		t.Fatal(err)
	}
	m.run(t, `for l in $(ip -o link | grep -o 'sl-[a-z0-9]*'); do ip link del $l; done
		for f in -4 -6; do
			ip $f route flush table 5100; ip $f rule del pref 105; while ip $f rule del pref 103; do :; done
		done
		nft delete table ip sealane; nft delete table ip6 sealane; iptables-nft -F FORWARD; ip6tables-nft -F FORWARD`)
	m.forwardsItsPods(t)
	for _, c := range []string{inClear, inClear6} {
		before := packets(c)
		eventually(t, 5*time.Second, "in clear before the agent runs, or this could not fail: "+c,
			func() bool { return packets(c) > before })
	}
	before := packets(allInClear)
	m.start(t)
	const beforeFallback = 2500 * time.Millisecond
	started := time.Now()
	for !m.isClosed() {
		if time.Since(started) > beforeFallback*time.Duration(*slow) {
			t.Fatalf("not closed within %s", beforeFallback)
		}
	}
	closed := packets(allInClear)
	t.Logf("closed %s after the start, and %d packets", time.Since(started), closed-before)
	if ours := m.ours(t); strings.Contains(ours, "sl-") {
		t.Errorf("the agent has not waited for the API server:\n%s", ours)
	}
	n.run(t, "nft flush set bridge capture flows; nft flush set bridge capture flows6")
	for _, to := range []string{podOfC2, podOfC26} {
		eventually(t, 20*time.Second, "traffic again to "+to, func() bool { return m.pings(to, "") })
	}
	if leaked := packets(allInClear) - closed; leaked != 0 {
		t.Errorf("%d packets left in clear after it was closed:\n%s", leaked, n.leakedFlows(t))
	}
	if err := os.Rename(m.path("away.json"), m.path("cluster.json")); err != nil {
		t.Fatal(err)
	}
}

// isClosed says whether remote networks are unreachable, and the tables there.
func (m *machine) isClosed() bool {
	return m.command(`ip route show table 5100 | grep -q 'unreachable 10.9.0.0/16'
		ip -6 route show table 5100 | grep -q 'unreachable fd09::/48'
		ip rule | grep -q 'lookup 5100'; ip -6 rule | grep -q 'lookup 5100'
		nft list table ip sealane | grep -q hook; nft list table ip6 sealane | grep -q hook`).Run() == nil
}
