// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
)

// TestHostsOutsideWithTwoGateways: a host outside is reached by each of its cluster's two gateways, and sends by each.
// Answers go back by the one that has translated, in both directions, and a gateway that comes back takes no flow away.
func TestHostsOutsideWithTwoGateways(t *testing.T) {
	t.Parallel()
	n := newTwinsOfTwo(t, podsOfTwins())
	vm := n.newHost(t, "vm", "172.31.1.50")
	vm.run(t, "echo 1 > /proc/sys/net/ipv4/fib_multipath_hash_policy")
	const global = "120.2.0.30"
	n.external = map[string][]string{"c2": {"172.31.1.48/28"}}
	n.pods["c2"] = append(n.pods["c2"], v1alpha1.GlobalPod{Name: vm.ip, IP: vm.ip, GlobalIP: global})
	n.tellTwins(t, v1alpha1.MemberActive, []string{"10.7.1.10"})
	n.watchPassing(t, ofIPv4)
	n.watchHost(t, global)
	to := global + ":8080"
	eventually(t, time.Minute, "the host sees both gateways", func() bool {
		seen := map[netip.Addr]bool{}
		for range 20 {
			_, client, err := ask(t, n.worker1.pod, "tcp4", to)
			if err != nil {
				return false
			}
			seen[client] = true
		}
		return len(seen) == 2
	})
	t.Run("to the host", func(t *testing.T) { n.toHostByBoth(t, vm, to) })
	t.Run("from the host", func(t *testing.T) { n.fromHostByBoth(t, vm) })
	t.Run("a gateway of the host's cluster is lost", func(t *testing.T) {
		n.gatewayLost(t, ofIPv4, to, n.gw2, n.gw3, n.worker1.pod, n.worker1.holder, n.gw1.pod, n.gw1.holder)
	})
	t.Run("a gateway that the host sends to is lost", func(t *testing.T) { n.lostToHost(t, vm) })
	for _, m := range []*machine{n.gw1, n.gw4} {
		if foreign := m.counted(t, "foreign"); foreign != 0 {
			t.Errorf("%s: %d packets of one gateway come from the other's share", m.name, foreign)
		}
	}
}

// watchHost notes, on the gateways of the client's cluster, to which ports the host's answers come by each cable, and
// counts what comes from each gateway's share.
func (n *twins) watchHost(t *testing.T, global string) {
	t.Helper()
	shares := netip.PrefixFrom(globalnet.Own(ofIPv4.block("c2"), 0), ofIPv4.block("c2").Bits()+1)
	for _, m := range []*machine{n.gw1, n.gw4} {
		m.run(t, `nft add chain ip test pre '{ type filter hook prerouting priority -301; }'`)
		for slot := range 2 {
			m.run(t, fmt.Sprintf(`nft add set ip test answered%[1]d '{ type inet_service; size 65535; flags dynamic; }'
				nft add rule ip test pre iifname sl-c%[1]d ip saddr %[2]s meta l4proto '{ tcp, udp }' \
					add @answered%[1]d '{ th dport }'
				nft add rule ip test pre iifname sl-c%[1]d ip saddr %[3]s counter comment share%[1]d
				nft add rule ip test pre iifname sl-c%[1]d ip saddr %[4]s ip saddr != %[3]s counter comment foreign`,
				slot, global, globalnet.Share(ofIPv4.block("c2"), slot), shares))
		}
	}
}

// toHostByBoth wants each answer by the cable of the gateway that the host has seen, and by no other.
func (n *twins) toHostByBoth(t *testing.T, vm *machine, to string) {
	slots := map[string]int{n.gw2.ip: 0, n.gw3.ip: 1}
	sent := [2]map[uint16]bool{{}, {}}
	for _, network := range ofIPv4.networks() {
		for _, m := range []*machine{n.gw1, n.gw4} {
			m.run(t, "nft flush set ip test answered0; nft flush set ip test answered1")
		}
		for range 60 {
			c, err := dialFrom(t, n.worker1.pod, network, to)
			if err != nil {
				t.Fatal(err)
			}
			server, client := greeting(t, c)
			slot, ok := slots[client.Addr().String()]
			if server != vm.name || !ok {
				t.Fatalf("%s: answered by %q, seen as %s", network, server, client)
			}
			sent[slot][netip.MustParseAddrPort(c.LocalAddr().String()).Port()] = true
		}
		for slot, ports := range sent {
			if len(ports) == 0 {
				t.Errorf("%s: none of 60 flows takes the gateway of slot %d", network, slot)
			}
			by, other := map[uint16]bool{}, map[uint16]bool{}
			for _, m := range []*machine{n.gw1, n.gw4} {
				for port := range m.ports(t, ofIPv4, fmt.Sprint("answered", slot)) {
					by[port] = true
				}
				for port := range m.ports(t, ofIPv4, fmt.Sprint("answered", 1-slot)) {
					other[port] = true
				}
			}
			for port := range ports {
				if !by[port] || other[port] {
					t.Errorf("%s: a flow of the gateway of slot %d is answered by its cable: %t, by the other: %t", network, slot,
						by[port], other[port])
				}
			}
			clear(ports)
		}
	}
}

// greeting is what who answers says of itself and of the client.
func greeting(t *testing.T, c net.Conn) (server string, client netip.AddrPort) {
	t.Helper()
	if c.LocalAddr().Network() == "udp" {
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	buffer := make([]byte, 256)
	k, err := c.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(buffer[:k]))
	if len(fields) < 2 {
		t.Fatalf("unexpected answer %q", buffer[:k])
	}
	return fields[0], netip.MustParseAddrPort(fields[1])
}

// fromHostByBoth has the host send by one gateway, by the other, and by both. Whichever it is, the flow comes from that
// one's share, or the answer would reach the other, which knows nothing of it.
func (n *twins) fromHostByBoth(t *testing.T, vm *machine) {
	came := func(slot int) int {
		comment := fmt.Sprint("share", slot)
		return n.gw1.counted(t, comment) + n.gw4.counted(t, comment)
	}
	for _, c := range []struct {
		route string
		slots []int
	}{
		{"via " + n.gw2.ip, []int{0}}, {"via " + n.gw3.ip, []int{1}},
		{"nexthop via " + n.gw2.ip + " nexthop via " + n.gw3.ip, []int{0, 1}},
	} {
		vm.run(t, fmt.Sprintf("ip route replace %s %s", blocks["c1"], c.route))
		before := [2]int{came(0), came(1)}
		for to, server := range map[string]string{serviceOfTwin1 + ":80": "worker1", "120.1.0.20:8080": "gw1",
			"120.1.0.21:8080": "worker1"} {
			for _, network := range ofIPv4.networks() {
				for range 10 {
					if got, _, err := ask(t, vm.holder, network, to); err != nil || got != server {
						t.Fatalf("%s %s to %s: answered by %q, %v", c.route, network, to, got, err)
					}
				}
			}
		}
		for slot := range 2 {
			wanted := slot == c.slots[0] || len(c.slots) > 1
			if packets := came(slot) - before[slot]; packets > 0 != wanted {
				t.Errorf("%s: %d packets come from the share of slot %d", c.route, packets, slot)
			}
		}
	}
}

// lostToHost takes a gateway of the cluster that the host sends to off the underlay. What the host begins
// meanwhile takes the other one, and stays there when the first is back.
func (n *twins) lostToHost(t *testing.T, vm *machine) {
	to := serviceOfTwin1 + ":80"
	routes := func() string {
		return n.gw2.run(t, "ip route show table 5100") + n.gw3.run(t, "ip route show table 5100")
	}
	before := routes()
	n.run(t, "ip link set gw1 down")
	eventually(t, 10*time.Second, "new connections of the host", func() bool {
		for range 8 {
			c, err := dialFor(t, 300*time.Millisecond, vm.holder, "tcp4", to)
			if err != nil {
				return false
			}
			_ = c.Close()
		}
		return true
	})
	held := n.hold(t, ofIPv4, to, []*exec.Cmd{vm.holder, vm.holder})
	for _, c := range held {
		if err := asks(c); err != nil {
			t.Error(err)
		}
	}
	n.run(t, "ip link set gw1 up")
	eventually(t, time.Minute, "traffic by all gateways again", func() bool { return routes() == before })
	broken := 0
	for _, c := range held {
		if asks(c) != nil {
			broken++
		}
	}
	if broken > 0 {
		t.Errorf("%d of %d flows of the host ended when a gateway came back", broken, len(held))
	}
}
