// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// newHost starts a host on the underlay that knows its own network alone, and serves as a pod does.
func (n *twins) newHost(t *testing.T, name, ip string) *machine {
	t.Helper()
	m := &machine{name: name, ip: ip, holder: namespace(t)}
	m.pod = m.holder
	n.run(t, fmt.Sprintf("ip link add %s type veth peer name eth0 netns %d; ip link set %s master under up", name,
		m.holder.Process.Pid, name))
	m.run(t, fmt.Sprintf("ip link set lo up; ip link set eth0 up; ip addr add %s/24 dev eth0", ip))
	m.serve(t)
	return m
}

// TestHostsOutside: a host outside both clusters is reached from the other cluster by a global address of the one that
// exports it, and sees that one's gateway alone; and it reaches what the other exports, by way of that gateway.
// Nobody else gets in or out that way.
func TestHostsOutside(t *testing.T) {
	t.Parallel()
	n := newTwins(t, podsOfTwins())
	for _, m := range n.all() {
		m.serve(t)
	}
	vm, other := n.newHost(t, "vm", "172.31.1.50"), n.newHost(t, "other", "172.31.1.70")
	// An address of the gateway that its Node does not tell.
	n.gw2.run(t, "ip addr add 172.31.1.60/32 dev eth0")
	inNetworkOf(t, n.gw2.holder, func() error { n.gw2.serveHere(t); return nil })
	n.external = map[string][]string{"c2": {"172.31.1.48/28"}}
	exported := append(podsOfTwins()["c2"],
		v1alpha1.GlobalPod{Name: vm.ip, IP: vm.ip, GlobalIP: "120.2.0.30"},
		v1alpha1.GlobalPod{Name: other.ip, IP: other.ip, GlobalIP: "120.2.0.31"},
		v1alpha1.GlobalPod{Name: "node", IP: n.worker2.ip, GlobalIP: "120.2.0.32"},
		v1alpha1.GlobalPod{Name: "172.31.1.60", IP: "172.31.1.60", GlobalIP: "120.2.0.33"},
		v1alpha1.GlobalPod{Name: "172.31.1.61", IP: "172.31.1.61", GlobalIP: "120.2.0.34"})
	n.pods["c2"] = exported
	n.tellAgain(t)
	eventually(t, time.Minute, "gateways connected", func() bool { return n.gw1.connected() && n.gw2.connected() })
	eventually(t, 20*time.Second, "an answer of the host", func() bool {
		_, _, err := ask(t, n.worker1.pod, "tcp4", "120.2.0.30:8080")
		return err == nil
	})
	for _, m := range []*machine{n.gw1, n.gw2} {
		m.run(t, fmt.Sprintf(`nft add table ip test
			nft add chain ip test pre '{ type filter hook prerouting priority -301; }'
			nft add rule ip test pre iifname sl-c0 ip saddr != 120.0.0.0/8 counter comment shown
			nft add rule ip test pre iifname sl-c0 ip daddr != %s counter comment shown`, blocks[m.cluster]))
	}
	t.Run("to the host", func(t *testing.T) { n.toHost(t, vm) })
	t.Run("a large transfer", func(t *testing.T) { n.echoes(t, "120.2.0.30:8080") })
	t.Run("to nobody else", n.toNobodyElse)
	t.Run("from the host", func(t *testing.T) { n.fromHost(t, vm, exported) })
	t.Run("from nobody else", func(t *testing.T) {
		other.run(t, "ip route add 120.1.0.0/24 via "+n.gw2.ip)
		if server, _, err := ask(t, other.holder, "tcp4", serviceOfTwin1+":80"); err == nil {
			t.Errorf("a host that is not allowed reaches %s", server)
		}
	})
	for _, m := range []*machine{n.gw1, n.gw2} {
		if shown := m.counted(t, "shown"); shown != 0 {
			t.Errorf("%s: %d packets came with an address that is not global", m.name, shown)
		}
	}
	t.Run("allowed no more", func(t *testing.T) { n.allowedNoMore(t, vm) })
	t.Run("nothing is left", func(t *testing.T) {
		n.tellTwins(t, v1alpha1.MemberLeaving, nil)
		for _, m := range n.all() {
			m.becomes(t, 20*time.Second, "")
		}
	})
}

// serveHere answers on the machine itself as serve does in its pod.
func (m *machine) serveHere(t *testing.T) {
	t.Helper()
	here := *m
	here.pod = m.holder
	here.serve(t)
}

// toHost connects from everywhere of the other cluster. The host has no route there: it sees the gateway.
func (n *twins) toHost(t *testing.T, vm *machine) {
	for name, from := range map[string]*exec.Cmd{"a pod of a worker": n.worker1.pod, "a pod of a gateway": n.gw1.pod,
		"a worker": n.worker1.holder, "a gateway": n.gw1.holder} {
		for _, network := range []string{"tcp4", "udp4"} {
			server, client, err := ask(t, from, network, "120.2.0.30:8080")
			if err != nil || server != vm.name || client.String() != n.gw2.ip {
				t.Errorf("%s from %s: answered by %q, seen as %s, %v", network, name, server, client, err)
			}
		}
	}
	if _, _, err := ask(t, n.worker1.pod, "udp4", "120.2.0.30:8081"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("an error does not reach its sender: got %v", err)
	}
	if text, err := within(n.worker1.pod, "ping -c 1 -W 3 120.2.0.30").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, text)
	}
}

// echoes sends a lot to who echoes it.
func (n *twins) echoes(t *testing.T, to string) {
	t.Helper()
	c, err := dialFrom(t, n.worker1.pod, "tcp4", to)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(20 * time.Second * time.Duration(*slow))); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 1); b[0] != '\n'; {
		if _, err := c.Read(b); err != nil {
			t.Fatal(err)
		}
	}
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	go func() { _, _ = c.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(sent, got) {
		t.Errorf("%d bytes are not echoed: %v", len(sent), err)
	}
}

// toNobodyElse: addresses that are told to be hosts outside, and may not be or are none, lead nowhere.
func (n *twins) toNobodyElse(t *testing.T) {
	for _, m := range n.all() {
		m.run(t, "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit")
	}
	for to, what := range map[string]string{"120.2.0.31": "a host that is not allowed", "120.2.0.32": "a node"} {
		if _, err := dialFrom(t, n.worker1.pod, "tcp4", to+":8080"); !errors.Is(err, syscall.EHOSTUNREACH) {
			t.Errorf("to %s: %v", what, err)
		}
	}
	if server, _, err := ask(t, n.worker1.pod, "tcp4", "120.2.0.33:8080"); err == nil {
		t.Errorf("the gateway itself answers as %s", server)
	}
	if server, _, err := ask(t, n.gw2.holder, "tcp4", "172.31.1.60:8080"); err != nil || server != "gw2" {
		t.Errorf("it answers nobody, so that this could not fail: %q, %v", server, err)
	}
}

// fromHost connects from the host to a service and a pod of the other cluster, with the gateway as next hop.
func (n *twins) fromHost(t *testing.T, vm *machine, exported []v1alpha1.GlobalPod) {
	vm.run(t, "ip route add 120.1.0.0/24 via "+n.gw2.ip)
	for to, servers := range map[string]string{serviceOfTwin1 + ":80": "gw1 worker1", "120.1.0.21:8080": "worker1"} {
		for _, network := range []string{"tcp4", "udp4"} {
			server, client, err := ask(t, vm.holder, network, to)
			if err != nil || client.String() != "120.2.0.30" || server != servers && servers != "gw1 worker1" {
				t.Errorf("%s to %s: answered by %q, seen as %s, %v: want its own global address", network, to, server, client, err)
			}
		}
	}
	t.Log("exported no more, it still connects, as what the cluster's connections come from")
	n.pods["c2"] = exported[:2]
	n.tellAgain(t)
	eventually(t, 5*time.Second, "seen by an address of the gateway's share", func() bool {
		_, client, err := ask(t, vm.holder, "tcp4", serviceOfTwin1+":80")
		return err == nil && sends["c2"].Contains(client)
	})
	if _, err := dialFrom(t, n.worker1.pod, "tcp4", "120.2.0.30:8080"); !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("it is still reached: %v", err)
	}
	n.pods["c2"] = exported
	n.tellAgain(t)
	eventually(t, 5*time.Second, "an answer of the host again", func() bool {
		_, _, err := ask(t, n.worker1.pod, "tcp4", "120.2.0.30:8080")
		return err == nil
	})
}

// allowedNoMore: what the admin takes back ends, connections included.
func (n *twins) allowedNoMore(t *testing.T, vm *machine) {
	in, err := dialFrom(t, n.worker1.pod, "tcp4", "120.2.0.30:8080")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Read(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	n.external = nil
	n.tellAgain(t)
	eventually(t, 5*time.Second, "the host is not reached", func() bool {
		_, err := dialFor(t, time.Second, n.worker1.pod, "tcp4", "120.2.0.30:8080")
		return errors.Is(err, syscall.EHOSTUNREACH)
	})
	if _, err := in.Write([]byte("still there?")); err == nil {
		if k, err := in.Read(make([]byte, 64)); err == nil {
			t.Errorf("a connection from before goes on: %d bytes", k)
		}
	}
	if server, _, err := ask(t, vm.holder, "tcp4", serviceOfTwin1+":80"); err == nil {
		t.Errorf("the host still reaches %s", server)
	}
}
