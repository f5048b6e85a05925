// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func sendUDP(to string, payload []byte) func() error {
	return func() error {
		c, err := new(net.Dialer).DialContext(context.Background(), "udp", to)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_, err = c.Write(payload)
		return err
	}
}

// sendRaw sends a complete packet of IPv4, or of IPv6.
func sendRaw(packet []byte) func() error {
	return func() error {
		family, to := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte(packet[16:20])})
		if packet[0]>>4 == 6 {
			family, to = unix.AF_INET6, &unix.SockaddrInet6{Addr: [16]byte(packet[24:40])}
		}
		fd, err := unix.Socket(family, unix.SOCK_RAW, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		return unix.Sendto(fd, packet, 0, to)
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

// udp6 is an IPv6 packet with a UDP datagram.
func udp6(from, to string, port uint16, payload []byte) []byte {
	datagram := append(make([]byte, 8), payload...)
	binary.BigEndian.PutUint16(datagram, 4711)
	binary.BigEndian.PutUint16(datagram[2:], port)
	binary.BigEndian.PutUint16(datagram[4:], uint16(len(datagram)))
	p := ipv6Packet(from, to)
	binary.BigEndian.PutUint16(p[4:], uint16(len(datagram)))
	p[6] = unix.IPPROTO_UDP
	pseudo := slices.Concat(p[8:40], p[4:6], []byte{0, unix.IPPROTO_UDP}, datagram, make([]byte, len(datagram)%2))
	sum := checksum(pseudo)
	if sum == 0 { // which says that there is none
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(datagram[6:], sum)
	return append(p, datagram...)
}

const forgedSource = "10.9.0.77"

// vxlan wraps a packet for the overlay link of a node.
func vxlan(node string, inner []byte) []byte {
	const vni = 5100
	return vxlanTo(append([]byte{0x02, 0x51}, net.ParseIP(node).To4()...), vni, unix.ETH_P_IP, inner)
}

// vxlanTo wraps a packet of a protocol of Ethernet for a link by VXLAN, by its hardware address.
func vxlanTo(mac []byte, vni int, protocol uint16, inner []byte) []byte {
	p := []byte{0x08, 0, 0, 0, 0, byte(vni >> 8), byte(vni), 0}
	p = append(append(p, mac...), 0x02, 0, 0, 0, 0, 1)
	return append(binary.BigEndian.AppendUint16(p, protocol), inner...)
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
	t.Parallel()
	n := newNetwork(t)
	n.withDefaultRoute(t)
	eventually(t, time.Minute, "traffic", func() bool { return n.worker1.pings("10.9.0.10", "") })
	n.services(t)
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
		{"a NodePort to the gateway", n.underlay, sendUDP("172.31.1.1:30001", onGateway), n.gw1, notNode},
		{"a NodePort to a worker", n.underlay, sendUDP("172.31.1.1:30002", onWorker), n.gw1, forwarded},
		{"to a node's own address within", n.worker1.pod, sendUDP("10.88.0.2:53", toNode), n.worker1, notNode},
		{"from another cluster to the gateway", n.gw2.pod, sendUDP("10.88.0.1:53", onGateway), n.gw1, notNode},
		{"from another cluster to a worker", n.gw2.pod, sendUDP("10.88.0.2:53", onWorker), n.gw1, forwarded},
		{"with a node's source from a pod", n.worker1.pod, sendRaw(udp4("172.31.1.1", "172.31.1.2", 4800, onWorker)),
			n.worker1, notThere},
		{"a remote source from the underlay", n.underlay, sendRaw(udp4(forgedSource, "10.8.1.10", 7777, nil)), n.worker1,
			`iifname != "lo" iifname != "sl-*" ip saddr @remote`},
		{"a service whose backend is the sender's cluster", n.gw2.pod, sendUDP("10.88.0.9:53", []byte("x")), n.gw1,
			`iifname "sl-c*" oifname "sl-c*"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.run(t, "ip route replace 10.8.1.0/24 via 172.31.1.2")
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

// TestOnlyTheNodesOwnPacketsGetItsSource: what a node forwards to a remote network keeps its source, even where
// the forward chain lets it pass; what the node makes itself, with a source that no other cluster knows, gets the
// node's address among the pods.
func TestOnlyTheNodesOwnPacketsGetItsSource(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.withDefaultRoute(t)
	m := n.worker1
	eventually(t, time.Minute, "traffic", func() bool { return m.pings(podOfC2, "") })
	m.stop(t, syscall.SIGKILL) // it would mend the chain
	const foreign, foreignToo = "192.0.2.77", "192.0.2.78"
	m.run(t, fmt.Sprintf(`for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done
		nft flush chain ip sealane forward; ip addr add %[2]s/32 dev eth0; nft add table ip test
		nft add chain ip test post '{ type filter hook postrouting priority 300; }'
		for s in %[1]s %[2]s %[3]s 10.8.1.1; do
			nft add rule ip test post oifname sl-vx ip daddr %[4]s udp dport 7777 ip saddr $s counter comment "from-$s"
		done`, foreign, foreignToo, m.ip, podOfC2))
	from := func(source string) int { return counted(t, m.command("nft list table ip test"), `"from-`+source+`"`) }
	local := func(source string) func() error {
		return func() error {
			d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(source), 0))}
			c, err := d.Dial("udp4", podOfC2+":7777")
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			_, err = c.Write([]byte("x"))
			return err
		}
	}
	for _, c := range []struct {
		name string
		from *exec.Cmd
		send func() error
		want string
	}{
		{"forwarded", m.pod, sendRaw(udp4(foreign, podOfC2, 7777, []byte("x"))), foreign},
		{"of the node's address", m.holder, local(m.ip), "10.8.1.1"},
		{"of another address that the node has", m.holder, local(foreignToo), "10.8.1.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sources := []string{foreign, foreignToo, m.ip, "10.8.1.1"}
			before := map[string]int{}
			for _, s := range sources {
				before[s] = from(s)
			}
			inNetworkOf(t, c.from, c.send)
			eventually(t, 5*time.Second, "leaves by the overlay", func() bool {
				return slices.ContainsFunc(sources, func(s string) bool { return from(s) > before[s] })
			})
			for _, s := range sources {
				if got := from(s) - before[s]; got > 0 != (s == c.want) {
					t.Errorf("%d packets from %s, want them from %s", got, s, c.want)
				}
			}
		})
	}
}
