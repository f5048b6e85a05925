// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// serve answers, in a pod, connections and datagrams on port 8080 with the pod's machine and the client's address;
// what follows in a connection comes back. The answer to a datagram also says how long that was, and is as long.
func (m *machine) serve(t *testing.T) {
	t.Helper()
	inNetworkOf(t, m.pod, func() error {
		tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", ":8080")
		if err != nil {
			return err
		}
		udp, err := net.ListenUDP("udp", &net.UDPAddr{Port: 8080})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _, _ = tcp.Close(), udp.Close() })
		go func() {
			for {
				c, err := tcp.Accept()
				if err != nil {
					return
				}
				go func() {
					defer func() { _ = c.Close() }()
					if _, err := fmt.Fprintf(c, "%s %s\n", m.name, c.RemoteAddr()); err == nil {
						_, _ = io.Copy(c, c)
					}
				}()
			}
		}()
		go func() {
			buffer := make([]byte, 1<<16)
			for {
				k, peer, err := udp.ReadFromUDPAddrPort(buffer)
				if err != nil {
					return
				}
				seen := netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
				_, _ = udp.WriteToUDPAddrPort(fmt.Appendf(nil, "%-*s", k, fmt.Sprint(m.name, " ", seen, " ", k)), peer)
			}
		}()
		return nil
	})
}

const patience = 3 * time.Second

func dialFrom(t *testing.T, from *exec.Cmd, network, to string) (c net.Conn, err error) {
	t.Helper()
	return dialFor(t, patience, from, network, to)
}

// dialFor connects for no longer than a time.
func dialFor(t *testing.T, within time.Duration, from *exec.Cmd, network, to string) (c net.Conn, err error) {
	t.Helper()
	return dialBy(t, &net.Dialer{Timeout: within}, from, network, to)
}

// dialFromPort connects from a port.
func dialFromPort(t *testing.T, from *exec.Cmd, port int, network, to string) (net.Conn, error) {
	t.Helper()
	var local net.Addr = &net.TCPAddr{Port: port}
	if strings.HasPrefix(network, "udp") {
		local = &net.UDPAddr{Port: port}
	}
	return dialBy(t, &net.Dialer{Timeout: patience, LocalAddr: local}, from, network, to)
}

func dialBy(t *testing.T, by *net.Dialer, from *exec.Cmd, network, to string) (c net.Conn, err error) {
	t.Helper()
	inNetworkOf(t, from, func() error {
		c, err = by.DialContext(context.WithoutCancel(t.Context()), network, to)
		return nil
	})
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
		err = c.SetDeadline(time.Now().Add(patience))
	}
	return c, err
}

// ask connects, or sends a datagram, and returns which machine's pod answered and what client it saw.
func ask(t *testing.T, from *exec.Cmd, network, to string) (server string, client netip.Addr, err error) {
	t.Helper()
	c, err := dialFrom(t, from, network, to)
	if err != nil {
		return "", client, err
	}
	defer func() { _ = c.Close() }()
	if strings.HasPrefix(network, "udp") {
		if _, err := c.Write([]byte("hello")); err != nil {
			return "", client, err
		}
	}
	buffer := make([]byte, 256)
	n, err := c.Read(buffer)
	if err != nil {
		return "", client, err
	}
	fields := strings.Fields(string(buffer[:n]))
	if len(fields) < 2 {
		return "", client, fmt.Errorf("unexpected answer %q", buffer[:n])
	}
	p, err := netip.ParseAddrPort(fields[1])
	return fields[0], p.Addr(), err
}
