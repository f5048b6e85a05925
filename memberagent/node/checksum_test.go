// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestEveryDatagramOfIPv6Arrives: also one whose checksum is 0, which means none unless it is written as 0xffff.
func TestEveryDatagramOfIPv6Arrives(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	for _, to := range []*machine{n.gw2, n.worker1} {
		from := map[*machine]*machine{n.gw2: n.worker1, n.worker1: n.gw2}[to]
		address := "[" + to.pods6 + "::10]:7400"
		eventually(t, time.Minute, "a path to "+address, func() bool {
			return within(from.pod, fmt.Sprintf("ping -c1 -W1 %s::10", to.pods6)).Run() == nil
		})
		var server, client net.Conn
		inNetworkOf(t, to.pod, func() error {
			s, err := net.ListenUDP("udp6", &net.UDPAddr{Port: 7400})
			server = s
			return err
		})
		inNetworkOf(t, from.pod, func() (err error) {
			client, err = (&net.Dialer{}).DialContext(t.Context(), "udp6", address)
			return err
		})
		t.Cleanup(func() { _, _ = server.Close(), client.Close() })
		zero := zeroChecksum(client.LocalAddr().(*net.UDPAddr).AddrPort(), client.RemoteAddr().(*net.UDPAddr).AddrPort())
		for name, word := range map[string]uint16{"zero": zero, "one": zero - 1} {
			payload, got := binary.BigEndian.AppendUint16(nil, word), make([]byte, 8)
			eventually(t, 3*time.Second, "a datagram to "+address+" with the checksum "+name, func() bool {
				if _, err := client.Write(payload); err != nil {
					return false
				}
				_ = server.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
				k, err := server.Read(got)
				return err == nil && string(got[:k]) == string(payload)
			})
		}
	}
}

// zeroChecksum is a payload with which the checksum of a UDP datagram of IPv6 is 0.
func zeroChecksum(from, to netip.AddrPort) uint16 {
	const length, protocol = 8 + 2, 17
	sum := 2*length + protocol + uint32(from.Port()) + uint32(to.Port())
	for _, a := range []netip.Addr{from.Addr(), to.Addr()} {
		bytes := a.As16()
		for i := 0; i < len(bytes); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(bytes[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
