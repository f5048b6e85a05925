// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
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

const icmpv6Protocol = 58

// Prober sends ICMPv6 echo requests to gateways, remote ones through the tunnels and the own cluster's over the
// overlay, which their kernels answer. It keeps a minute of results for each.
type Prober struct {
	changed func()
	conn    *icmp.PacketConn
	id      int

	mu        sync.Mutex
	threshold int
	series    map[netip.Addr]*probed
	last      time.Time // round
	tick      time.Duration
	retime    chan struct{}
}

// probed is a target, its results, and when its next probe is due.
type probed struct {
	*series
	interval time.Duration
	due      time.Time
}

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
		changed: changed, conn: conn, id: rand.IntN(1 << 16), // no secret: the tunnel authenticates
		tick: time.Second, threshold: 3, series: map[netip.Addr]*probed{}, retime: make(chan struct{}, 1),
	}, nil
}

// Set the targets, each with the time between its probes, and after how many lost ones it is dead. Those that stay
// keep their results.
func (p *Prober) Set(targets map[netip.Addr]time.Duration, threshold int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.threshold = threshold
	next := make(map[netip.Addr]*probed, len(targets))
	tick := time.Second
	for address, interval := range targets {
		t := p.series[address]
		if t == nil {
			t = &probed{series: newSeries()}
		}
		if t.interval != interval {
			t.interval, t.due = interval, time.Time{}
		}
		next[address], tick = t, min(tick, interval)
	}
	p.series = next
	if tick != p.tick {
		p.tick = tick
		select {
		case p.retime <- struct{}{}:
		default:
		}
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

// round sends a probe to every target that is due. One that cannot be sent is one that is lost.
func (p *Prober) round(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stall := now.Sub(p.last) - p.tick
	p.last = now
	changed := false
	for target, s := range p.series {
		if stall > p.tick/2 {
			s.stalled(stall)
		}
		if now.Before(s.due) {
			continue
		}
		s.due = now.Add(s.interval - p.tick/2) // a tick that comes a little early is in time
		sequence, news := s.sent(now, s.interval, p.threshold)
		changed = changed || news
		message := icmp.Message{Type: ipv6.ICMPTypeEchoRequest, Body: &icmp.Echo{ID: p.id, Seq: int(sequence)}}
		if packet, err := message.Marshal(nil); err == nil { // the kernel adds the checksum
			_, _ = p.conn.WriteTo(packet, &net.IPAddr{IP: target.AsSlice()})
		}
	}
	if changed {
		p.changed()
	}
}

func (p *Prober) receive(packet []byte, from net.Addr) {
	now := time.Now()
	message, err := icmp.ParseMessage(icmpv6Protocol, packet)
	if err != nil {
		return
	}
	echo, ok := message.Body.(*icmp.Echo)
	source, isIP := from.(*net.IPAddr)
	if !ok || !isIP || echo.ID != p.id {
		return
	}
	address, _ := netip.AddrFromSlice(source.IP)
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.series[address]; ok && s.answered(uint16(echo.Seq), now, p.threshold) {
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
