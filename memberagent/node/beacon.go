// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

const (
	// beaconEvery is the time between two beacons of a node to a gateway, and unheardAfter how long a gateway waits for
	// one.
	beaconEvery  = 5 * time.Second
	unheardAfter = 4 * beaconEvery
	// beaconBytes is the length of a beacon without IP's header: no other probe's.
	beaconBytes = echoBytes + 8
)

// beacons are echo requests of a length of their own, which the nodes of a cluster send to its gateways over the
// overlay. By them a gateway knows whose packets arrive, also where its answers do not: of two nodes between which
// probes are lost, it says which way.
type beacons struct {
	conns []net.PacketConn

	mu sync.Mutex
	// heard is when the last beacon of a node came, or else since when it is waited for, by where it comes from.
	heard map[netip.Addr]time.Time
}

// newBeacons opens the sockets, of IPv6 if the kernel has that.
func newBeacons(ipv6 bool) (*beacons, error) {
	b := &beacons{heard: map[netip.Addr]time.Time{}}
	for network, filter := range map[string][]bpf.Instruction{"ip4:icmp": beaconFilter(true),
		"ip6:ipv6-icmp": beaconFilter(false)} {
		if network == "ip6:ipv6-icmp" && !ipv6 {
			continue
		}
		conn, err := listen(network, func(fd int) error { return attach(fd, filter) })
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		b.conns = append(b.conns, conn)
	}
	return b, nil
}

func (b *beacons) close() error {
	var errs []error
	for _, conn := range b.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// beaconFilter lets a socket get beacons and nothing else: what other probes there are costs nobody anything. A raw
// socket of IPv4 sees IP's header, one of IPv6 does not.
func beaconFilter(ofIPv4 bool) []bpf.Instruction {
	length, at, request := uint32(beaconBytes), uint32(0), uint32(ipv6.ICMPTypeEchoRequest)
	if ofIPv4 {
		length, at, request = length+ipv4.HeaderLen, ipv4.HeaderLen, uint32(ipv4.ICMPTypeEcho)
	}
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtLen},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: length, SkipTrue: 3},
		bpf.LoadAbsolute{Off: at, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: request, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	}
}

func attach(fd int, filter []bpf.Instruction) error {
	raw, err := bpf.Assemble(filter)
	if err != nil {
		return fmt.Errorf("assemble a filter: %w", err)
	}
	program := make([]unix.SockFilter, len(raw))
	for i, in := range raw {
		program[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// expect beacons from addresses, and from no others.
func (b *beacons) expect(from []netip.Addr, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := make(map[netip.Addr]time.Time, len(from))
	for _, a := range from {
		next[a] = now
		if at, known := b.heard[a]; known {
			next[a] = at
		}
	}
	b.heard = next
}

// unheard are the addresses from which no beacon has come for too long.
func (b *beacons) unheard(now time.Time) map[netip.Addr]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[netip.Addr]bool{}
	for a, at := range b.heard {
		if now.Sub(at) > unheardAfter {
			out[a] = true
		}
	}
	return out
}

// run receives until the context ends.
func (b *beacons) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = b.close() })
	defer stop()
	ended := make(chan error, len(b.conns))
	for _, conn := range b.conns {
		go func() { ended <- receiveFrom(conn, make([]byte, beaconBytes), b.receive) }()
	}
	err := <-ended
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (b *beacons) receive(_ []byte, from net.Addr) {
	source, isIP := from.(*net.IPAddr)
	if !isIP {
		return
	}
	address, _ := netip.AddrFromSlice(source.IP)
	b.note(address.Unmap(), time.Now())
}

func (b *beacons) note(from netip.Addr, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, expected := b.heard[from]; expected {
		b.heard[from] = now
	}
}
