// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// Datagram is one UDP datagram over IPv4, made by hand.
type Datagram struct {
	From, To netip.AddrPort
	Payload  []byte
}

// Marshal returns the IPv4 packet, without a UDP checksum, which IPv4 allows.
func (d Datagram) Marshal() []byte {
	const ipHeader, udpHeader, lifetime = 20, 8, 64
	total := ipHeader + udpHeader + len(d.Payload)
	b := make([]byte, ipHeader+udpHeader, total)
	b[0], b[8], b[9] = 0x45, lifetime, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(b[2:], uint16(total))
	copy(b[12:], d.From.Addr().AsSlice())
	copy(b[16:], d.To.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[10:], checksum(b[:ipHeader]))
	binary.BigEndian.PutUint16(b[20:], d.From.Port())
	binary.BigEndian.PutUint16(b[22:], d.To.Port())
	binary.BigEndian.PutUint16(b[24:], uint16(udpHeader+len(d.Payload)))
	return append(b, d.Payload...)
}

// checksum of an IPv4 header (RFC 1071).
func checksum(header []byte) uint16 {
	var sum uint32
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// VXLAN wraps a packet as the nodes of a cluster do between each other: VXLAN (RFC 7348) with the
// overlay's network identifier.
func VXLAN(packet []byte, to net.HardwareAddr) []byte {
	const vni = 5100
	b := []byte{0x08, 0, 0, 0, vni >> 16, vni >> 8 & 0xff, vni & 0xff, 0}
	b = append(b, to...)
	b = append(b, 0x02, 0x51, 0, 0, 0, 1, 0x08, 0x00)
	return append(b, packet...)
}

// Injector puts packets on a link, past the node's own firewall, routes and translations.
type Injector struct{ fd, link int }

// NewInjector opens a packet socket for a link of a node until the end of the test.
func NewInjector(t *testing.T, node, link string) Injector {
	t.Helper()
	var i Injector
	InNetns(t, node, func() error {
		l, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		i.link = l.Index
		i.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	t.Cleanup(func() { _ = unix.Close(i.fd) })
	return i
}

func (i Injector) Send(packet []byte) error {
	return unix.Sendto(i.fd, packet, 0, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_IP), Ifindex: i.link})
}

func networkOrder(v uint16) uint16 { return v<<8 | v>>8 }
