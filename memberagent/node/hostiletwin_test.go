// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// header4 is an IPv4 header with a payload behind it. offset is that of a fragment in units of 8 bytes, with its flags.
func header4(from, to string, protocol byte, offset uint16, payload []byte) []byte {
	p := make([]byte, 20, 20+len(payload))
	p[0], p[8], p[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(p[2:], uint16(20+len(payload)))
	binary.BigEndian.PutUint16(p[4:], 4711) // of all fragments
	binary.BigEndian.PutUint16(p[6:], offset)
	copy(p[12:], net.ParseIP(from).To4())
	copy(p[16:], net.ParseIP(to).To4())
	binary.BigEndian.PutUint16(p[10:], checksum(p))
	return append(p, payload...)
}

// checksum of the Internet protocols (RFC 1071).
func checksum(p []byte) uint16 {
	var sum uint32
	for i := 0; i < len(p); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// tcp4 is a TCP segment without data, with these flags.
func tcp4(from, to string, port uint16, flags byte) []byte {
	s := make([]byte, 20)
	binary.BigEndian.PutUint16(s, 4711)
	binary.BigEndian.PutUint16(s[2:], port)
	binary.BigEndian.PutUint32(s[4:], 1)
	s[12], s[13] = 5<<4, flags
	binary.BigEndian.PutUint16(s[14:], 1024)
	pseudo := append(append(append([]byte{}, net.ParseIP(from).To4()...), net.ParseIP(to).To4()...), 0, unix.IPPROTO_TCP,
		0, 20)
	binary.BigEndian.PutUint16(s[16:], checksum(append(pseudo, s...)))
	return header4(from, to, unix.IPPROTO_TCP, 0, s)
}

// unreachable is an ICMP error that says that a packet needs to be fragmented, to 576 bytes.
func unreachable(from, to string, of []byte) []byte {
	m := append([]byte{3, 4, 0, 0, 0, 0, 2, 64}, of[:28]...)
	binary.BigEndian.PutUint16(m[2:], checksum(m))
	return header4(from, to, unix.IPPROTO_ICMP, 0, m)
}

// fragments of an IPv4 packet, the first with so many bytes behind the header.
func fragments(packet []byte, first int) (head, tail []byte) {
	const more = 0x2000
	from, to := net.IP(packet[12:16]).String(), net.IP(packet[16:20]).String()
	return header4(from, to, packet[9], more, packet[20:20+first]),
		header4(from, to, packet[9], uint16(first/8), packet[20+first:])
}

// byCable sends IPv4 packets by a cable, past everything that the node would do with them.
func byCable(packets ...[]byte) func() error { return sendByCable(unix.ETH_P_IP, packets...) }

// sendByCable does that with packets of any protocol of Ethernet.
func sendByCable(protocol uint16, packets ...[]byte) func() error {
	return sendByLink("sl-c0", protocol, packets...)
}

// sendByLink does that by any link.
func sendByLink(name string, protocol uint16, packets ...[]byte) func() error {
	return func() error {
		link, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		to := &unix.SockaddrLinklayer{Ifindex: link.Index, Protocol: protocol>>8 | protocol<<8}
		for _, p := range packets {
			if err := unix.Sendto(fd, p, 0, to); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestHostileTwin: the gateway of a cluster that others know by its block sends what it likes, by a cable that is up.
// Pods are reached by their global addresses and by nothing else, and the gateway and its node not at all. Nor do pods
// of the own cluster pass for what has other global addresses.
func TestHostileTwin(t *testing.T) {
	t.Parallel()
	n := newTwins(t, podsOfTwins())
	for _, m := range n.all() {
		m.serve(t)
	}
	eventually(t, time.Minute, "gateways connected", func() bool { return n.gw1.connected() && n.gw2.connected() })
	for _, to := range []string{"120.1.0.20:8080", serviceOfTwin1 + ":80"} {
		eventually(t, 20*time.Second, "an answer of "+to, func() bool {
			_, _, err := ask(t, n.worker2.pod, "udp4", to)
			return err == nil
		})
	}
	// Errors of the network between gateways, which are dialled at an address that nobody has, too, are none of a cable.
	const chain = `nft add table ip test; nft add chain ip test %[1]s '{ type filter hook %[1]s priority %[2]s; }'
		nft add rule ip test %[1]s udp dport 7777 counter comment arrived
		nft add rule ip test %[1]s tcp dport 7777 counter comment arrived
		nft add rule ip test %[1]s tcp sport 7777 counter comment answered
		nft add rule ip test %[1]s %[3]s icmp type destination-unreachable counter comment arrived`
	places := []*exec.Cmd{n.gw1.pod, n.worker1.pod}
	for _, m := range []*machine{n.gw1, n.worker1} {
		places = append(places, m.holder)
		m.run(t, `for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done`)
		m.run(t, fmt.Sprintf(chain, "input", "300", `iifname "sl-*"`))
		if out, err := within(m.pod, fmt.Sprintf(chain, "prerouting", "-450", "")).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	arrived := func() (sum int) {
		for _, p := range places {
			sum += counted(t, within(p, "nft list table ip test"), "arrived")
		}
		return sum
	}
	const mine = "120.2.0.200"
	long := udp4(mine, "120.1.0.20", 7777, make([]byte, 64))
	head, tail := fragments(long, 24)
	tiny, rest := fragments(long, 8)
	for _, c := range []struct {
		name string
		send func() error
		want bool
	}{
		{"to a pod, without a checksum", byCable(udp4(mine, "120.1.0.20", 7777, []byte("x"))), true},
		{"to a pod on another node", byCable(udp4(mine, "120.1.0.21", 7777, []byte("x"))), true},
		{"in fragments", byCable(head, tail), true},
		{"in fragments, the last first", byCable(rest, tiny), true},
		{"a fragment without the first", byCable(tail), false},
		{"a port of a service that it has not", byCable(udp4(mine, serviceOfTwin1, 7777, []byte("x"))), false},
		{"to the gateway's own address", byCable(udp4(mine, "120.1.0.128", 7777, []byte("x"))), false},
		{"to an address that flows come from", byCable(udp4(mine, "120.1.0.130", 7777, []byte("x"))), false},
		{"to nobody", byCable(udp4(mine, "120.1.0.99", 7777, []byte("x"))), false},
		{"to the block's first", byCable(udp4(mine, "120.1.0.0", 7777, []byte("x"))), false},
		{"to a pod's own address", byCable(udp4(mine, "10.7.1.10", 7777, []byte("x"))), false},
		{"to a node's address among the pods", byCable(tcp4(mine, "10.7.1.1", 7777, 0x02)), false},
		{"with the other's source", byCable(udp4("120.1.0.130", "120.1.0.20", 7777, []byte("x"))), false},
		{"with a pod's source", byCable(udp4("10.7.0.10", "120.1.0.20", 7777, []byte("x"))), false},
		{"with a third cluster's source", byCable(udp4("120.3.0.1", "120.1.0.20", 7777, []byte("x"))), false},
		{"an answer to nothing", byCable(tcp4(mine, "120.1.0.21", 7777, 0x12)), false},
		{"an error of no flow", byCable(unreachable(mine, "120.1.0.20", udp4("120.1.0.20", mine, 99, nil))), false},
		{"an error of no flow to the gateway", byCable(unreachable(mine, "120.1.0.128", udp4("120.1.0.130", mine, 99, nil))),
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := arrived()
			inNetworkOf(t, n.gw2.holder, c.send)
			if c.want {
				eventually(t, 5*time.Second, "arrives", func() bool { return arrived() > before })
				return
			}
			time.Sleep(300 * time.Millisecond)
			if got := arrived() - before; got != 0 {
				t.Errorf("%d packets arrived", got)
				for i, p := range places {
					out, err := within(p, "nft list table ip test").CombinedOutput()
					t.Logf("%d: %v\n%s", i, err, out)
				}
			}
		})
	}
	t.Run("what the gateway knows of the way to its own nodes", n.errorsOfOthersFlows)
	t.Run("pods with sources that are not theirs", func(t *testing.T) {
		n.gw2.run(t, `nft add table ip test; nft add chain ip test pre '{ type filter hook prerouting priority -301; }'
			nft add rule ip test pre iifname sl-c0 udp dport 7777 counter comment arrived`)
		for _, m := range []*machine{n.gw1, n.worker1} {
			for _, source := range []string{"120.1.0.130", "120.1.0.128", "120.1.0.20", "169.254.51.64", "192.0.2.1"} {
				before := n.gw2.counted(t, "arrived")
				inNetworkOf(t, m.pod, sendRaw(udp4(source, serviceOfTwin2, 7777, []byte("x"))))
				time.Sleep(300 * time.Millisecond)
				if n.gw2.counted(t, "arrived") != before {
					t.Errorf("from a pod of %s as %s: it arrives", m.name, source)
				}
			}
		}
	})
	if !n.gw1.says(v1alpha1.ReasonNodeProgrammed) {
		t.Error("the gateway is not programmed")
	}
}

// errorsOfOthersFlows: a gateway takes no error from a cable that is about what it sends to its own cluster, whether it
// tracks such a flow or not.
func (n *twins) errorsOfOthersFlows(t *testing.T) {
	const port = 5555
	inNetworkOf(t, n.gw1.holder, func() error {
		c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(n.gw1.ip), Port: port},
			&net.UDPAddr{IP: net.ParseIP(n.worker1.ip), Port: 9})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = c.Close() })
		_, err = c.Write([]byte("x"))
		return err
	})
	flow := udp4(n.gw1.ip, n.worker1.ip, 9, nil)
	binary.BigEndian.PutUint16(flow[20:], port)
	for what, of := range map[string][]byte{
		"of no flow": header4(n.gw1.ip, n.worker1.ip, unix.IPPROTO_ICMP, 0, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}),
		"of a flow":  flow,
	} {
		t.Run(what, func(t *testing.T) {
			n.gw1.run(t, "ip route flush cache")
			inNetworkOf(t, n.gw2.holder, byCable(unreachable("120.2.0.200", "120.1.0.128", of)))
			time.Sleep(300 * time.Millisecond)
			if route := n.gw1.run(t, "ip route get "+n.worker1.ip); strings.Contains(route, "mtu") {
				t.Errorf("the other cluster sets the size of packets: %s", route)
			}
		})
	}
}
