// SPDX-License-Identifier: Apache-2.0

package cable

import (
	"encoding/binary"

	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"
)

// checksummed is a tun link whose UDP datagrams of IPv6 all have a checksum. The kernel leaves it to the reader of the
// link to compute those of local senders, and wireguard-go writes down what it computes; where that is 0 the receiver
// takes the datagram to have none and drops it: one of 65536, and the same one each time that it is sent again.
type checksummed struct{ tun.Device }

func (c checksummed) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	n, err := c.Device.Read(bufs, sizes, offset)
	for i := range n {
		sayZero(bufs[i][offset : offset+sizes[i]])
	}
	return n, err
}

// Lengths and places of a UDP header, in bytes.
const udpHeader, udpLengthAt, udpChecksumAt = 8, 4, 6

// sayZero writes a UDP checksum of 0 as 0xffff, as RFC 768 and RFC 8200 section 8.1 ask. One that is 0 but should be
// something else is that of a sender which has computed none, as tunnels may (RFC 6935): it stays.
func sayZero(packet []byte) {
	if len(packet) < ipv6.HeaderLen+udpHeader || packet[0]>>4 != ipv6.Version || packet[6] != unix.IPPROTO_UDP {
		return
	}
	udp := packet[ipv6.HeaderLen:]
	checksum := udp[udpChecksumAt : udpChecksumAt+2]
	if checksum[0] != 0 || checksum[1] != 0 {
		return
	}
	addresses := packet[8:ipv6.HeaderLen]
	sum := unix.IPPROTO_UDP + uint64(binary.BigEndian.Uint16(udp[udpLengthAt:])) + words(addresses) + words(udp)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	if sum == 0xffff {
		checksum[0], checksum[1] = 0xff, 0xff
	}
}

// words adds up the 16-bit words of b, of which the last may lack its second byte.
func words(b []byte) (sum uint64) {
	for ; len(b) > 1; b = b[2:] {
		sum += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) > 0 {
		sum += uint64(b[0]) << 8
	}
	return sum
}
