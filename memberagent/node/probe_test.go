// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// slower says by how much this machine is; the flag is TestMain's.
func slower() int64 {
	return int64(flag.Lookup("slow").Value.(flag.Getter).Get().(int))
}

// loopback gives lo n addresses that the kernel answers at, and returns them.
func loopback(t testing.TB, n int) []netip.Addr {
	t.Helper()
	var script strings.Builder
	script.WriteString("link set lo up\n")
	out := make([]netip.Addr, n)
	for i := range out {
		id := binary.BigEndian.AppendUint32(nil, uint32(i))
		out[i] = plan.ULA(plan.PeerID(id))
		fmt.Fprintf(&script, "addr replace %s/128 dev lo nodad\n", out[i])
	}
	ip := exec.CommandContext(t.Context(), "ip", "-batch", "-")
	ip.Stdin = strings.NewReader(script.String())
	if text, err := ip.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// within polls until it holds, and returns how long it took.
func within(t *testing.T, most time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()
	most = time.Duration(slower() * int64(most))
	start := time.Now()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if holds() {
			break
		}
		if time.Since(start) > most {
			t.Fatalf("not within %s: %s", most, what)
		}
	}
	return time.Since(start)
}

// TestOfTwoHundredAnIdleOneIsLost: found dead within one interval of the slow and four of the fast, and one that has
// traffic within five of the fast; and so when traffic comes after the path was lost.
func TestOfTwoHundredAnIdleOneIsLost(t *testing.T) {
	const n, fast = 200, 50 * time.Millisecond
	addresses := loopback(t, n)
	changes := make(chan struct{}, 1)
	p, err := NewProber(true, func() { signal(changes) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	var targets []target
	for _, a := range addresses {
		targets = append(targets, target{address: a, full: 1420})
	}
	p.Set(paces(targets, fast), fast, 3)
	within(t, 5*time.Second, "all alive", func() bool {
		for _, a := range addresses {
			if p.live(a) != alive {
				return false
			}
		}
		return true
	})
	lose := func(a netip.Addr) {
		if text, err := exec.CommandContext(ctx, "ip", "addr", "del", a.String()+"/128", "dev",
			"lo").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	dead := func(a netip.Addr) func() bool { return func() bool { return p.live(a) == dead } }
	lose(addresses[0])
	t.Logf("idle: dead after %s", within(t, 1300*time.Millisecond, "an idle one is dead", dead(addresses[0])))
	targets[1].busy = true
	p.Set(paces(targets, fast), fast, 3)
	within(t, time.Second, "traffic speeds up", func() bool {
		before := p.Carried(addresses[1]).SentPackets
		time.Sleep(4 * fast)
		return p.Carried(addresses[1]).SentPackets >= before+3
	})
	lose(addresses[1])
	t.Logf("busy: dead after %s", within(t, 350*time.Millisecond, "a busy one is dead", dead(addresses[1])))
	lose(addresses[2])
	targets[2].busy = true
	p.Set(paces(targets, fast), fast, 3)
	t.Logf("idle, and busy after it was lost: dead after %s", within(t, 350*time.Millisecond, "it is dead",
		dead(addresses[2])))
	if got := p.sizes(); len(got) != 0 {
		t.Errorf("sizes found on a path that carries all: %v", got)
	}
	if len(changes) == 0 {
		t.Error("nobody was told")
	}
}

// TestASenderThatWaitsHoldsNobodyUp: a full queue keeps one who sends waiting, and routes go by what is known
// meanwhile.
func TestASenderThatWaitsHoldsNobodyUp(t *testing.T) {
	address := netip.MustParseAddr("fd51::1")
	stuck := &stuckConn{began: make(chan struct{}), free: make(chan struct{})}
	p := &Prober{changed: func() {}, conns: map[bool]net.PacketConn{false: stuck}, tick: time.Second, threshold: 3,
		series: map[netip.Addr]*probed{}, retime: make(chan struct{}, 1)}
	p.Set(map[netip.Addr]Target{address: {Interval: time.Second}}, time.Second, 3)
	ended := make(chan struct{})
	go func() { p.round(time.Now()); close(ended) }()
	<-stuck.began
	known := make(chan struct{})
	go func() {
		_, _, _ = p.live(address), p.Health(address), p.answers(address)
		p.Set(nil, time.Second, 3)
		close(known)
	}()
	select {
	case <-known:
	case <-time.After(10 * time.Second):
		t.Error("what is known of targets waits for the one who sends")
	}
	close(stuck.free)
	<-ended
}

// stuckConn does not send until it is free.
type stuckConn struct {
	net.PacketConn
	began, free chan struct{}
}

func (c *stuckConn) WriteTo(b []byte, _ net.Addr) (int, error) {
	close(c.began)
	<-c.free
	return len(b), nil
}

// TestRequest: an echo request has the size that is asked for with IP's header, and of IPv4 the checksum of RFC 1071.
func TestRequest(t *testing.T) {
	for _, ofIPv4 := range []bool{true, false} {
		for _, size := range []int{headerLen(ofIPv4) + echoBytes, 1280, 1441} {
			s := &probed{ipv4: ofIPv4}
			packet := s.request(0xf00d, 0xbeef, size)
			if len(packet) != size-headerLen(ofIPv4) || s.carried != (Carried{SentPackets: 1, SentBytes: int64(size)}) {
				t.Errorf("IPv4 %t, size %d: %d bytes, counted %+v", ofIPv4, size, len(packet), s.carried)
			}
			var sum uint32
			for i := 0; i < len(packet); i += 2 {
				sum += uint32(packet[i]) << 8
				if i+1 < len(packet) {
					sum += uint32(packet[i+1])
				}
			}
			for sum > 0xffff {
				sum = sum>>16 + sum&0xffff
			}
			if ofIPv4 && sum != 0xffff || !ofIPv4 && binary.BigEndian.Uint16(packet[2:]) != 0 {
				t.Errorf("IPv4 %t, size %d: checksum %x, sum %x", ofIPv4, size, packet[2:4], sum)
			}
			if want := "\xf0\x0d\xbe\xef"; string(packet[4:8]) != want {
				t.Errorf("IPv4 %t, size %d: id and sequence %x", ofIPv4, size, packet[4:8])
			}
		}
	}
}
