// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/memberagent/node"
)

const byVXLAN = v1alpha1.CableVXLAN

// reachBy tells the machines of clusters by which cable to reach the other cluster; empty is WireGuard.
func (n *network) reachBy(t *testing.T, cable v1alpha1.CableDriver, clusters ...string) {
	t.Helper()
	for _, cluster := range clusters {
		n.cables[cluster] = cable
		for _, m := range n.all() {
			if m.cluster == cluster {
				n.tellSome(t, v1alpha1.MemberActive, m)
			}
		}
	}
}

// tunnel is what a gateway with one peer says of it.
func (m *machine) tunnel() v1alpha1.Connection { return m.tunnels()[others[m.cluster]] }

// tunnels are what a gateway says of the first gateway of each cluster.
func (m *machine) tunnels() map[string]v1alpha1.Connection {
	var s v1alpha1.GatewayStatus
	if m.read("status.json", &s) != nil {
		return nil
	}
	out := map[string]v1alpha1.Connection{}
	for _, c := range s.Connections {
		if _, there := out[c.Cluster]; !there {
			out[c.Cluster] = c
		}
	}
	return out
}

// sendBy waits until both gateways send by a cable and say so.
func (n *network) sendBy(t *testing.T, link string, cable v1alpha1.CableDriver) {
	t.Helper()
	for m, to := range map[*machine]string{n.gw1: "10.9.0.0/16", n.gw2: "10.8.0.0/16"} {
		eventually(t, 20*time.Second, m.name+" sends by "+link, func() bool {
			c := m.tunnel()
			return m.carries(to, link) && c.Cable == cable && c.Status == v1alpha1.ConnectionConnected && c.Active
		})
	}
}

// inClear is how many packets of cables by VXLAN the underlay has seen.
func (n *network) inClear(t *testing.T) int {
	t.Helper()
	return counted(t, n.command("nft list table bridge clear"), "vxlan")
}

// TestCablesChangeUnderTraffic from WireGuard to VXLAN and back: nothing breaks and, while both ends are well, nothing
// is lost, whichever of the two hears of it first. Where VXLAN does not pass, traffic goes by WireGuard.
func TestCablesChangeUnderTraffic(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.worker2 = n.newMachine(t, "worker2", "c2", 6, "10.9.2", "fd09:0:0:2")
	n.worker2.start(t)
	n.cables = map[string]v1alpha1.CableDriver{}
	n.reachBy(t, "", "c1", "c2")
	for _, m := range n.all() {
		m.forwardsItsPods(t)
	}
	n.run(t, `nft add table bridge clear
		nft add chain bridge clear c '{ type filter hook prerouting priority 0; }'
		nft add rule bridge clear c udp dport 4533 counter comment vxlan`)
	f := newTraffic(t, n.worker1, n.worker2)
	f.stretch.lasts(t, time.Second)
	f.whole(t, "by WireGuard")

	n.reachBy(t, byVXLAN, "c1")
	eventually(t, 20*time.Second, "gw1 says that vxlan is silent", func() bool {
		c := n.gw1.tunnel()
		return c.Reason == v1alpha1.ReasonCableSilent && c.Status == v1alpha1.ConnectionConnected &&
			c.Cable == v1alpha1.CableWireGuard
	})
	f.stretch.lasts(t, 500*time.Millisecond)
	f.whole(t, "only one end knows")
	if !n.gw1.carries("10.9.0.0/16", "sl-c0") || n.gw2.command("ip link show sl-cv0").Run() == nil {
		t.Error("the pair has another cable though only one end is told of it")
	}

	n.reachBy(t, byVXLAN, "c2")
	n.sendBy(t, "sl-cv0", byVXLAN)
	f.stretch.lasts(t, time.Second)
	f.whole(t, "to VXLAN")

	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		n.gw2.stop(t, s)
		n.gw2.start(t)
		n.sendBy(t, "sl-cv0", byVXLAN)
	}
	f.stretch.lasts(t, 500*time.Millisecond)
	f.whole(t, "an agent ends and starts")

	n.run(t, "nft insert rule bridge clear c udp dport 4533 drop")
	n.sendBy(t, "sl-c0", v1alpha1.CableWireGuard)
	f.stretch.lasts(t, 500*time.Millisecond)
	f.stretch.check(t, "VXLAN is shut", allowed{lost: 100, outage: 2 * time.Second})
	f.begin()
	n.run(t, `nft flush chain bridge clear c
		nft add rule bridge clear c udp dport 4533 counter comment vxlan`)
	n.sendBy(t, "sl-cv0", byVXLAN)
	f.whole(t, "VXLAN is open again")

	n.reachBy(t, v1alpha1.CableWireGuard, "c1")
	eventually(t, 20*time.Second, "gw1 sends by WireGuard", func() bool { return n.gw1.carries("10.9.0.0/16", "sl-c0") })
	n.reachBy(t, "", "c2")
	n.sendBy(t, "sl-c0", v1alpha1.CableWireGuard)
	f.whole(t, "to WireGuard")
	before := n.inClear(t)
	if before == 0 {
		t.Error("no packet of VXLAN was seen: this could not fail")
	}
	for _, m := range n.gateways() {
		eventually(t, 20*time.Second, "no cable by VXLAN is left on "+m.name, func() bool {
			return m.command("! ip -o link | grep -q sl-cv && ! nft list ruleset | grep -q vtep").Run() == nil
		})
	}
	f.stretch.lasts(t, 500*time.Millisecond)
	f.whole(t, "by WireGuard again")
	if after := n.inClear(t); after != before {
		t.Errorf("%d packets left in clear after both ends had heard", after-before)
	}
}

// TestAnAddressThatAnotherClaims: a third cluster publishes the address of a gateway that is reached by VXLAN. That one
// is reached by WireGuard then, and nothing is lost, though it hears of no change.
func TestAnAddressThatAnotherClaims(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.worker2 = n.newMachine(t, "worker2", "c2", 6, "10.9.2", "fd09:0:0:2")
	n.worker2.start(t)
	n.cables = map[string]v1alpha1.CableDriver{}
	n.reachBy(t, byVXLAN, "c1", "c2")
	for _, m := range n.all() {
		m.forwardsItsPods(t)
	}
	n.sendBy(t, "sl-cv0", byVXLAN)
	f := newTraffic(t, n.worker1, n.worker2)
	f.stretch.lasts(t, 500*time.Millisecond)
	var o node.Objects
	if err := n.gw1.read("cluster.json", &o); err != nil {
		t.Fatal(err)
	}
	claims := v1alpha1.RemoteCluster{Name: "c3", Cable: byVXLAN,
		Networks: v1alpha1.Networks{PodCIDRs: []string{"10.7.0.0/16"}, ServiceCIDRs: []string{"10.77.0.0/16"}},
		Endpoints: []v1alpha1.Endpoint{{Gateway: "gw", PublicKey: topology.Key{1}.String(), MTU: 1420,
			Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPrivate, IP: n.gw2.ip}}}}}
	o.Peering.Spec.RemoteClusters = append(o.Peering.Spec.RemoteClusters, claims)
	if err := n.gw1.write("cluster.json", o); err != nil {
		t.Fatal(err)
	}
	_ = n.gw1.agent.Process.Signal(syscall.SIGHUP)
	for m, to := range map[*machine]string{n.gw1: "10.9.0.0/16", n.gw2: "10.8.0.0/16"} {
		eventually(t, 20*time.Second, m.name+" sends by WireGuard", func() bool { return m.carries(to, "sl-c0") })
	}
	eventually(t, 20*time.Second, "gw1 takes nothing by VXLAN", func() bool {
		return n.gw1.command("! ip -o link | grep -q sl-cv && ! nft list ruleset | grep -q vtep").Run() == nil
	})
	f.whole(t, "another claims the address")
	if n.gw2.command("ip link show sl-cv0").Run() != nil {
		t.Error("gw2 has heard that it is reached otherwise: this shows nothing")
	}
}

// TestAPortThatAnotherProgramHas: traffic goes by WireGuard, the connection says why, and the node is well. It goes by
// VXLAN when the port is free.
func TestAPortThatAnotherProgramHas(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.cables = map[string]v1alpha1.CableDriver{}
	var program *net.UDPConn
	inNetworkOf(t, n.gw1.holder, func() (err error) {
		program, err = net.ListenUDP("udp4", &net.UDPAddr{Port: 4533})
		return err
	})
	n.reachBy(t, byVXLAN, "c1", "c2")
	eventually(t, 20*time.Second, "gw1 says that its port is another program's", func() bool {
		c := n.gw1.tunnel()
		return c.Status == v1alpha1.ConnectionConnected && c.Reason == v1alpha1.ReasonCableSilent &&
			strings.Contains(c.Message, "UDP port 4533 of this node, for vxlan, is another program's")
	})
	if !n.gw1.says(v1alpha1.ReasonNodeProgrammed) {
		t.Errorf("expected gw1 to be programmed, found %s", n.gw1.run(t, "cat "+n.gw1.path("state.json")))
	}
	if !n.worker1.pings(podOfC2, "") || !n.gw1.carries("10.9.0.0/16", "sl-c0") {
		t.Error("expected traffic by WireGuard, found none")
	}
	if err := program.Close(); err != nil {
		t.Fatal(err)
	}
	n.reachBy(t, byVXLAN, "c1")
	n.sendBy(t, "sl-cv0", byVXLAN)
}

// TestVXLANByIPv6: nodes that have IPv6 addresses alone reach each other's pods of both families, in packets of full
// size.
func TestVXLANByIPv6(t *testing.T) {
	t.Parallel()
	n := withoutMachines(t)
	n.gw1 = n.newMachine(t, "gw1", "c1", 1, "10.8.0", "fd08:0:0:0")
	n.gw2 = n.newMachine(t, "gw2", "c2", 3, "10.9.0", "fd09:0:0:0")
	n.cables = map[string]v1alpha1.CableDriver{"c1": byVXLAN, "c2": byVXLAN}
	for _, m := range n.all() {
		m.ipv6Only = true
		m.forwardsItsPods(t)
	}
	n.tell(t, v1alpha1.MemberActive)
	for _, m := range n.all() {
		m.start(t)
	}
	n.sendBy(t, "sl-cv0", byVXLAN)
	for _, to := range []string{podOfC2, podOfC26} {
		if out, err := within(n.gw1.pod, "ping -c2 -W2 -i0.2 -M do -s 1350 "+to).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if got := n.gw2.tunnel().Address; got != "[fd31::1]:4533" {
		t.Errorf("the tunnel leads to %s", got)
	}
}

// TestTwoGatewaysByVXLAN: each of two gateways in each cluster has a cable to each of the others. One ends and returns,
// and keys are replaced, which those cables have no need of: nothing is lost.
func TestTwoGatewaysByVXLAN(t *testing.T) {
	t.Parallel()
	n := highlyAvailableBy(t, byVXLAN)
	r := n.passedOn(t)
	defer r.close()
	f := newTraffic(t, n.worker1, n.worker2)
	loseNothing(t, f.flows, func(s stretch) {
		n.gw1.stop(t, syscall.SIGTERM)
		s.lasts(t, 500*time.Millisecond)
		n.gw1.start(t)
		n.settled(t)
	})
	f.begin()
	asked := r.ask(t, "c1")
	eventually(t, 2*time.Minute, "c1 has new keys", func() bool { return n.gw1.rotated(asked) && n.gw4.rotated(asked) })
	n.settled(t)
	f.whole(t, "new keys")
}

// cableVXLAN wraps a packet of IPv4 for the cable by VXLAN of a gateway.
func cableVXLAN(gateway string, vni int, inner []byte) []byte {
	return vxlanTo(append([]byte{0x02, 0x51}, net.ParseIP(gateway).To4()...), vni, unix.ETH_P_IP, inner)
}

// TestForgedVXLANIsDropped: a cable by VXLAN takes what its peer sends from its own networks, and nothing else: not
// from others than the peer, not from networks of others, and not what a pod sends through the peer's own node.
func TestForgedVXLANIsDropped(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.cables = map[string]v1alpha1.CableDriver{}
	n.withDefaultRoute(t)
	n.reachBy(t, "", "c2")
	n.reachBy(t, byVXLAN, "c1")
	eventually(t, 20*time.Second, "gw1 takes VXLAN", func() bool {
		return n.gw1.command("ip link show up sl-cv0 | grep -q sl-cv0 && nft list map ip sealane vtepchains").Run() == nil
	})
	for _, m := range n.all() {
		m.run(t, `for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done`)
	}
	const watch = `nft add table ip test; nft add chain ip test pre '{ type filter hook prerouting priority -299; }'
		nft add rule ip test pre udp dport 7777 counter comment forged`
	if out, err := within(n.gw1.pod, watch).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	arrived := func() int { return counted(t, within(n.gw1.pod, "nft list table ip test"), "forged") }
	// Masquerading, a CNI gives what its pods send the node's address.
	n.gw2.run(t, `nft add table ip cni; nft add chain ip cni post '{ type nat hook postrouting priority srcnat; }'
		nft add rule ip cni post ip saddr 10.9.0.0/16 ip daddr 172.31.1.0/24 masquerade`)
	const vni = 5110
	from := func(source string) []byte { return udp4(source, "10.8.0.10", 7777, nil) }
	send := func(inner []byte, vni int) func() error {
		return sendUDP(net.JoinHostPort(n.gw1.ip, "4533"), cableVXLAN(n.gw1.ip, vni, inner))
	}
	const foreign, notThere, forwarded = "udp dport 4533 fib daddr type local counter",
		"udp dport 4533 ip daddr 172.31.1.1 fib saddr . iif oif 0", "udp dport 4533 ip daddr @outers counter"
	t.Run("from a pod of the peer, masqueraded, before that has heard of VXLAN", func(t *testing.T) {
		eventually(t, 20*time.Second, "gw2 knows gw1", func() bool {
			return n.gw2.command("nft list set ip sealane outers | grep -q "+n.gw1.ip).Run() == nil
		})
		inNetworkOf(t, n.gw2.pod, send(from(podOfC2), vni))
		eventually(t, 5*time.Second, "dropped", func() bool { return n.gw2.dropped(t, forwarded) == 1 })
		if got := arrived(); got != 0 {
			t.Errorf("%d forged packets arrived", got)
		}
	})
	n.reachBy(t, byVXLAN, "c2")
	n.sendBy(t, "sl-cv0", byVXLAN)
	t.Run("from the peer it arrives, or these tests could not fail", func(t *testing.T) {
		before := arrived()
		inNetworkOf(t, n.gw2.holder, send(from(podOfC2), vni))
		eventually(t, 5*time.Second, "arrives", func() bool { return arrived() > before })
	})
	ipv6 := append(cableVXLAN(n.gw1.ip, vni, nil), ipv6Packet("fd08::1", "fd08::10")...)
	ipv6[20], ipv6[21] = 0x86, 0xdd
	tagged := cableVXLAN(n.gw1.ip, vni, append([]byte{0, 1, 0x08, 0}, from(podOfC2)...))
	tagged[20], tagged[21] = 0x81, 0
	for _, c := range []struct {
		name string
		from *exec.Cmd
		send func() error
		on   *machine
		rule string
	}{
		{"from somebody on the underlay", n.underlay, send(from(podOfC2), vni), n.gw1, foreign},
		{"from a worker of the own cluster", n.worker1.holder, send(from(podOfC2), vni), n.gw1, foreign},
		{"with a source of the receiver's", n.gw2.holder, send(from("10.8.1.10"), vni), n.gw1, foreign},
		{"with a source of nobody's", n.gw2.holder, send(from("10.77.0.10"), vni), n.gw1, foreign},
		{"with a source of the receiver's, IPv6", n.gw2.holder,
			sendUDP(net.JoinHostPort(n.gw1.ip, "4533"), ipv6), n.gw1, foreign},
		{"for the cable of another slot", n.gw2.holder, send(from(podOfC2), vni+1), n.gw1, foreign},
		{"with a VLAN tag", n.gw2.holder, sendUDP(net.JoinHostPort(n.gw1.ip, "4533"), tagged), n.gw1, foreign},
		{"with a source of nobody's, in fragments", n.gw2.holder,
			send(udp4("10.77.0.10", "10.8.0.10", 7777, make([]byte, 4000)), vni), n.gw1, foreign},
		{"too short for a source", n.gw2.holder,
			sendUDP(net.JoinHostPort(n.gw1.ip, "4533"), cableVXLAN(n.gw1.ip, vni, nil)), n.gw1, foreign},
		{"to another address of the gateway", n.gw2.holder,
			sendUDP("10.8.0.1:4533", cableVXLAN(n.gw1.ip, vni, from(podOfC2))), n.gw1, ""},
		{"with the peer's address from a pod of the gateway", n.gw1.pod,
			sendRaw(udp4(n.gw2.ip, n.gw1.ip, 4533, cableVXLAN(n.gw1.ip, vni, from(podOfC2)))), n.gw1, notThere},
		{"from a pod of the peer, masqueraded", n.gw2.pod, send(from(podOfC2), vni), n.gw2, forwarded},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, dropped := arrived(), 0
			if c.rule != "" {
				dropped = c.on.dropped(t, c.rule)
			}
			inNetworkOf(t, c.from, c.send)
			if c.rule != "" {
				eventually(t, 5*time.Second, "dropped by "+c.rule, func() bool { return c.on.dropped(t, c.rule) > dropped })
			}
			if got := arrived() - before; got != 0 {
				t.Errorf("%d forged packets arrived", got)
			}
		})
	}
	if !n.worker1.pings(podOfC2, "") {
		t.Error("honest traffic is lost")
	}
}

// ipv6Packet is one without payload.
func ipv6Packet(from, to string) []byte {
	p := make([]byte, 40)
	p[0], p[6], p[7] = 0x60, 59, 64
	source, destination := netip.MustParseAddr(from).As16(), netip.MustParseAddr(to).As16()
	copy(p[8:], source[:])
	copy(p[24:], destination[:])
	return p
}

// TestThroughputOfCables measures how much a connection between pods of two clusters carries by each kind of cable.
func TestThroughputOfCables(t *testing.T) {
	if *rounds == 0 {
		t.Skip("it measures: say in how many rounds with -throughput")
	}
	n := newNetwork(t)
	n.worker2 = n.newMachine(t, "worker2", "c2", 6, "10.9.2", "fd09:0:0:2")
	n.worker2.start(t)
	n.cables = map[string]v1alpha1.CableDriver{}
	for _, m := range n.all() {
		m.forwardsItsPods(t)
	}
	by := func(link string, cable v1alpha1.CableDriver) func() float64 {
		return func() float64 {
			n.reachBy(t, cable, "c1", "c2")
			n.sendBy(t, link, cable)
			return n.transfer(t, 21000).rate()
		}
	}
	if ratio := compare(t, "VXLAN, against WireGuard", by("sl-cv0", byVXLAN),
		by("sl-c0", v1alpha1.CableWireGuard)); ratio < 1 {
		t.Errorf("VXLAN carries %.2f times what WireGuard does, which encrypts", ratio)
	}
}
