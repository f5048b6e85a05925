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

// Prober sends ICMPv6 echo requests to remote gateways, through the tunnels, which the remote kernels
// answer. It keeps a minute of results for each.
type Prober struct {
	changed func()
	conn    *icmp.PacketConn
	id      int

	mu        sync.Mutex
	interval  time.Duration
	threshold int
	series    map[netip.Addr]*series
	retime    chan struct{}
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
		interval: time.Second, threshold: 4, series: map[netip.Addr]*series{}, retime: make(chan struct{}, 1),
	}, nil
}

// Set the targets. Those that stay keep their results.
func (p *Prober) Set(targets []netip.Addr, interval time.Duration, threshold int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if interval != p.interval {
		p.interval = interval
		select {
		case p.retime <- struct{}{}:
		default:
		}
	}
	p.threshold = threshold
	next := make(map[netip.Addr]*series, len(targets))
	for _, t := range targets {
		if next[t] = p.series[t]; next[t] == nil {
			next[t] = newSeries()
		}
	}
	p.series = next
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
	p.mu.Lock()
	ticker := time.NewTicker(p.interval)
	p.mu.Unlock()
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.retime:
			p.mu.Lock()
			ticker.Reset(p.interval)
			p.mu.Unlock()
		case now := <-ticker.C:
			p.round(now)
		}
	}
}

// round sends one probe to every target. One that cannot be sent is one that is lost.
func (p *Prober) round(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := false
	for target, s := range p.series {
		sequence, down := s.sent(now, p.threshold)
		changed = changed || down
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
	if s, ok := p.series[address]; ok && s.answered(uint16(echo.Seq), now) {
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
