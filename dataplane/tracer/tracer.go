// SPDX-License-Identifier: Apache-2.0

// Package tracer watches the packets of one flow on this node: on which devices they come and go, which rule of
// nftables drops them, which ICMP errors there are about them, and where the kernel would send those that come and do
// not go.
//
// It changes nothing: what it opens in the kernel are sockets, and a table of nftables that belongs to one of them and
// that the kernel removes with it, whichever way the process ends.
package tracer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/internal/trace"
)

const (
	// snapLength is how much of a packet is looked at: headers, within headers of an ICMP error.
	snapLength = 256
	// maxPackets is how many are looked at in all.
	maxPackets = 20_000
	// maxIDs of packets in nftables are remembered for their headers.
	maxIDs = 1000
	// maxRoutes are looked up, for routePatience at most.
	maxRoutes     = 64
	routePatience = time.Second
)

// Tracer says what to watch.
type Tracer struct {
	// Protocol is IPPROTO_TCP or IPPROTO_UDP, and Port the one that requests come from.
	Protocol uint8
	Port     uint16
	// Duration to watch for, at most.
	Duration time.Duration
	// LookUp are more destinations that the way is looked up to, for packets that come and do not go: what they are
	// translated to.
	LookUp []netip.Addr
	// Out gets a line of JSON for everything new.
	Out io.Writer
}

// Validate says what is wrong with it.
func (t *Tracer) Validate() error {
	switch {
	case t.Protocol != unix.IPPROTO_TCP && t.Protocol != unix.IPPROTO_UDP:
		return fmt.Errorf("expected protocol tcp or udp, found %d", t.Protocol)
	case t.Port < trace.MinPort:
		return fmt.Errorf("expected a source port of %d or more, found %d", trace.MinPort, t.Port)
	case t.Duration <= 0 || t.Duration > trace.MaxDuration:
		return fmt.Errorf("expected a duration of at most %s, found %s", trace.MaxDuration, t.Duration)
	case len(t.LookUp) > trace.MaxLookUps:
		return fmt.Errorf("expected at most %d addresses to look up, found %d", trace.MaxLookUps, len(t.LookUp))
	}
	return nil
}

// Run watches until the time is over or the context ends, either of which is no error.
func (t *Tracer) Run(ctx context.Context) error {
	if err := t.Validate(); err != nil {
		return err
	}
	release, err := slot()
	if err != nil {
		return err
	}
	defer release()
	packets, err := capture(t.Protocol, t.Port)
	if err != nil {
		return err
	}
	defer unix.Close(packets) //nolint:errcheck // it was only read
	w := &watch{Tracer: t, ctx: ctx, said: map[string]bool{}, headers: map[uint32]trace.Packet{},
		links: map[int]string{}, open: map[way]string{}, missed: map[trace.Lacking]bool{}, chains: map[chain]rules{}}
	told, err := reports()
	if err == nil {
		defer unix.Close(told) //nolint:errcheck // it was only read
		var table int
		if table, err = mark(t.Protocol, t.Port); err == nil {
			defer unix.Close(table) //nolint:errcheck // the table goes with it
		}
	}
	if err != nil {
		w.miss(trace.Rules, err.Error())
	}
	w.say("", trace.Line{Listening: true})
	w.listen(packets, told)
	// What came while the buffer of the socket was full.
	if s, err := unix.GetsockoptTpacketStats(packets, unix.SOL_PACKET, unix.PACKET_STATISTICS); err != nil || s.Drops > 0 {
		w.miss(trace.Packets, "more came at once than could be looked at")
	}
	w.routes()
	w.say("", trace.Line{Ended: true})
	return w.err
}

// slot takes one of the places of traces of this network namespace, which the kernel frees with the process.
func slot() (release func(), err error) {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	for i := range trace.MaxAtOnce {
		err = unix.Bind(s, &unix.SockaddrUnix{Name: fmt.Sprintf("@sealane-trace-%d", i)})
		if err == nil {
			return func() { _ = unix.Close(s) }, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	_ = unix.Close(s)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("expected less than %d traces to run on this node, found as many: wait until one has ended, "+
			"%s at most", trace.MaxAtOnce, trace.MaxDuration)
	}
	return nil, fmt.Errorf("take a turn: %w", err)
}

// capture opens a socket that gets, from every device, the packets that filter passes.
func capture(protocol uint8, port uint16) (int, error) {
	code, err := filter(protocol, port)
	if err != nil {
		return -1, err
	}
	// It is of no protocol, and so gets nothing, until it has its filter.
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open a packet socket: %w", err)
	}
	err = unix.SetsockoptSockFprog(s, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]})
	if err == nil {
		err = unix.Bind(s, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL)})
	}
	if err != nil {
		_ = unix.Close(s)
		return -1, fmt.Errorf("listen to packets: %w", err)
	}
	return s, nil
}

func networkOrder(n uint16) uint16 { return n<<8 | n>>8 }

// way of packets through the node, in one direction.
type way struct{ from, to netip.AddrPort }

// watch is a trace while it runs.
type watch struct {
	*Tracer
	//nolint:containedctx // of one call of Run
	ctx   context.Context
	err   error
	lines int
	said  map[string]bool
	// headers of packets in nftables, by the kernel's ID.
	headers map[uint32]trace.Packet
	links   map[int]string
	// open are packets that came in by a device and did not go out.
	open   map[way]string
	missed map[trace.Lacking]bool
	// chains that nft was asked for, and how long that took.
	chains map[chain]rules
	asked  time.Duration
	// second and inSecond count the packets of a second.
	second   time.Time
	inSecond int
}

// miss says once that not all of something is told.
func (w *watch) miss(what trace.Lacking, why string) {
	if !w.missed[what] {
		w.missed[what] = true
		w.say("", trace.Line{Missed: &trace.Missed{What: what, Why: why}})
	}
}

// say prints a line, unless one of the same key has been; "" is the key of none.
func (w *watch) say(key string, l trace.Line) {
	if w.err != nil || key != "" && w.said[key] {
		return
	}
	if key != "" {
		switch {
		case w.lines == trace.MaxLines:
			w.lines++
			w.miss(trace.Packets, "there is more than it tells: other programs use the same port")
			return
		case w.lines > trace.MaxLines:
			return
		}
		w.lines++
		w.said[key] = true
	}
	text, err := json.Marshal(l)
	if err == nil {
		_, err = w.Out.Write(append(text, '\n'))
	}
	if err != nil {
		w.err = fmt.Errorf("write what was seen: %w", err)
	}
}

// listen until the time is over, the context ends or nobody reads any more.
func (w *watch) listen(packets, told int) {
	const tick = 50 * time.Millisecond
	end := time.Now().Add(w.Duration)
	buffer := make([]byte, 1<<16)
	fds := []unix.PollFd{{Fd: int32(packets), Events: unix.POLLIN}, {Fd: int32(told), Events: unix.POLLIN}}
	for seen := 0; time.Now().Before(end) && w.ctx.Err() == nil && w.err == nil; {
		if n, err := unix.Poll(fds, int(tick.Milliseconds())); n <= 0 || err != nil {
			continue
		}
		for {
			n, from, err := unix.Recvfrom(packets, buffer[:snapLength], 0)
			if link, is := from.(*unix.SockaddrLinklayer); err == nil && is {
				w.packet(link, buffer[:n])
			}
			if err != nil {
				break
			}
			if seen++; seen == maxPackets {
				w.miss(trace.Packets, "there are too many packets: other programs use the same port")
				return
			}
		}
		for told >= 0 {
			n, _, err := unix.Recvfrom(told, buffer, 0)
			if errors.Is(err, unix.ENOBUFS) {
				w.miss(trace.Rules, "the kernel had more to report than was read")
				continue
			}
			if err != nil {
				break
			}
			messages, _ := syscall.ParseNetlinkMessage(buffer[:n])
			for _, m := range messages {
				if r, ok := parseReport(m); ok {
					w.rule(&r)
				}
			}
		}
	}
}

// packet on a device.
func (w *watch) packet(at *unix.SockaddrLinklayer, b []byte) {
	device := w.link(at.Ifindex)
	n, ok := parseNetwork(b)
	if !ok || device == "lo" || device == "" {
		return
	}
	out := at.Pkttype == unix.PACKET_OUTGOING
	if why, about, is := n.refusal(); is {
		if w.ours(&about) {
			w.say(fmt.Sprintf("%s %v %s %s %s %s", device, out, why, n.from, about.From, about.To),
				trace.Line{Refused: &trace.Refused{Packet: about, Device: device, Out: out, By: n.from, Why: why}})
		}
		return
	}
	p, ok := n.packet()
	if !ok || n.protocol != w.Protocol || !w.ours(&p) {
		return
	}
	w.count()
	if out {
		delete(w.open, way{p.From, p.To})
	} else if len(w.open) < trace.MaxLines {
		w.open[way{p.From, p.To}] = device
	}
	w.say(fmt.Sprintf("%s %v %s %s %s %v %d", device, out, p.Kind, p.From, p.To, p.Large(), p.Flow),
		trace.Line{Seen: &trace.Seen{Packet: p, Device: device, Out: out}})
}

// count packets, of which the kernel reports so many a second alone.
func (w *watch) count() {
	if now := time.Now(); now.Sub(w.second) > time.Second {
		w.second, w.inSecond = now, 0
	}
	if w.inSecond++; w.inSecond > 2*perSecond { // most are seen as they come and as they go
		w.miss(trace.Rules, fmt.Sprintf("of more than %d packets in a second the kernel does not report", perSecond))
	}
}

// ours says whether one of the ports, and one alone, is the watched one.
func (w *watch) ours(p *trace.Packet) bool {
	return (p.From.Port() == w.Port) != (p.To.Port() == w.Port)
}

// link is the name of a device.
func (w *watch) link(index int) string {
	if name, known := w.links[index]; known {
		return name
	}
	name := ""
	if l, err := netlink.LinkByIndex(index); err == nil {
		name = l.Attrs().Name
	}
	w.links[index] = name
	return name
}

// rule is told of a packet at a rule of nftables.
func (w *watch) rule(r *report) {
	if p, ok := r.packet(); ok && w.ours(&p) {
		if len(w.headers) < maxIDs {
			w.headers[r.id] = p
		} else {
			w.miss(trace.Rules, "the kernel reports on too many packets: other programs use the same port")
		}
	}
	p, known := w.headers[r.id]
	if !r.dropped || !known {
		return
	}
	key := fmt.Sprintf("%d %s %s %d %s %s %v", r.family, r.table, r.chain, r.handle, p.From, p.To, p.Large())
	if w.said[key] {
		return
	}
	d := trace.Dropped{Packet: p, Family: families[r.family], Table: r.table, Chain: r.chain}
	if r.kind == unix.NFT_TRACETYPE_RULE {
		const enough = 400
		d.Rule = w.ruleText(r)
		d.Rule = d.Rule[:min(len(d.Rule), enough)]
	}
	delete(w.open, way{p.From, p.To})
	w.say(key, trace.Line{Dropped: &d})
}

// routes looks up the way of what came in and did not go out. Packets that end on this node have one to lo.
func (w *watch) routes() {
	type query struct {
		from, to netip.Addr
		device   string
	}
	asked := map[query]bool{}
	neighbours := neighbours{}
	end := time.Now().Add(routePatience)
	for at, device := range w.open {
		for _, to := range append([]netip.Addr{at.to.Addr()}, w.LookUp...) {
			q := query{at.from.Addr(), to, device}
			if asked[q] || to.Is4() != q.from.Is4() {
				continue
			}
			if len(asked) == maxRoutes || time.Now().After(end) {
				return
			}
			asked[q] = true
			r := lookUp(q.from, to, device, neighbours)
			w.say("route "+fmt.Sprint(q), trace.Line{LookedUp: &r})
		}
	}
}
