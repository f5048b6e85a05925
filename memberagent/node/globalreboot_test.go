// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// talks tells the time every 20 ms to whoever connects to a port of a machine's pod.
func (m *machine) talks(t *testing.T, port int) {
	t.Helper()
	var l net.Listener
	inNetworkOf(t, m.pod, func() (err error) {
		l, err = new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprint(":", port))
		return err
	})
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for t.Context().Err() == nil {
					if _, err := fmt.Fprintln(c, time.Now().UnixNano()); err != nil {
						return
					}
					time.Sleep(20 * time.Millisecond)
				}
			}()
		}
	}()
}

// hears waits for a line of who talks that was sent after a time.
func hears(c net.Conn, after time.Time) error {
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		if at, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64); err == nil && at > after.UnixNano() {
			return nil
		}
	}
}

// TestAGatewayOfTwinsIsRebooted: the only gateway of a cluster loses all that its kernel knows of the connections that
// it has translated. Connections to pods go on, whoever speaks first. Those to services go on or end, as the gateway
// takes what a backend sends first for a new flow. None hangs: clients ask each second whether the server is there.
func TestAGatewayOfTwinsIsRebooted(t *testing.T) {
	t.Parallel()
	n := newTwins(t, podsOfTwins())
	for _, m := range n.all() {
		m.serve(t)
	}
	n.worker2.talks(t, 8090)
	const asked, talking = 8080, 8090 // ports of the pods
	kinds := []struct {
		name, to string
		port     int
	}{
		{"to a pod", "120.2.0.21:8080", asked}, {"to a pod that talks", "120.2.0.21:8090", talking},
		{"to a service", serviceOfTwin2 + ":80", asked}, {"to a service that talks", serviceOfTwin2 + ":82", talking},
	}
	for _, k := range kinds {
		eventually(t, time.Minute, "a connection "+k.name, func() bool {
			c, err := dialFor(t, time.Second, n.worker1.pod, "tcp4", k.to)
			return err == nil && c.Close() == nil
		})
	}
	for name, m := range map[string]*machine{"the client's": n.gw1, "the server's": n.gw2} {
		t.Run(name, func(t *testing.T) {
			var held []net.Conn
			for _, k := range kinds {
				c, err := dialBy(t, &net.Dialer{Timeout: patience, KeepAlive: time.Second}, n.worker1.pod, "tcp4", k.to)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Read(make([]byte, 64)); err != nil {
					t.Fatal(err)
				}
				held = append(held, c)
			}
			m.wipe(t)
			m.run(t, "conntrack -F 2>/dev/null")
			m.start(t)
			eventually(t, time.Minute, "new connections", func() bool {
				c, err := dialFor(t, 300*time.Millisecond, n.worker1.pod, "tcp4", serviceOfTwin2+":80")
				return err == nil && c.Close() == nil
			})
			back := time.Now()
			for i, k := range kinds {
				_ = held[i].SetDeadline(back.Add(time.Minute))
				var err error
				if k.port == talking {
					err = hears(held[i], back)
				} else if _, err = held[i].Write([]byte("still there?")); err == nil {
					_, err = held[i].Read(make([]byte, 64))
				}
				t.Logf("%s: %v, %s after new connections", k.name, err, time.Since(back))
				if toService := strings.HasPrefix(k.to, serviceOfTwin2); err != nil && !toService ||
					errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("a connection %s: %v", k.name, err)
				}
			}
		})
	}
}
