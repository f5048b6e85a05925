// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/binary"
	"fmt"
	"net"
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

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/node"
)

// outside is a host in the nodes' network, and their default route.
const outside = "172.31.1.254"

// withDefaultRoute gives every machine somewhere to send in clear, and returns a count of the packets to pods
// and services of c2 that the underlay has carried in clear. control counts others.
func (n *network) withDefaultRoute(t *testing.T) (inClear, control func() int) {
	t.Helper()
	run(t, fmt.Sprintf("ip addr add %s/24 dev under", outside))
	for _, m := range n.all() {
		m.run(t, "ip route add default via "+outside)
	}
	run(t, `nft -f - <<EOF
table bridge capture {
	set flows {
		type ipv4_addr . ipv4_addr . inet_proto
		flags dynamic
		size 256
	}
	chain seen {
		type filter hook prerouting priority 0;
		ip daddr { 10.9.0.0/16, 10.99.0.0/16 } update @flows { ip saddr . ip daddr . ip protocol } counter comment "clear"
		ip daddr 192.0.2.1 counter comment "control"
	}
}
EOF`)
	t.Cleanup(func() { run(t, "nft delete table bridge capture") })
	count := func(comment string) func() int {
		return func() int {
			return counted(t, exec.CommandContext(t.Context(), "nft", "list", "table", "bridge", "capture"), comment)
		}
	}
	return count("clear"), count("control")
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
	return counted(t, m.command("nft list table ip sealane"), rule)
}

// inNetworkOf runs f in a holder's network namespace. The thread goes back afterwards rather than end, for it
// may be the parent of processes that die with it.
func inNetworkOf(t *testing.T, holder *exec.Cmd, f func() error) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = here.Close() }()
	there, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = there.Close() }()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	err = f()
	if back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); err != nil || back != nil {
		t.Fatal(err, back)
	}
}

func sendUDP(to string, payload []byte) func() error {
	return func() error {
		c, err := net.Dial("udp4", to)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_, err = c.Write(payload)
		return err
	}
}

// sendRaw sends a complete IPv4 packet.
func sendRaw(packet []byte) func() error {
	return func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		return unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: [4]byte(packet[16:20])})
	}
}

// udp4 is an IPv4 packet with a UDP datagram that has no checksum.
func udp4(from, to string, port uint16, payload []byte) []byte {
	p := make([]byte, 28, 28+len(payload))
	p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(p[2:], uint16(28+len(payload)))
	copy(p[12:], net.ParseIP(from).To4())
	copy(p[16:], net.ParseIP(to).To4())
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum))
	binary.BigEndian.PutUint16(p[20:], 4711)
	binary.BigEndian.PutUint16(p[22:], port)
	binary.BigEndian.PutUint16(p[24:], uint16(8+len(payload)))
	return append(p, payload...)
}

const forgedSource = "10.9.0.77"

// vxlan wraps a packet for the overlay link of a node.
func vxlan(node string, inner []byte) []byte {
	const vni = 5100
	p := []byte{0x08, 0, 0, 0, 0, vni >> 8, vni & 0xff, 0, 0x02, 0x51}
	p = append(p, net.ParseIP(node).To4()...)
	p = append(p, 0x02, 0, 0, 0, 0, 1, 0x08, 0x00)
	return append(p, inner...)
}

// TestNothingLeavesInClear: while packets flow from a pod on a worker, from the gateway's own pod and from the
// hosts, agents are killed, links deleted, the gateway is as after a reboot, and the remote has no gateway.
func TestNothingLeavesInClear(t *testing.T) {
	n := newNetwork(t)
	inClear, control := n.withDefaultRoute(t)
	eventually(t, time.Minute, "traffic", func() bool { return n.worker1.pings("10.9.0.10", "") })
	run(t, "nft flush set bridge capture flows")
	began := inClear()
	for _, from := range []*exec.Cmd{n.worker1.holder, n.worker1.pod, n.gw1.holder, n.gw1.pod} {
		for _, to := range []string{"10.9.0.10", "10.99.0.7", "192.0.2.1"} {
			flood := exec.CommandContext(t.Context(), "nsenter", "-t", fmt.Sprint(from.Process.Pid), "-n",
				"ping", "-q", "-i", "0.01", to)
			flood.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := flood.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = flood.Process.Kill(); _ = flood.Wait() })
		}
	}
	again := func() {
		t.Helper()
		eventually(t, 20*time.Second, "traffic again", func() bool { return n.worker1.pings("10.9.0.10", "") })
	}
	lull := func() { time.Sleep(300 * time.Millisecond) } // time for packets to go astray in
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
			before := control()
			s.do(t)
			if control() == before {
				t.Error("the capture has not seen the packets that may leave")
			}
			if leaked := inClear() - began; leaked != 0 {
				flows, _ := exec.CommandContext(t.Context(), "nft", "list", "set", "bridge", "capture", "flows").Output()
				t.Errorf("%d packets left in clear:\n%s", leaked, flows)
				began = inClear()
			}
		})
	}
	if marked := n.marked(t); marked != 0 {
		t.Errorf("%d packets left with the mark that is for FORWARD only", marked)
	}
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

// services stands for kube-proxy: addresses in 10.88.0.0/24 and ports of the gateway that are translated.
func (n *network) services(t *testing.T) {
	t.Helper()
	for _, m := range []*machine{n.gw1, n.worker1} {
		m.run(t, `nft -f - <<EOF
table ip services {
	chain translate {
		ip daddr 10.88.0.1 udp dport 53 dnat to 172.31.1.1:4800
		ip daddr 10.88.0.2 udp dport 53 dnat to 172.31.1.2:4800
		ip daddr 10.88.0.9 udp dport 53 dnat to 10.9.0.10:9999
		ip daddr 172.31.1.1 udp dport 30001 dnat to 172.31.1.1:4800
		ip daddr 172.31.1.1 udp dport 30002 dnat to 172.31.1.2:4800
	}
	chain prerouting { type nat hook prerouting priority dstnat; jump translate; }
	chain postrouting { type nat hook postrouting priority srcnat; ct status dnat masquerade; }
}
EOF`)
		t.Cleanup(func() { m.run(t, "nft delete table ip services") })
	}
}

// TestForgedPacketsAreDropped: round the guard of the overlay by a translation, in four ways, by a node's
// source, from a remote source on the underlay, and by a cluster that would have another relay for it.
func TestForgedPacketsAreDropped(t *testing.T) {
	n := newNetwork(t)
	n.withDefaultRoute(t)
	eventually(t, time.Minute, "traffic", func() bool { return n.worker1.pings("10.9.0.10", "") })
	n.services(t)
	self := namespaceOf(os.Getpid())
	for _, m := range n.all() {
		// Nothing here is to be the work of rp_filter.
		m.run(t, `for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done`)
		watchForged := `nft add table ip test; nft add chain ip test pre '{ type filter hook prerouting priority -299; }'
			nft add rule ip test pre ip saddr ` + forgedSource + ` counter comment forged
			nft add rule ip test pre udp dport 9999 counter comment relayed`
		m.run(t, strings.ReplaceAll(watchForged, "prerouting priority -299", "input priority 300"))
		if out, err := within(m.pod, watchForged).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	arrived := func(text string) int {
		sum := 0
		for _, m := range n.all() {
			sum += counted(t, m.command("nft list table ip test"), text)
			sum += counted(t, within(m.pod, "nft list table ip test"), text)
		}
		return sum
	}
	toPod := func(node, pod string) []byte { return vxlan(node, udp4(forgedSource, pod, 7777, nil)) }
	onGateway, onWorker := toPod("172.31.1.1", "10.8.0.10"), toPod("172.31.1.2", "10.8.1.10")
	toNode := vxlan("172.31.1.2", udp4(forgedSource, "172.31.1.2", 7777, nil))

	t.Run("from a node it arrives, or these tests could not fail", func(t *testing.T) {
		before := arrived("forged")
		inNetworkOf(t, n.gw1.holder, sendUDP("172.31.1.2:4800", onWorker))
		eventually(t, 5*time.Second, "arrives", func() bool { return arrived("forged") > before })
	})
	const (
		notNode   = "udp dport 4800 ip saddr != @nodes counter"
		forwarded = "udp dport 4800 ip daddr @nodes ct state"
		notThere  = "udp dport 4800 ip daddr @nodes fib saddr . iif oif 0"
	)
	for _, c := range []struct {
		name string
		from *exec.Cmd
		send func() error
		// where it is dropped, and by which rule
		on   *machine
		rule string
	}{
		{"a ClusterIP to the own node", n.worker1.pod, sendUDP("10.88.0.2:53", onWorker), n.worker1, notNode},
		{"a ClusterIP to another node", n.worker1.pod, sendUDP("10.88.0.1:53", onGateway), n.worker1, forwarded},
		{"a NodePort to the gateway", self, sendUDP("172.31.1.1:30001", onGateway), n.gw1, notNode},
		{"a NodePort to a worker", self, sendUDP("172.31.1.1:30002", onWorker), n.gw1, forwarded},
		{"to a node's own address within", n.worker1.pod, sendUDP("10.88.0.2:53", toNode), n.worker1, notNode},
		{"from another cluster to the gateway", n.gw2.pod, sendUDP("10.88.0.1:53", onGateway), n.gw1, notNode},
		{"from another cluster to a worker", n.gw2.pod, sendUDP("10.88.0.2:53", onWorker), n.gw1, forwarded},
		{"with a node's source from a pod", n.worker1.pod, sendRaw(udp4("172.31.1.1", "172.31.1.2", 4800, onWorker)), n.worker1, notThere},
		{"a remote source from the underlay", self, sendRaw(udp4(forgedSource, "10.8.1.10", 7777, nil)), n.worker1,
			`iifname != "lo" iifname != "sl-*" ip saddr @remote`},
		{"a service whose backend is the sender's cluster", n.gw2.pod, sendUDP("10.88.0.9:53", []byte("x")), n.gw1,
			`iifname "sl-c*" oifname "sl-c*"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, "ip route replace 10.8.1.0/24 via 172.31.1.2")
			before, relayed, dropped := arrived("forged"), arrived("relayed"), c.on.dropped(t, c.rule)
			inNetworkOf(t, c.from, c.send)
			eventually(t, 5*time.Second, "dropped by "+c.rule, func() bool { return c.on.dropped(t, c.rule) > dropped })
			if got := arrived("forged") - before + arrived("relayed") - relayed; got != 0 {
				t.Errorf("%d forged packets arrived", got)
			}
		})
	}
	if n.gw1.says(v1alpha1.ReasonNodeProgrammed) && !n.worker1.pings("10.9.0.10", "") {
		t.Error("honest traffic is lost")
	}
}

func namespaceOf(pid int) *exec.Cmd { return &exec.Cmd{Process: &os.Process{Pid: pid}} }

// TestClosedFromBootOn: after a reboot, while the API server is away, remote networks are unreachable before the
// agent falls back to what the API server said last.
func TestClosedFromBootOn(t *testing.T) {
	n := newNetwork(t)
	eventually(t, time.Minute, "programmed", func() bool { return n.worker1.says(v1alpha1.ReasonNodeProgrammed) })
	n.worker1.stop(t, syscall.SIGKILL)
	if err := os.Rename(n.worker1.path("cluster.json"), n.worker1.path("away.json")); err != nil {
		t.Fatal(err)
	}
	n.worker1.run(t, `ip link del sl-vx; ip route flush table 5100; ip rule del pref 105
		nft delete table ip sealane; nft delete table ip6 sealane; iptables-nft -F FORWARD`)
	n.worker1.start(t)
	const beforeFallback = 2500 * time.Millisecond
	eventually(t, beforeFallback, "closed", func() bool {
		ours := n.worker1.ours(t)
		return strings.Contains(ours, "unreachable 10.9.0.0/16 table 5100") && strings.Contains(ours, "lookup 5100") &&
			strings.Contains(ours, "table ip sealane") && !strings.Contains(ours, "sl-vx")
	})
	eventually(t, 20*time.Second, "traffic again", func() bool { return n.worker1.pings("10.9.0.10", "") })
}
