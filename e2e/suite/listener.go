// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// Listener is a UDP port of a node, open on all of its addresses. It keeps every datagram that arrives.
type Listener struct {
	net.PacketConn
	node string

	mu    sync.Mutex
	heard []string
}

// Listen opens a port on a node until the end of the test.
func Listen(t *testing.T, node string) *Listener {
	t.Helper()
	l := &Listener{node: node}
	InNetns(t, node, func() error {
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

// Port is the number of the port.
func (l *Listener) Port() uint16 { return uint16(l.LocalAddr().(*net.UDPAddr).Port) }

// Heard tells whether a datagram with the payload in it has arrived.
func (l *Listener) Heard(payload string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.heard {
		if strings.Contains(h, payload) {
			return true
		}
	}
	return false
}

// WaitHeard sends a word from c2's gateway to an address of the listener until it arrives.
func (l *Listener) WaitHeard(t *testing.T, to netip.AddrPort, word string) {
	t.Helper()
	Eventually(t, Patience, func(ctx context.Context) error {
		SendUDP(ctx, t, "c2-gw", to, []byte(word))
		if !l.Heard(word) {
			return fmt.Errorf("%s does not hear what is sent to %s", l.node, to)
		}
		return nil
	})
}

// Flush waits until whatever was sent before has arrived: one node's datagrams stay in order.
func (l *Listener) Flush(t *testing.T, after string) {
	t.Helper()
	l.WaitHeard(t, netip.AddrPortFrom(NodeAddr(l.node), l.Port()), "flush after "+strings.TrimPrefix(after, Marked))
}

// SendUDP sends a datagram through a node's own network stack.
func SendUDP(ctx context.Context, t *testing.T, node string, to netip.AddrPort, payload []byte) {
	t.Helper()
	InNetns(t, node, func() error {
		conn, err := new(net.Dialer).DialContext(ctx, "udp4", to.String())
		if err != nil {
			return err
		}
		_, err = conn.Write(payload)
		return errors.Join(err, conn.Close())
	})
}

// Sender returns a function that sends datagrams from a node's own network stack until the end of the test. One
// that cannot be sent is dropped, as the network would.
func Sender(t *testing.T, node string) func(to netip.AddrPort, payload []byte) {
	t.Helper()
	var conn net.PacketConn
	InNetns(t, node, func() (err error) {
		conn, err = new(net.ListenConfig).ListenPacket(t.Context(), "udp4", ":0")
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	return func(to netip.AddrPort, payload []byte) { _, _ = conn.WriteTo(payload, net.UDPAddrFromAddrPort(to)) }
}
