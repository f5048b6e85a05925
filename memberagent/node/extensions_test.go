// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// extension is a header between that of IPv6 and the payload; its first byte, the kind of what follows, is yet to be
// set.
type extension struct {
	kind byte
	data []byte
}

// Options that say nothing, hop by hop or for the destination.
var (
	hopByHop    = extension{unix.IPPROTO_HOPOPTS, []byte{0, 0, 1, 4, 0, 0, 0, 0}}
	destination = extension{unix.IPPROTO_DSTOPTS, []byte{0, 0, 1, 4, 0, 0, 0, 0}}
)

// via is a routing header (RFC 8754) by which the packet goes on to an address.
func via(last string) extension {
	a := netip.MustParseAddr(last).As16()
	return extension{unix.IPPROTO_ROUTING, append([]byte{0, 2, 4, 1, 0, 0, 0, 0}, a[:]...)}
}

// fragment6 is the header of a fragment of a packet: its offset in bytes, and whether more follows.
func fragment6(offset uint16, more bool) extension {
	data := []byte{0, 0, 0, 0, 0, 0, 0x12, 0x67}
	binary.BigEndian.PutUint16(data[2:], offset)
	if more {
		data[3] |= 1
	}
	return extension{unix.IPPROTO_FRAGMENT, data}
}

// packet6 is an IPv6 packet with a payload behind extensions.
func packet6(from, to string, protocol byte, payload []byte, extensions ...extension) []byte {
	const header = 40
	size := header + len(payload)
	for _, e := range extensions {
		size += len(e.data)
	}
	p := append(make([]byte, 0, size), make([]byte, header)...)
	p[0], p[7] = 6<<4, 64
	copy(p[8:], net.ParseIP(from))
	copy(p[24:], net.ParseIP(to))
	next := 6 // where the kind of what follows is
	for _, e := range extensions {
		p[next] = e.kind
		next = len(p)
		p = append(p, e.data...)
	}
	p[next] = protocol
	p = append(p, payload...)
	binary.BigEndian.PutUint16(p[4:], uint16(len(p)-header))
	return p
}

// pseudo6 is what the checksums of UDP and TCP cover besides themselves.
func pseudo6(from, to string, protocol byte, length int) []byte {
	p := append(append([]byte{}, net.ParseIP(from).To16()...), net.ParseIP(to).To16()...)
	return append(binary.BigEndian.AppendUint32(p, uint32(length)), 0, 0, 0, protocol)
}

// datagram to a port, which is at last for an address.
func datagram(from, last string, port uint16) []byte {
	d := make([]byte, 64)
	binary.BigEndian.PutUint16(d, 4711)
	binary.BigEndian.PutUint16(d[2:], port)
	binary.BigEndian.PutUint16(d[4:], uint16(len(d)))
	binary.BigEndian.PutUint16(d[6:], checksum(append(pseudo6(from, last, unix.IPPROTO_UDP, len(d)), d...)))
	return d
}

// opening is the first segment of a TCP connection.
func opening(from, to string, port uint16) []byte {
	s := make([]byte, 20)
	binary.BigEndian.PutUint16(s, 4711)
	binary.BigEndian.PutUint16(s[2:], port)
	s[12], s[13], s[14] = 5<<4, 2, 4
	binary.BigEndian.PutUint16(s[16:], checksum(append(pseudo6(from, to, unix.IPPROTO_TCP, len(s)), s...)))
	return s
}

// extensionsOfIPv6: headers between that of IPv6 and the payload, and fragments, lead nowhere that a packet without
// them does not lead, and are no obstacle.
func (n *twins) extensionsOfIPv6(t *testing.T) {
	// What looks at connections has the kernel put fragments together first.
	const chain = `nft add table ip6 arrivals
		nft add chain ip6 arrivals %[1]s '{ type filter hook %[1]s priority %[2]s; }'
		nft add rule ip6 arrivals %[1]s ct state invalid counter
		nft add rule ip6 arrivals %[1]s udp dport 7777 counter comment arrived
		nft add rule ip6 arrivals %[1]s tcp sport 4711 counter comment arrived`
	places := []*exec.Cmd{n.gw1.pod, n.worker1.pod}
	for _, m := range []*machine{n.gw1, n.worker1} {
		places = append(places, m.holder)
		m.run(t, `for f in /proc/sys/net/ipv6/conf/*/seg6_enabled; do echo 1 > $f; done`)
		m.run(t, fmt.Sprintf(chain, "input", "300"))
		if out, err := within(m.pod, fmt.Sprintf(chain, "prerouting", "-350")).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	arrived := func() (sum int) {
		for _, p := range places {
			sum += counted(t, within(p, "nft list table ip6 arrivals"), "arrived")
		}
		return sum
	}
	mine, pod, other := six("120.2.0.200"), six("120.1.0.20"), six("120.1.0.21")
	gateway, flows, node := six("120.1.0.128"), six("120.1.0.130"), n.gw1.ip6
	udp := func(from, to string, extensions ...extension) []byte {
		return packet6(from, to, unix.IPPROTO_UDP, datagram(from, to, 7777), extensions...)
	}
	onwards := func(to, last string) []byte {
		return packet6(mine, to, unix.IPPROTO_UDP, datagram(mine, last, 7777), via(last))
	}
	// The part of a packet that is cut into fragments begins with options.
	whole := append(append([]byte{unix.IPPROTO_UDP}, destination.data[1:]...), datagram(mine, other, 7777)...)
	part := func(offset uint16, more bool, data []byte) []byte {
		return packet6(mine, other, unix.IPPROTO_DSTOPTS, data, fragment6(offset, more))
	}
	for _, c := range []struct {
		name    string
		packets [][]byte
		want    bool
	}{
		{"without any", [][]byte{udp(mine, other)}, true},
		{"hop by hop", [][]byte{udp(mine, other, hopByHop)}, true},
		{"for the destination, on the gateway", [][]byte{udp(mine, pod, destination, destination)}, true},
		{"in one fragment", [][]byte{udp(mine, other, hopByHop, fragment6(0, false))}, true},
		{"in fragments", [][]byte{part(0, true, whole[:16]), part(16, false, whole[16:])}, true},
		{"in fragments, the last first", [][]byte{part(16, false, whole[16:]), part(0, true, whole[:16])}, true},
		// Kernels take no first fragment without the ports (RFC 8200, section 4.5).
		{"in fragments, the ports in the second", [][]byte{part(8, false, whole[8:]), part(0, true, whole[:8])}, false},
		{"a fragment without the first", [][]byte{part(16, false, whole[16:])}, false},
		{"fragments that overlap", [][]byte{part(0, true, whole[:24]), part(16, false, whole[16:])}, false},
		{"to a port of a service", [][]byte{packet6(mine, six(serviceOfTwin1), unix.IPPROTO_TCP,
			opening(mine, six(serviceOfTwin1), 80), hopByHop, destination)}, true},
		{"to a port that the service has not", [][]byte{udp(mine, six(serviceOfTwin1), destination)}, false},
		{"to the gateway's own address", [][]byte{udp(mine, gateway, hopByHop)}, false},
		{"to an address that flows come from", [][]byte{udp(mine, flows, destination)}, false},
		{"to a pod's own address", [][]byte{udp(mine, "fd07:0:0:1::10", destination)}, false},
		{"to a node", [][]byte{udp(mine, node, hopByHop, destination)}, false},
		{"in one fragment, to a node", [][]byte{udp(mine, node, fragment6(0, false))}, false},
		{"with the other's source", [][]byte{udp(flows, other, hopByHop)}, false},
		{"by the gateway's own address to its node", [][]byte{onwards(gateway, node)}, false},
		{"by the gateway's own address to another node", [][]byte{onwards(gateway, n.worker1.ip6)}, false},
		{"by a pod to a node", [][]byte{onwards(pod, node)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := arrived()
			inNetworkOf(t, n.gw2.holder, sendByCable(unix.ETH_P_IPV6, c.packets...))
			if c.want {
				eventually(t, 5*time.Second, "arrives", func() bool { return arrived() > before })
				return
			}
			time.Sleep(300 * time.Millisecond)
			if got := arrived() - before; got != 0 {
				t.Errorf("%d packets arrived", got)
			}
		})
	}
}
