// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Prober sends ICMPv6 echo requests to gateways, remote ones through the tunnels and the own cluster's over the
// overlay, which their kernels answer. It keeps a minute of results for each.
type Prober struct {
	changed func()
	conn    *icmp.PacketConn
	id      uint16

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
	address  *net.IPAddr
	interval time.Duration
	due      time.Time
	carried  Carried
}

// Carried is what probes of this node and their answers have taken of a tunnel, in packets and in bytes of them
// before any cable has encrypted them.
type Carried struct{ SentPackets, SentBytes, ReceivedPackets, ReceivedBytes int64 }

// probeBytes is the length of a probe, with its IPv6 header.
const probeBytes = 40 + 8

// NewProber opens the socket; the kernel must have IPv6. changed is called when a target comes up or goes
// down, and must not block.
func NewProber(changed func()) (*Prober, error) {
	conn, err := icmp.ListenPacket("ip6:ipv6-icmp", "::")
	if err != nil {
		return nil, fmt.Errorf("open the probes' socket: %w", err)
	}
	var only ipv6.ICMPFilter
	only.SetAll(true)
	only.Accept(ipv6.ICMPTypeEchoReply)
	if err := conn.IPv6PacketConn().SetICMPFilter(&only); err != nil {
		return nil, errors.Join(fmt.Errorf("filter the probes' socket: %w", err), conn.Close())
	}
	return &Prober{
		changed: changed, conn: conn, id: uint16(rand.IntN(1 << 16)), // no secret: the tunnel authenticates
		tick: time.Second, threshold: 3, series: map[netip.Addr]*probed{}, retime: make(chan struct{}, 1),
	}, nil
}

// Set the targets, each with the time between its probes while all is well, the time between probes of one whose state
// is open, which is none of the longer ones, and after how many lost ones a target is dead. Those that stay keep their
// results.
func (p *Prober) Set(targets map[netip.Addr]time.Duration, fast time.Duration, threshold int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.threshold = threshold
	next := make(map[netip.Addr]*probed, len(targets))
	now := time.Now()
	for address, interval := range targets {
		t := p.series[address]
		if t == nil {
			t = &probed{series: newSeries(), address: &net.IPAddr{IP: address.AsSlice()}, due: now}
		}
		// Many that are to be probed sooner are not all probed at once.
		if soon := now.Add(rand.N(interval)); interval < t.interval && soon.Before(t.due) {
			t.due = soon
		}
		t.interval = interval
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
	return &h
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
	return ok && (s.live == alive || s.streak > 0)
}

// Run sends and receives until the context ends.
func (p *Prober) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.conn.Close() }) // it ends the receiver
	defer stop()
	go p.send(ctx)
	buffer := make([]byte, 1500)
	for {
		n, from, err := p.conn.ReadFrom(buffer)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive probes: %w", err)
		}
		p.receive(buffer[:n], from)
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
		sequence, due, news := p.next(s, now, tick, threshold)
		changed = changed || news
		if due {
			_, _ = p.conn.WriteTo(echoRequest(p.id, sequence), s.address)
		}
	}
	if changed {
		p.changed()
	}
}

// next notes the probe of a target that is due now. One whose state is open is due in every round.
func (p *Prober) next(s *probed, now time.Time, tick time.Duration, threshold int) (sequence uint16, due, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	interval := s.interval
	switch {
	case s.open(now, tick):
		interval = tick
	case now.Before(s.due):
		return 0, false, false
	}
	// A tick that comes a little early is in time; and targets that began together part.
	s.due = now.Add(s.interval - tick/2 - rand.N(s.interval/10+1))
	s.carried.SentPackets++
	s.carried.SentBytes += probeBytes
	sequence, changed = s.sent(now, interval, threshold)
	return sequence, true, changed
}

// echoRequest of ICMPv6 without data; the kernel adds the checksum.
func echoRequest(id, sequence uint16) []byte {
	packet := make([]byte, 8)
	packet[0] = byte(ipv6.ICMPTypeEchoRequest)
	binary.BigEndian.PutUint16(packet[4:], id)
	binary.BigEndian.PutUint16(packet[6:], sequence)
	return packet
}

func (p *Prober) receive(packet []byte, from net.Addr) {
	now := time.Now()
	source, isIP := from.(*net.IPAddr)
	if !isIP || len(packet) < 8 || packet[0] != byte(ipv6.ICMPTypeEchoReply) ||
		binary.BigEndian.Uint16(packet[4:]) != p.id {
		return
	}
	address, _ := netip.AddrFromSlice(source.IP)
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.series[address]
	if !ok {
		return
	}
	s.carried.ReceivedPackets++
	s.carried.ReceivedBytes += int64(40 + len(packet))
	if s.answered(binary.BigEndian.Uint16(packet[6:]), now, p.threshold) {
		p.changed()
	}
}

// Health of a tunnel as its probes see it.
type Health struct {
	Status v1alpha1.ConnectionStatus
	// RTT over the last minute; nil without an answer.
	RTT         *v1alpha1.RTT
	LossPercent int32
}
