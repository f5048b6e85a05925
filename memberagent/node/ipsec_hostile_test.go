// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/strongswan/govici/vici"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	ipsecPort = 4534
	// beforeIKE is what an IPv4 packet has before a message of IKE: headers, and the marker that it is none of ESP.
	beforeIKE = 20 + 8 + 4
	// Offsets within a message of IKE (RFC 7296, 3.1), the exchange that begins associations, and the flag of who began.
	ikeNext, ikeExchange, ikeFlags, ikeLength, ikeHeader = 16, 18, 19, 24, 28
	ikeSAInit, ikeInitiator                              = 34, 8
)

// isESP says whether an IPv4 packet to the port of IPsec is none of IKE.
func isESP(packet []byte) bool {
	return len(packet) > beforeIKE && binary.BigEndian.Uint32(packet[beforeIKE-4:]) != 0
}

// isInit says whether it begins associations.
func isInit(packet []byte) bool {
	return len(packet) > beforeIKE+ikeHeader && !isESP(packet) && packet[beforeIKE+ikeExchange] == ikeSAInit &&
		packet[beforeIKE+ikeFlags] == ikeInitiator
}

// recorder has what a tap on the underlay sees of IPsec.
type recorder struct {
	mu      sync.Mutex
	packets [][]byte
	// copies gets each packet at once, if it is there.
	copies func(packet []byte)
}

// record what machines send by IPsec, by IPv4, until the test ends.
func (n *network) record(t *testing.T, machines ...*machine) *recorder {
	t.Helper()
	r := &recorder{}
	for _, m := range machines {
		var fd int
		inNetworkOf(t, n.underlay, func() (err error) {
			link, err := net.InterfaceByName(m.name)
			if err != nil {
				return err
			}
			const all = unix.ETH_P_ALL << 8 // as a bridge takes packets before who asks for one protocol alone
			if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, all); err != nil {
				return err
			}
			if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Index, Protocol: all}); err != nil {
				return err
			}
			return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.listen(t, fd)
		}()
		t.Cleanup(func() { <-done; _ = unix.Close(fd) })
	}
	return r
}

func (r *recorder) listen(t *testing.T, fd int) {
	buffer := make([]byte, 1<<16)
	for t.Context().Err() == nil {
		k, from, err := unix.Recvfrom(fd, buffer, 0)
		link, _ := from.(*unix.SockaddrLinklayer)
		if err != nil || link.Pkttype == unix.PACKET_OUTGOING || k < beforeIKE ||
			buffer[0] != 0x45 || buffer[9] != unix.IPPROTO_UDP ||
			binary.BigEndian.Uint16(buffer[22:]) != ipsecPort {
			continue
		}
		p := bytes.Clone(buffer[:k])
		copy(p[26:], []byte{0, 0}) // the link leaves its checksum to hardware
		r.mu.Lock()
		r.packets = append(r.packets, p)
		copies := r.copies
		r.mu.Unlock()
		if copies != nil {
			copies(p)
		}
	}
}

// of the packets those for which something holds.
func (r *recorder) of(is func([]byte) bool) [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.packets), func(p []byte) bool { return !is(p) })
}

// hostile sends any IPv4 packets on the underlay.
type hostile struct{ fd int }

func (n *network) hostile(t *testing.T) hostile {
	t.Helper()
	var h hostile
	inNetworkOf(t, n.underlay, func() (err error) {
		h.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		return err
	})
	t.Cleanup(func() { _ = unix.Close(h.fd) })
	return h
}

// send a packet; the kernel makes its length and checksum right. What does not fit the queue is lost.
func (h hostile) send(packet []byte) {
	_ = unix.Sendto(h.fd, packet, 0, &unix.SockaddrInet4{Addr: [4]byte(packet[16:20])})
}

// from is a packet with another source.
func from(packet []byte, source net.IP) []byte {
	out := bytes.Clone(packet)
	copy(out[12:16], source.To4())
	return out
}

// flood sends packets that make returns, at a rate, while f runs.
func (h hostile) flood(perSecond int, packet func(i int) []byte, f func()) (sent int) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for begin := time.Now(); ; time.Sleep(time.Millisecond) {
			select {
			case <-stop:
				return
			default:
			}
			for due := int(time.Since(begin).Seconds() * float64(perSecond)); sent < due; sent++ {
				h.send(packet(sent))
			}
		}
	}()
	f()
	close(stop)
	<-done
	return sent
}

// vici asks charon of a machine something.
func (m *machine) vici(command string) (*vici.Message, error) {
	s, err := vici.NewSession(vici.WithSocketPath(filepath.Join(m.path("ipsec"), "vici.sock")))
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	return s.CommandRequest(command, nil)
}

// halfOpen is how many associations have begun that charon of a machine has.
func (m *machine) halfOpen(t *testing.T) int {
	t.Helper()
	stats, err := m.vici("stats")
	if err != nil {
		t.Fatal(err)
	}
	sas, _ := stats.Get("ikesas").(*vici.Message)
	k, err := strconv.Atoi(fmt.Sprint(sas.Get("half-open")))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var residentOf = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// resident memory of a machine's charon, in bytes.
func (m *machine) resident(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.charon(t)))
	if err != nil {
		t.Fatal(err)
	}
	k, _ := strconv.Atoi(residentOf.FindStringSubmatch(string(text))[1])
	return k << 10
}

// tallied are datagrams with numbers, from a pod to another, and how often each has arrived.
type tallied struct {
	client net.Conn
	sent   uint32
	mu     sync.Mutex
	times  map[uint32]int
}

func newTallied(t *testing.T, from, to *machine) *tallied {
	t.Helper()
	c := &tallied{times: map[uint32]int{}}
	at := to.pods + ".10:7300"
	var server net.PacketConn
	inNetworkOf(t, to.pod, func() (err error) {
		server, err = (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", at)
		return err
	})
	inNetworkOf(t, from.pod, func() (err error) {
		c.client, err = (&net.Dialer{}).DialContext(t.Context(), "udp4", at)
		return err
	})
	t.Cleanup(func() { _, _ = server.Close(), c.client.Close() })
	go func() {
		buffer := make([]byte, 64)
		for {
			k, _, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			if k == 4 {
				c.mu.Lock()
				c.times[binary.BigEndian.Uint32(buffer)]++
				c.mu.Unlock()
			}
		}
	}()
	return c
}

// send the next ones.
func (c *tallied) send(t *testing.T, count int) {
	t.Helper()
	for range count {
		c.sent++
		if _, err := c.client.Write(binary.BigEndian.AppendUint32(nil, c.sent)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// arrived is how many have, and how many of these more than once.
func (c *tallied) arrived() (some, twice int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.times {
		some++
		if k > 1 {
			twice++
		}
	}
	return some, twice
}

// TestReplayedIPsecIsDropped: whoever has recorded what goes between two gateways sends it again, at once and later,
// from the right address and from others, after the associations were replaced, and after charon was. Nothing arrives
// twice, and nothing is lost. It runs alone, as what it sends is much.
func TestReplayedIPsecIsDropped(t *testing.T) {
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{"c1": byIPsec, "c2": byIPsec})
	r, h := n.record(t, n.gw1), n.hostile(t)
	n.sendBy(t, "sl-ci0", byIPsec)
	other := net.ParseIP("172.31.1.66")
	n.run(t, "ip addr add 172.31.1.66/24 dev under")
	n.gw2.run(t, `nft add table ip test; nft add chain ip test in '{ type filter hook input priority 300; }'
		nft add rule ip test in ip saddr 172.31.1.66 udp dport 4534 counter comment replayed`)
	f, c := newTraffic(t, n.worker1, n.worker2), newTallied(t, n.worker1, n.worker2)
	replay := func(what string) {
		t.Helper()
		again, before := r.of(func([]byte) bool { return true }), n.gw2.counted(t, "replayed")
		for i, p := range again {
			h.send(p)
			h.send(from(p, other))
			if i%8 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		eventually(t, 5*time.Second, what+": replayed packets reach charon", func() bool {
			return n.gw2.counted(t, "replayed") >= before+len(again)*9/10
		})
		if _, twice := c.arrived(); twice > 0 {
			t.Errorf("%s: %d of %d replayed packets arrived twice within", what, twice, len(again))
		}
		f.stretch.lasts(t, 300*time.Millisecond)
		most := allowed{lost: strayDatagrams, outage: time.Second}
		if espOfKernel() { // what was lost the first time is none that comes again, and is answered to where it comes from
			most.lost = 100
		}
		f.stretch.check(t, what, most)
		f.begin()
		t.Logf("%s: %d packets replayed, %d of them of ESP", what, len(again), len(r.of(isESP)))
	}

	r.mu.Lock()
	r.copies = func(p []byte) {
		if !espOfKernel() { // which answers to where the first one of a packet's copies comes from, as WireGuard does
			h.send(from(p, other))
		}
		h.send(p)
	}
	r.mu.Unlock()
	c.send(t, 300)
	n.gw1.rekey(t) // whose messages are copied, too
	c.send(t, 300)
	r.mu.Lock()
	r.copies = nil
	r.mu.Unlock()
	if k := len(r.of(isESP)); k < 600 {
		t.Fatalf("the tap has seen %d packets of ESP: this could not fail", k)
	}
	eventually(t, 5*time.Second, "what was sent arrives", func() bool {
		some, _ := c.arrived()
		return some >= int(c.sent)-strayDatagrams**slow
	})
	replay("at once and again")
	n.gw2.rekey(t)
	c.send(t, 100)
	replay("after new associations")

	n.gw2.killCharon(t)
	eventually(t, 20*time.Second, "another charon carries", func() bool {
		return n.gw2.charon(t) != 0 && n.worker1.pings(n.worker2.pods+".10", "")
	})
	n.sendBy(t, "sl-ci0", byIPsec)
	f.stretch.lasts(t, 100*time.Millisecond)
	f.stretch.end()
	f.begin()
	replay("after another charon")

	c.sent--
	c.send(t, 1)
	eventually(t, 5*time.Second, "a datagram that is sent twice counts as that, or this could not fail", func() bool {
		_, twice := c.arrived()
		return twice == 1
	})
	n.sealed(t)
}

// withSPI is a message of IKE, in its packet, that begins other associations.
func withSPI(init []byte) []byte {
	out := bytes.Clone(init)
	_, _ = rand.Read(out[beforeIKE : beforeIKE+8])
	return out
}

// withCookie is such a message with the cookie that an answer has; nil if it has none (RFC 7296, 2.6).
func withCookie(message, answer []byte) []byte {
	const notify, cookie, header = 41, 16390, 8
	if len(answer) < ikeHeader+header || answer[ikeNext] != notify ||
		binary.BigEndian.Uint16(answer[ikeHeader+6:]) != cookie {
		return nil
	}
	payload := bytes.Clone(answer[ikeHeader:])
	payload[0] = message[ikeNext]
	out := slices.Concat(message[:ikeHeader], payload, message[ikeHeader:])
	out[ikeNext] = notify
	binary.BigEndian.PutUint32(out[ikeLength:], uint32(len(out)))
	return out
}

// holdOpen has charon of a machine begin associations for which nothing follows, from the address of another machine
// and from ports other than its charon's, as from behind the same NAT: 20 at once, and one every 100 ms while f runs.
func holdOpen(t *testing.T, from, to *machine, init []byte, f func()) {
	t.Helper()
	var c net.Conn
	inNetworkOf(t, from.holder, func() (err error) {
		c, err = (&net.Dialer{}).DialContext(t.Context(), "udp4", net.JoinHostPort(to.ip, strconv.Itoa(ipsecPort)))
		return err
	})
	defer func() { _ = c.Close() }()
	buffer := make([]byte, 1<<16)
	ask := func(message []byte) []byte {
		_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
		_, _ = c.Write(append(make([]byte, 4), message...))
		k, _ := c.Read(buffer)
		return buffer[min(4, k):k]
	}
	begin := func() {
		message := withSPI(init)[beforeIKE:]
		if next := withCookie(message, ask(message)); next != nil {
			ask(next)
		}
	}
	for range 20 {
		begin()
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
				begin()
			}
		}
	}()
	f()
	close(stop)
	<-done
}

// TestFloodsLeaveIPsecAlone: strangers begin associations, from addresses that are forged, among them the peer's, or
// send garbage. What is established carries on, charon's memory stays as it is, and a pair that loses its associations
// meanwhile is back soon: also where the strangers are behind the same address as the peer, which alone gets through.
// Nor is charon taken for one that hangs. It runs alone: thousands of packets a second are felt by tests beside it that
// look at the clock, as it does.
func TestFloodsLeaveIPsecAlone(t *testing.T) {
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{"c1": byIPsec, "c2": byIPsec}, func(n *network) {
		n.gw2.patience = 3 * time.Second // each flood lasts longer
	})
	n.withDefaultRoute(t)
	r, h := n.record(t, n.gw1, n.gw2), n.hostile(t)
	n.sendBy(t, "sl-ci0", byIPsec)
	n.gw1.killCharon(t)
	eventually(t, 10*time.Second, "associations begin", func() bool { return len(r.of(isInit)) > 0 })
	n.sendBy(t, "sl-ci0", byIPsec)
	init := from(r.of(isInit)[0], net.ParseIP(n.gw1.ip))
	copy(init[16:20], net.ParseIP(n.gw2.ip).To4())
	f := newTraffic(t, n.worker1, n.worker2)
	lost := func(what string) {
		t.Helper()
		n.gw1.killCharon(t)
		took := eventually(t, 15*time.Second, what+": the pair is back", func() bool {
			return n.gw1.charon(t) != 0 && n.worker1.pings(n.worker2.pods+".10", "")
		})
		t.Logf("%s: back after %s, %d half open, %d MiB resident", what, took, n.gw2.halfOpen(t), n.gw2.resident(t)>>20)
	}
	random := func(i int) net.IP { return net.IPv4(198, 19, byte(i>>8), byte(i)) }
	resident, flooded := n.gw2.resident(t), n.gw2.charon(t)
	for _, c := range []struct {
		name   string
		packet func(i int) []byte
	}{
		{"from the peer's address", func(int) []byte { return withSPI(init) }},
		{"from many", func(i int) []byte { return from(withSPI(init), random(i)) }},
		{"garbage with an SPI of ESP", func(i int) []byte {
			p := append(from(init, random(i))[:beforeIKE-4], make([]byte, 80)...)
			_, _ = rand.Read(p[beforeIKE-4:])
			return p
		}},
		{"cut off", func(i int) []byte { return from(withSPI(init), random(i))[:beforeIKE-4+i%(len(init)-beforeIKE+4)] }},
	} {
		f.begin()
		h.flood(2000, c.packet, func() {
			f.stretch.lasts(t, 700*time.Millisecond)
			f.stretch.check(t, c.name, allowed{lost: 10, outage: time.Second})
			lost(c.name)
			time.Sleep(n.gw2.patience)
			if k := n.gw2.halfOpen(t); k > 40 {
				t.Errorf("%s: charon has %d associations half open, want 40 at most", c.name, k)
			}
		})
	}
	if now := n.gw2.resident(t); now > resident+4<<20 {
		t.Errorf("charon had %d bytes, and has %d after the floods", resident, now)
	}

	n.run(t, fmt.Sprintf(`nft add rule bridge clear shut ip saddr %s udp dport 4534 @th,240,16 0x2208 drop
		nft add rule bridge clear shut ip6 nexthdr udp udp dport 4534 drop`, n.gw2.ip))
	n.sendBy(t, "sl-ci0", byIPsec)
	holdOpen(t, n.gw1, n.gw2, init, func() {
		if k := n.gw2.halfOpen(t); k < 20 {
			t.Errorf("charon takes %d from the peer's address, want 20: it would not let the peer in any more", k)
		}
		lost("from behind the peer's NAT")
	})
	if now := n.gw2.charon(t); now != flooded {
		t.Errorf("charon was process %d, and is %d: it was ended for having much to do", flooded, now)
	}
}
