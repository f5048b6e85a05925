// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Prober sends ICMP echo requests to gateways, remote ones through the tunnels and the own cluster's over the overlay,
// which their kernels answer, by IPv6 or by IPv4 as the targets' addresses are. It keeps a minute of results for each,
// and finds out which sizes pass through the tunnels.
type Prober struct {
	changed func()
	// conns by whether they are of IPv4; there is none of IPv6 where the kernel has none.
	conns map[bool]net.PacketConn
	// id of the small probes; those of sizes have the next, and beacons the one after.
	id uint16

	mu        sync.Mutex
	threshold int
	// series is never changed, but replaced.
	series map[netip.Addr]*probed
	last   time.Time     // round
	tick   time.Duration // between two rounds, and between two probes of a target whose state is open
	retime chan struct{}
}

// probed is a target, its results, and when its next probe is due.
type probed struct {
	*series
	sizing   *sizing // nil where sizes do not matter
	address  *net.IPAddr
	ipv4     bool
	interval time.Duration
	due      time.Time
	carried  Carried
	// beacon says that it gets beacons, and lit when it got the last.
	beacon bool
	lit    time.Time
}

// Target says how to probe a gateway.
type Target struct {
	// Interval between two probes while all is well.
	Interval time.Duration
	// Full is the size in bytes of the largest packet that should pass, 0 where that is not looked at, and Fits the one
	// that has been found to, before this process began; 0 if none has.
	Full, Fits int
	// Beacon says that it is to hear this node's beacons.
	Beacon bool
}

// Carried is what probes of this node and their answers have taken of a tunnel, in packets and in bytes of them
// before any cable has encrypted them.
type Carried struct{ SentPackets, SentBytes, ReceivedPackets, ReceivedBytes int64 }

// The lengths of a probe's own header and, with IP's, of most probes.
const (
	echoBytes  = 8
	probeBytes = ipv6.HeaderLen + echoBytes
)

// A socket that gives an error is read again after receiveAgain, receiveTries times at most.
const (
	receiveAgain = 100 * time.Millisecond
	receiveTries = 50
)

// NewProber opens the sockets, of IPv6 if the kernel has that. changed is called when a target comes up or goes down,
// or the size changes that passes to it, and must not block.
func NewProber(ipv6 bool, changed func()) (*Prober, error) {
	conn4, err := listen("ip4:icmp", probing4)
	if err != nil {
		return nil, err
	}
	conns := map[bool]net.PacketConn{true: conn4}
	if ipv6 {
		if conns[false], err = listen("ip6:ipv6-icmp", probing6); err != nil {
			return nil, errors.Join(err, conn4.Close())
		}
	}
	return &Prober{
		changed: changed, conns: conns, id: uint16(rand.IntN(1 << 16)), // no secret: the tunnel authenticates
		tick: time.Second, threshold: 3, series: map[netip.Addr]*probed{}, retime: make(chan struct{}, 1),
	}, nil
}

// listen opens a socket at any address, and prepares it.
func listen(network string, prepare func(fd int) error) (net.PacketConn, error) {
	conn, err := net.ListenIP(network, nil)
	if err != nil {
		return nil, fmt.Errorf("open the probes' socket %s: %w", network, err)
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		if controlErr := raw.Control(func(fd uintptr) { err = prepare(int(fd)) }); controlErr != nil {
			err = controlErr
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the probes' socket %s: %w", network, err), conn.Close())
	}
	return conn, nil
}

// probing4 prepares a socket of IPv4: it gets echo replies only, and what it sends is never fragmented, whatever the
// kernel thinks of the path.
func probing4(fd int) error {
	const icmpFilter, reply = 1, 0 // linux/icmp.h
	return errors.Join(unix.SetsockoptInt(fd, unix.SOL_RAW, icmpFilter, ^(1<<reply)),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE))
}

// probing6 is the same of IPv6.
func probing6(fd int) error {
	var only unix.ICMPv6Filter
	for i := range only.Data {
		only.Data[i] = math.MaxUint32
	}
	const reply = uint(128 + 1)
	only.Data[reply/32] &^= 1 << (reply % 32)
	return errors.Join(unix.SetsockoptICMPv6Filter(fd, unix.IPPROTO_ICMPV6, unix.ICMPV6_FILTER, &only),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1))
}

// Set the targets, the time between probes of one whose state is open, which is none of the longer ones, and after how
// many lost ones a target is dead. Those that stay keep their results.
func (p *Prober) Set(targets map[netip.Addr]Target, fast time.Duration, threshold int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.threshold = threshold
	next := make(map[netip.Addr]*probed, len(targets))
	now := time.Now()
	for address, target := range targets {
		interval := target.Interval
		t := p.series[address]
		if t == nil {
			t = &probed{series: newSeries(), address: &net.IPAddr{IP: address.AsSlice()}, ipv4: address.Is4(), due: now}
		}
		// Many that are to be probed sooner are not all probed at once.
		if soon := now.Add(rand.N(interval)); interval < t.interval && soon.Before(t.due) {
			t.due = soon
		}
		t.interval, t.beacon = interval, target.Beacon
		switch {
		case target.Full == 0:
			t.sizing = nil
		case t.sizing == nil || t.sizing.full != target.Full:
			t.sizing = newSizing(target.Full, target.Fits)
		}
		next[address] = t
	}
	p.series = next
	if fast != p.tick {
		p.tick = fast
		signal(p.retime)
	}
}

// Health of a target; nil if it is none.
func (p *Prober) Health(target netip.Addr) *Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.series[target]
	if !ok {
		return nil
	}
	h := s.health(time.Now())
	s.loss = float64(h.LossPercent) / 100
	if z := s.sizing; z != nil && (z.fits < z.full || z.lost) {
		h.MTU, h.LeastLost = z.fits, z.lost
	}
	return &h
}

// sizes returns the sizes in use on the paths of targets where these are below what their cables carry. They are nil as
// long as no sizes are probed.
func (p *Prober) sizes() map[netip.Addr]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out map[netip.Addr]int
	for address, s := range p.series {
		if s.sizing == nil {
			continue
		}
		if out == nil {
			out = map[netip.Addr]int{}
		}
		if s.sizing.fits < s.sizing.full {
			out[address] = s.sizing.fits
		}
	}
	return out
}

// Carried returns what the probes of a target have taken so far; the zero value if it is none.
func (p *Prober) Carried(target netip.Addr) Carried {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.series[target]; ok {
		return s.carried
	}
	return Carried{}
}

// live says how a target is; one that is not probed is unknown.
func (p *Prober) live(target netip.Addr) liveness {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.series[target]; ok {
		return s.live
	}
	return unknown
}

// answers says whether a target has answered lately, though it may have to for longer until it counts as alive.
func (p *Prober) answers(target netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.series[target]
	return ok && (s.live == alive || s.live == held || s.streak > 0)
}

// Run sends and receives until the context ends.
func (p *Prober) Run(ctx context.Context) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(inner, func() { // it ends the receivers
		for _, conn := range p.conns {
			_ = conn.Close()
		}
	})
	go p.send(inner)
	ended := make(chan error, len(p.conns))
	for _, conn := range p.conns {
		go func() { ended <- receiveFrom(conn, make([]byte, 1<<16), p.receive) }()
	}
	err := <-ended
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// receiveFrom hands over what a socket gets, until it is closed. A kernel that is short of memory says so to whoever
// reads and works on: only a socket that gives nothing but errors for receiveTries in succession is given up.
func receiveFrom(conn net.PacketConn, buffer []byte, got func(packet []byte, from net.Addr)) error {
	for failures := 0; ; {
		n, from, err := conn.ReadFrom(buffer)
		if err == nil {
			failures = 0
			got(buffer[:n], from)
			continue
		}
		if failures++; failures == receiveTries || errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("receive probes: %w", err)
		}
		time.Sleep(receiveAgain)
	}
}

func (p *Prober) send(ctx context.Context) {
	tick := func() time.Duration {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.tick
	}
	ticker := time.NewTicker(tick())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.retime:
			ticker.Reset(tick())
		case <-ticker.C:
			p.round(time.Now())
		}
	}
}

// round sends a probe to every target that is due, and lets the lock go while it does: a userspace cable, or a full
// queue, may keep the sender waiting. A probe that cannot be sent is one that is lost.
func (p *Prober) round(now time.Time) {
	p.mu.Lock()
	stall := now.Sub(p.last) - p.tick
	p.last = now
	tick, threshold, targets := p.tick, p.threshold, p.series
	if stall > tick/2 {
		for _, s := range targets {
			s.stalled(stall)
		}
	}
	p.mu.Unlock()
	changed := false
	for _, s := range targets {
		packets, news := p.next(s, now, tick, threshold)
		changed = changed || news
		conn := p.conns[s.ipv4]
		if conn == nil {
			continue
		}
		for _, packet := range packets {
			_, _ = conn.WriteTo(packet, s.address)
		}
	}
	if changed {
		p.changed()
	}
}

// next returns the probes of a target that are due now. A target whose state is open is due in every round.
func (p *Prober) next(s *probed, now time.Time, tick time.Duration, threshold int) (packets [][]byte, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if z := s.sizing; z != nil {
		var sizes []int
		sizes, changed = z.due(now, small{s.live == alive, s.answers, s.loss, s.trip(), tick, s.interval})
		for _, size := range sizes {
			packets = append(packets, s.request(p.id+1, z.number, size))
		}
	}
	if s.beacon && now.Sub(s.lit) >= beaconEvery {
		s.lit = now
		packets = append(packets, s.request(p.id+2, 0, headerLen(s.ipv4)+beaconBytes))
	}
	interval := s.interval
	switch {
	case s.open(now, tick), s.sizing != nil && s.sizing.doubtful():
		interval = tick
	case now.Before(s.due):
		return packets, changed
	}
	// A tick that comes a little early is in time; and targets that began together part.
	s.due = now.Add(s.interval - tick/2 - rand.N(s.interval/10+1))
	sequence, turned := s.sent(now, interval, threshold)
	return append(packets, s.request(p.id, sequence, headerLen(s.ipv4)+echoBytes)), changed || turned
}

// request returns an echo request of a size that includes IP's header, and counts it. The kernel adds that header and,
// for IPv6, the checksum.
func (s *probed) request(id, sequence uint16, size int) []byte {
	s.carried.SentPackets++
	s.carried.SentBytes += int64(size)
	message := icmp.Message{Type: ipv6.ICMPTypeEchoRequest,
		Body: &icmp.Echo{ID: int(id), Seq: int(sequence), Data: make([]byte, size-headerLen(s.ipv4)-echoBytes)}}
	if s.ipv4 {
		message.Type = ipv4.ICMPTypeEcho
	}
	packet, _ := message.Marshal(nil) // it fails for other messages only
	return packet
}

// headerLen is the length of an IP header in bytes.
func headerLen(ofIPv4 bool) int {
	if ofIPv4 {
		return ipv4.HeaderLen
	}
	return ipv6.HeaderLen
}

func (p *Prober) receive(packet []byte, from net.Addr) {
	now := time.Now()
	source, isIP := from.(*net.IPAddr)
	if !isIP || len(packet) < echoBytes {
		return
	}
	id, sequence := binary.BigEndian.Uint16(packet[4:]), binary.BigEndian.Uint16(packet[6:])
	address, _ := netip.AddrFromSlice(source.IP)
	address = address.Unmap()
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.series[address]
	if !ok {
		return
	}
	size := headerLen(s.ipv4) + len(packet)
	switch {
	case id == p.id:
		if s.answered(sequence, now, p.threshold) {
			p.changed()
		}
	case id == p.id+1 && s.sizing != nil:
		s.sizing.answered(size, sequence)
	default:
		return
	}
	s.carried.ReceivedPackets++
	s.carried.ReceivedBytes += int64(size)
}

// Health of a tunnel as its probes see it.
type Health struct {
	Status v1alpha1.ConnectionStatus
	// RTT over the last minute; nil without an answer.
	RTT         *v1alpha1.RTT
	LossPercent int32
	// MTU is the size in bytes of the largest packet that passes, where larger ones should, and else 0; LeastLost says
	// that not even that does.
	MTU       int
	LeastLost bool
}
