// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// largeDatagrams: what does not fit one packet reaches a service and a pod, and so does the answer.
func (n *twins) largeDatagrams(t *testing.T, f family) {
	to := []string{f.port(serviceOfTwin2, "80")}
	if n.pods != nil {
		to = append(to, f.port("120.2.0.20", "8080"), f.port("120.2.0.21", "8080"))
	}
	for _, from := range []*exec.Cmd{n.worker1.pod, n.gw1.pod, n.worker1.holder} {
		for _, address := range to {
			for _, size := range []int{1400, 4000, 20000} {
				for range 4 { // from other ports, and so by other gateways
					var text string
					// The first may be lost that finds the size of packets on the way.
					eventually(t, 5*time.Second, fmt.Sprintf("an answer of %d bytes from %s", size, address), func() bool {
						text = n.datagram(t, from, f, address, size)
						return text != ""
					})
					if fields := strings.Fields(text); len(text) != size || fields[2] != fmt.Sprint(size) {
						t.Errorf("%d bytes to %s: %d come back, of one who has heard %s", size, address, len(text), fields[2])
					}
				}
			}
		}
	}
}

// datagram sends one of a size and returns the answer, "" for none.
func (n *twins) datagram(t *testing.T, from *exec.Cmd, f family, to string, size int) string {
	t.Helper()
	c, err := dialFrom(t, from, f.udp(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(make([]byte, size)); err != nil {
		return ""
	}
	buffer := make([]byte, 1<<16)
	k, err := c.Read(buffer)
	if err != nil {
		return ""
	}
	return string(buffer[:k])
}

// Chunks of SCTP (RFC 9260).
const (
	sctpData, sctpInit, sctpInitAck, sctpCookieEcho, sctpCookieAck = 0, 1, 2, 10, 11

	// sctpTag is the verification tag that both ends ask for.
	sctpTag = 0x5ea1a4e2
)

// sctpPacket is an SCTP packet with one chunk.
type sctpPacket struct {
	source, destination uint16
	tag                 uint32
	kind                byte
	body                []byte
}

func (p sctpPacket) marshal() []byte {
	b := make([]byte, 16, 64)
	binary.BigEndian.PutUint16(b, p.source)
	binary.BigEndian.PutUint16(b[2:], p.destination)
	binary.BigEndian.PutUint32(b[4:], p.tag)
	b[12] = p.kind
	if p.kind == sctpData {
		b[13] = 3 // a whole message
	}
	binary.BigEndian.PutUint16(b[14:], uint16(4+len(p.body)))
	b = append(b, p.body...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// parseSCTP returns an error of what is cut short, or has another checksum.
func parseSCTP(b []byte) (p sctpPacket, err error) {
	if len(b) < 16 {
		return p, fmt.Errorf("expected 16 bytes or more, found %d", len(b))
	}
	sum := binary.LittleEndian.Uint32(b[8:])
	copy(b[8:], make([]byte, 4))
	if want := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)); sum != want {
		return p, fmt.Errorf("expected the checksum %x, found %x", want, sum)
	}
	length := int(binary.BigEndian.Uint16(b[14:]))
	if length < 4 || 12+length > len(b) {
		return p, fmt.Errorf("a chunk of %d bytes in a packet of %d", length, len(b))
	}
	return sctpPacket{binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint32(b[4:]), b[12],
		b[16 : 12+length]}, nil
}

// beginning is the body of INIT and INIT ACK: the tag, a window, streams and a sequence number, and further parameters.
func beginning(parameters ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, sctpTag)
	b = append(b, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1)
	return append(b, parameters...)
}

// sctpSocket gets all packets of SCTP, which the kernel need not know.
type sctpSocket struct {
	fd int
	f  family
}

func newSCTPSocket(t *testing.T, in *exec.Cmd, f family) sctpSocket {
	t.Helper()
	s := sctpSocket{f: f}
	inNetworkOf(t, in, func() (err error) {
		domain := unix.AF_INET
		if f == ofIPv6 {
			domain = unix.AF_INET6
		}
		if s.fd, err = unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP); err != nil {
			return err
		}
		return unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200000})
	})
	return s
}

func (s sctpSocket) send(to netip.Addr, p sctpPacket) error {
	var address unix.Sockaddr = &unix.SockaddrInet6{Addr: to.As16()}
	if to.Is4() {
		address = &unix.SockaddrInet4{Addr: to.As4()}
	}
	return unix.Sendto(s.fd, p.marshal(), 0, address)
}

// receive returns the next packet. Its error is that of the socket, or of what is no SCTP.
func (s sctpSocket) receive() (sctpPacket, netip.Addr, error) {
	buffer := make([]byte, 2048)
	k, peer, err := unix.Recvfrom(s.fd, buffer, 0)
	if err != nil {
		return sctpPacket{}, netip.Addr{}, err
	}
	header := 0
	var from netip.Addr
	switch a := peer.(type) {
	case *unix.SockaddrInet4:
		header, from = int(buffer[0]&0xf)*4, netip.AddrFrom4(a.Addr)
	case *unix.SockaddrInet6:
		from = netip.AddrFrom16(a.Addr)
	}
	p, err := parseSCTP(buffer[min(header, k):k])
	return p, from, err
}

// serveSCTP makes associations on port 8080 of a machine's pod, and answers data as serve does.
func (m *machine) serveSCTP(t *testing.T, f family) {
	t.Helper()
	s, done := newSCTPSocket(t, m.pod, f), make(chan struct{})
	ended := make(chan struct{})
	t.Cleanup(func() { close(done); <-ended; _ = unix.Close(s.fd) })
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
			}
			p, from, err := s.receive()
			if err != nil || p.destination != 8080 {
				continue
			}
			answer := sctpPacket{source: p.destination, destination: p.source, tag: sctpTag}
			switch p.kind {
			case sctpInit:
				answer.kind, answer.body = sctpInitAck, beginning(0, 7, 0, 8, 'c', 'o', 'o', 'k')
			case sctpCookieEcho:
				answer.kind = sctpCookieAck
			case sctpData:
				answer.kind = sctpData
				answer.body = fmt.Append(make([]byte, 12), m.name, " ", from)
			default:
				continue
			}
			_ = s.send(from, answer)
		}
	}()
}

// associates makes associations of SCTP with a service.
func (n *twins) associates(t *testing.T, f family) {
	for _, m := range []*machine{n.gw2, n.worker2} {
		m.serveSCTP(t, f)
	}
	service := netip.MustParseAddr(f.global(serviceOfTwin2))
	servers := map[string]bool{}
	for name, from := range map[string]*exec.Cmd{"a pod of a worker": n.worker1.pod, "a pod of a gateway": n.gw1.pod,
		"a worker": n.worker1.holder} {
		s := newSCTPSocket(t, from, f)
		for i := range 8 {
			port := uint16(5000 + i)
			asks := func(tag uint32, kind byte, body []byte, want byte) (answer sctpPacket) {
				t.Helper()
				if err := s.send(service, sctpPacket{port, 80, tag, kind, body}); err != nil {
					t.Fatal(err)
				}
				eventually(t, 5*time.Second, fmt.Sprintf("%s: chunk %d", name, want), func() bool {
					var err error
					var of netip.Addr
					answer, of, err = s.receive()
					return err == nil && of == service && answer.source == 80 && answer.destination == port && answer.kind == want
				})
				return answer
			}
			asks(0, sctpInit, beginning(), sctpInitAck)
			asks(sctpTag, sctpCookieEcho, []byte("cook"), sctpCookieAck)
			text := string(asks(sctpTag, sctpData, append(make([]byte, 12), "hello"...), sctpData).body[12:])
			server, client, _ := strings.Cut(text, " ")
			servers[server] = true
			if a, err := netip.ParseAddr(client); err != nil || !f.block("c1").Contains(a) {
				t.Errorf("%s: %s sees %q", name, server, client)
			}
		}
		_ = unix.Close(s.fd)
	}
	if len(servers) != 2 {
		t.Errorf("answered by %v: want both backends", servers)
	}
}
