// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/internal/trace"
)

// Flags of TCP.
const (
	tcpSYN, tcpRST, tcpACK = 0x02, 0x04, 0x10
	tcpFlags               = 13
	udpLength              = 8
)

// network is what an IP header says.
type network struct {
	from, to netip.Addr
	protocol uint8
	size     int
	// payload behind the header.
	payload []byte
}

// parseNetwork reads an IP header; false if it is none, or of a later fragment.
func parseNetwork(b []byte) (network, bool) {
	switch {
	case len(b) >= ipv4Length && b[0]>>4 == 4:
		n := network{protocol: b[ipv4Protocol], size: int(binary.BigEndian.Uint16(b[2:]))}
		n.from, n.to = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		header := int(b[0]&0xf) * 4
		if header < ipv4Length || header > len(b) || binary.BigEndian.Uint16(b[ipv4Fragment:])&0x1fff != 0 {
			return n, false
		}
		n.payload = b[header:]
		return n, true
	case len(b) >= ipv6Length && b[0]>>4 == 6:
		n := network{protocol: b[ipv6Next], size: ipv6Length + int(binary.BigEndian.Uint16(b[4:]))}
		n.from, n.to = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		n.payload = b[ipv6Length:]
		return n, true
	}
	return network{}, false
}

// packet reads the header of a transport.
func (n network) packet() (trace.Packet, bool) {
	b := n.payload
	if len(b) < udpLength {
		return trace.Packet{}, false
	}
	p := trace.Packet{Size: n.size,
		From: netip.AddrPortFrom(n.from, binary.BigEndian.Uint16(b)),
		To:   netip.AddrPortFrom(n.to, binary.BigEndian.Uint16(b[2:]))}
	if n.protocol == unix.IPPROTO_UDP {
		p.Kind = trace.UDP
		if len(b) >= udpLength+4 {
			p.Flow = binary.BigEndian.Uint32(b[udpLength:])
		}
		return p, true
	}
	p.Kind = trace.TCP
	if len(b) <= tcpFlags {
		return p, true // as ICMP errors quote it
	}
	switch flags := b[tcpFlags]; {
	case flags&tcpSYN != 0 && flags&tcpACK == 0:
		p.Kind, p.Flow = trace.SYN, binary.BigEndian.Uint32(b[4:])
	case flags&tcpSYN != 0:
		p.Kind, p.Flow = trace.SYNACK, binary.BigEndian.Uint32(b[8:])-1
	case flags&tcpRST != 0:
		p.Kind = trace.RST
		if flags&tcpACK != 0 && binary.BigEndian.Uint32(b[4:]) == 0 { // it refuses a SYN: RFC 9293 section 3.10.7.1
			p.Flow = binary.BigEndian.Uint32(b[8:]) - 1
		}
	}
	return p, true
}

// refusal reads an ICMP error, and the start of the packet that it is about.
func (n network) refusal() (why string, about trace.Packet, ok bool) {
	if len(n.payload) < icmpLength {
		return "", about, false
	}
	kind, code := n.payload[0], n.payload[1]
	switch n.protocol {
	case unix.IPPROTO_ICMP:
		why = icmpv4(kind, code, n.payload)
	case unix.IPPROTO_ICMPV6:
		why = icmpv6(kind, code, n.payload)
	}
	inner, ok := parseNetwork(n.payload[icmpLength:])
	if why == "" || !ok {
		return "", about, false
	}
	about, ok = inner.packet()
	return why, about, ok
}

func icmpv4(kind, code uint8, b []byte) string {
	switch kind {
	case 3: // RFC 792, RFC 1812 section 5.2.7.1
		switch code {
		case 4:
			return fmt.Sprintf("fragmentation needed, MTU %d", binary.BigEndian.Uint16(b[6:]))
		case 9, 10, 13:
			return "administratively prohibited"
		}
		names := map[uint8]string{0: "network unreachable", 1: "host unreachable", 2: "protocol unreachable",
			3: trace.PortUnreachable}
		if name := names[code]; name != "" {
			return name
		}
		return fmt.Sprintf("destination unreachable, code %d", code)
	case 11:
		return trace.TimeExceeded
	}
	return ""
}

func icmpv6(kind, code uint8, b []byte) string {
	switch kind {
	case 1: // RFC 4443 section 3.1
		names := map[uint8]string{0: "no route", 1: "administratively prohibited", 3: "address unreachable",
			4: trace.PortUnreachable, 5: "source address failed policy", 6: "route rejected"}
		if name := names[code]; name != "" {
			return name
		}
		return fmt.Sprintf("destination unreachable, code %d", code)
	case 2:
		return fmt.Sprintf("packet too big, MTU %d", binary.BigEndian.Uint32(b[4:]))
	case 3:
		return trace.TimeExceeded
	}
	return ""
}
