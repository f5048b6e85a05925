// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inNetwork calls f in the network of a node. A socket that f opens stays there.
func inNetwork(t *testing.T, node string, f func() error) {
	t.Helper()
	ended := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and takes its network with it.
		runtime.LockOSThread()
		ended <- func() error {
			ns, err := os.Open(filepath.Join("/run/netns", shared.Lab.Netns(node)))
			if err != nil {
				return err
			}
			defer func() { _ = ns.Close() }()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter the network of %s: %w", node, err)
			}
			return f()
		}()
	}()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// datagram is one UDP datagram over IPv4, made by hand.
type datagram struct {
	from, to netip.AddrPort
	payload  []byte
}

func (d datagram) marshal() []byte {
	const ipHeader, udpHeader, lifetime = 20, 8, 64
	total := ipHeader + udpHeader + len(d.payload)
	b := make([]byte, ipHeader+udpHeader, total)
	b[0], b[8], b[9] = 0x45, lifetime, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(b[2:], uint16(total))
	copy(b[12:], d.from.Addr().AsSlice())
	copy(b[16:], d.to.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[10:], checksum(b[:ipHeader]))
	binary.BigEndian.PutUint16(b[20:], d.from.Port())
	binary.BigEndian.PutUint16(b[22:], d.to.Port())
	binary.BigEndian.PutUint16(b[24:], uint16(udpHeader+len(d.payload)))
	return append(b, d.payload...)
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

// overlayed wraps a packet as the nodes of a cluster do between each other: VXLAN (RFC 7348) with the
// overlay's network identifier.
func overlayed(packet []byte, to net.HardwareAddr) []byte {
	const vni = 5100
	b := []byte{0x08, 0, 0, 0, vni >> 16, vni >> 8 & 0xff, vni & 0xff, 0}
	b = append(b, to...)
	b = append(b, 0x02, 0x51, 0, 0, 0, 1, 0x08, 0x00)
	return append(b, packet...)
}

// injector puts packets on a link, past the node's own firewall, routes and translations.
type injector struct{ fd, link int }

func newInjector(t *testing.T, node, link string) injector {
	t.Helper()
	var i injector
	inNetwork(t, node, func() error {
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

func (i injector) send(packet []byte) error {
	return unix.Sendto(i.fd, packet, 0, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_IP), Ifindex: i.link})
}

func networkOrder(v uint16) uint16 { return v<<8 | v>>8 }

// marked begins the payloads that a witness looks for.
const marked = "sealane-e2e-"

// sighting is a packet on a link of a node.
type sighting struct {
	link     string
	outgoing bool
	packet   []byte
}

// witness sees what passes any link of a node, before the firewall on the way in and after it on the way
// out.
type witness struct {
	fd    int
	links map[int]string

	mu   sync.Mutex
	seen []sighting
}

func newWitness(t *testing.T, node string) *witness {
	t.Helper()
	w := &witness{links: map[int]string{}}
	inNetwork(t, node, func() error {
		links, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, l := range links {
			w.links[l.Index] = l.Name
		}
		w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(networkOrder(unix.ETH_P_ALL)))
		if err != nil {
			return err
		}
		return unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go w.watch(ctx, ended)
	t.Cleanup(func() { cancel(); <-ended; _ = unix.Close(w.fd) })
	return w
}

func (w *witness) watch(ctx context.Context, ended chan<- struct{}) {
	defer close(ended)
	packet := make([]byte, 1<<16)
	for ctx.Err() == nil {
		n, from, err := unix.Recvfrom(w.fd, packet, 0)
		link, ok := from.(*unix.SockaddrLinklayer)
		if err != nil || !ok || !bytes.Contains(packet[:n], []byte(marked)) {
			continue
		}
		w.mu.Lock()
		w.seen = append(w.seen, sighting{w.links[link.Ifindex], link.Pkttype == unix.PACKET_OUTGOING, bytes.Clone(packet[:n])})
		w.mu.Unlock()
	}
}

// where says on which links a payload was seen: "> sl-wg0" on the way in, "cni0 >" on the way out.
func (w *witness) where(payload string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, s := range w.seen {
		if !bytes.Contains(s.packet, []byte(payload)) {
			continue
		}
		if s.outgoing {
			out = append(out, s.link+" >")
		} else {
			out = append(out, "> "+s.link)
		}
	}
	return out
}

// listener is a port of a node on all its addresses.
type listener struct {
	net.PacketConn
	node string

	mu    sync.Mutex
	heard []string
}

func listen(t *testing.T, node string) *listener {
	t.Helper()
	l := &listener{node: node}
	inNetwork(t, node, func() error {
		var err error
		l.PacketConn, err = new(net.ListenConfig).ListenPacket(t.Context(), "udp4", "0.0.0.0:0")
		return err
	})
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, _, err := l.ReadFrom(b)
			if err != nil {
				return
			}
			l.mu.Lock()
			l.heard = append(l.heard, string(b[:n]))
			l.mu.Unlock()
		}
	}()
	return l
}

func (l *listener) port() uint16 { return uint16(l.LocalAddr().(*net.UDPAddr).Port) }

func (l *listener) has(payload string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.heard {
		if strings.Contains(h, payload) {
			return true
		}
	}
	return false
}

// hears waits until a word that c2's gateway sends is heard.
func (l *listener) hears(t *testing.T, to netip.AddrPort, word string) {
	t.Helper()
	eventually(t, 10*time.Second, func(ctx context.Context) error {
		tell(ctx, t, "c2-gw", to, []byte(word))
		if !l.has(word) {
			return fmt.Errorf("%s does not hear what is sent to %s", l.node, to)
		}
		return nil
	})
}

// settle waits until everything sent before has been heard.
func (l *listener) settle(t *testing.T, after string) {
	t.Helper()
	l.hears(t, netip.AddrPortFrom(nodeAddr(l.node), l.port()), "settled after "+strings.TrimPrefix(after, marked))
}

// tell sends a datagram the ordinary way.
func tell(ctx context.Context, t *testing.T, node string, to netip.AddrPort, payload []byte) {
	t.Helper()
	inNetwork(t, node, func() error {
		conn, err := new(net.Dialer).DialContext(ctx, "udp4", to.String())
		if err != nil {
			return err
		}
		_, err = conn.Write(payload)
		return errors.Join(err, conn.Close())
	})
}

// tunnel is the control socket of a gateway's WireGuard device, which whoever is root there commands.
type tunnel struct{ socket string }

// tunnelOf finds the socket in the root of the node agent's container.
func tunnelOf(t *testing.T, node string) tunnel {
	t.Helper()
	ns, err := os.Stat(filepath.Join("/run/netns", shared.Lab.Netns(node)))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"/root/var/run/wireguard/sl-wg0.sock", "/root/run/wireguard/sl-wg0.sock"} {
		found, err := filepath.Glob("/proc/[0-9]*" + at)
		if err != nil {
			t.Fatal(err)
		}
		for _, socket := range found {
			its, err := os.Stat(strings.TrimSuffix(socket, at) + "/ns/net")
			if err == nil && os.SameFile(ns, its) {
				return tunnel{socket}
			}
		}
	}
	t.Fatalf("no WireGuard in the node agent's process on %s: with a kernel's, this test has to learn to command that", node)
	return tunnel{}
}

// ask sends one request of WireGuard's cross-platform interface and returns the answer.
func (w tunnel) ask(ctx context.Context, request string) ([]string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", w.socket)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte(request + "\n\n")); err != nil {
		return nil, err
	}
	var lines []string
	for scanner := bufio.NewScanner(conn); scanner.Scan() && scanner.Text() != ""; {
		lines = append(lines, scanner.Text())
	}
	if len(lines) == 0 || lines[len(lines)-1] != "errno=0" {
		return nil, fmt.Errorf("WireGuard answers %q to %q", lines, request)
	}
	return lines, nil
}

// peer is the far end of a tunnel.
type peer struct {
	key      string
	allowed  []string
	received int
}

func (w tunnel) peer(ctx context.Context, publicKey string) (peer, error) {
	raw, err := base64.StdEncoding.DecodeString(publicKey)
	if err != nil {
		return peer{}, err
	}
	p := peer{key: hex.EncodeToString(raw), received: -1}
	lines, err := w.ask(ctx, "get=1")
	at := ""
	for _, line := range lines {
		switch key, value, _ := strings.Cut(line, "="); {
		case key == "public_key":
			at = value
		case at == p.key && key == "allowed_ip":
			p.allowed = append(p.allowed, value)
		case at == p.key && key == "rx_bytes":
			p.received, err = strconv.Atoi(value)
		}
	}
	if err == nil && p.received < 0 {
		err = fmt.Errorf("no peer %s among %d lines", publicKey, len(lines))
	}
	return p, err
}

// allow replaces what a peer may send and be sent. The node agent sets it right within half a minute.
func (w tunnel) allow(ctx context.Context, p peer, allowed ...string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "set=1\npublic_key=%s\nupdate_only=true\nreplace_allowed_ips=true", p.key)
	for _, a := range allowed {
		fmt.Fprintf(&b, "\nallowed_ip=%s", a)
	}
	_, err := w.ask(ctx, b.String())
	return err
}
