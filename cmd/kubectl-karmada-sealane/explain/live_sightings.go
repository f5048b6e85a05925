// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strings"

	"github.com/sealane-io/sealane/internal/trace"
)

// sightings of the probe on a node, in one direction each.
type sightings struct {
	*Watched
	request, answer oneWay
}

// whole says that the trace of a node was not cut off, and has told all: what it has not seen was not there.
func (s *sightings) whole() bool {
	return s.Failed == "" && s.missed(trace.Packets) == "" &&
		slices.ContainsFunc(s.Lines, func(l trace.Line) bool { return l.Ended })
}

// missed says why a trace does not tell all; "" where it does.
func (s *sightings) missed(what trace.Lacking) string {
	for _, l := range s.Lines {
		if l.Missed != nil && l.Missed.What == what {
			return l.Missed.Why
		}
	}
	return ""
}

// oneWay is what a node tells of one direction.
type oneWay struct {
	in, out []trace.Seen
	dropped []trace.Dropped
	refused []trace.Refused
	routes  []trace.Route
}

// tuple is a way of packets.
type tuple struct{ from, to string }

func tupleOf(p *trace.Packet) tuple { return tuple{p.From.String(), p.To.String()} }

func (t tuple) turned() tuple { return tuple{t.to, t.from} }

// recognise keeps what is of the probe, and of nobody else on the same port.
func (j *judge) recognise() {
	flows := j.flows()
	for _, s := range j.spots {
		ours := map[tuple]bool{}
		for _, l := range s.Lines {
			for _, p := range []*trace.Packet{packetOf(l)} {
				if p == nil || !flows[p.Flow] || p.Kind == trace.UDP && p.Answer(j.sent.Port) || p.Kind == trace.TCP ||
					p.Kind == trace.RST && p.Flow == 0 {
					continue
				}
				ours[tupleOf(p)], ours[tupleOf(p).turned()] = true, true
			}
		}
		for _, l := range s.Lines {
			p := packetOf(l)
			if p == nil || !ours[tupleOf(p)] {
				continue
			}
			w := &s.request
			if p.Answer(j.sent.Port) {
				w = &s.answer
			}
			switch {
			case l.Seen != nil && l.Seen.Out:
				w.out = append(w.out, *l.Seen)
			case l.Seen != nil:
				w.in = append(w.in, *l.Seen)
			case l.Dropped != nil:
				w.dropped = append(w.dropped, *l.Dropped)
			case l.Refused != nil:
				w.refused = append(w.refused, *l.Refused)
			}
		}
		for _, l := range s.Lines {
			if r := l.LookedUp; r != nil {
				if slices.ContainsFunc(s.answer.in, func(in trace.Seen) bool { return in.From.Addr() == r.From }) {
					s.answer.routes = append(s.answer.routes, *r)
				} else {
					s.request.routes = append(s.request.routes, *r)
				}
			}
		}
	}
}

// flows are the numbers of the probe's packets, by what its own node saw of them.
func (j *judge) flows() map[uint32]bool {
	if j.target.Port.Protocol == "UDP" {
		return map[uint32]bool{j.sent.Mark: true}
	}
	out := map[uint32]bool{}
	if s := j.spots[j.target.Source]; s != nil {
		for _, l := range s.Lines {
			p := packetOf(l)
			if p == nil || p.Kind != trace.SYN || p.Answer(j.sent.Port) {
				continue
			}
			// Those of a pod come from its own address.
			if len(j.target.Addresses) == 0 || slices.Contains(j.target.Addresses, p.From.Addr()) {
				out[p.Flow] = true
			}
		}
	}
	return out
}

func packetOf(l trace.Line) *trace.Packet {
	switch {
	case l.Seen != nil:
		return &l.Seen.Packet
	case l.Dropped != nil:
		return &l.Dropped.Packet
	case l.Refused != nil:
		return &l.Refused.Packet
	}
	return nil
}

func (w *oneWay) nothing() bool { return len(w.in)+len(w.out)+len(w.dropped) == 0 }

// of keeps the packets of full size, or all.
func (w *oneWay) of(large bool) oneWay {
	if !large {
		return *w
	}
	out := oneWay{routes: w.routes}
	for _, s := range w.in {
		if s.Large() {
			out.in = append(out.in, s)
		}
	}
	for _, s := range w.out {
		if s.Large() {
			out.out = append(out.out, s)
		}
	}
	for _, d := range w.dropped {
		if d.Large() {
			out.dropped = append(out.dropped, d)
		}
	}
	for _, r := range w.refused {
		if r.Large() || strings.Contains(r.Why, "MTU") {
			out.refused = append(out.refused, r)
		}
	}
	return out
}

func (s *sightings) way(back, large bool) oneWay {
	if back {
		return s.answer.of(false)
	}
	return s.request.of(large)
}

// ends says that a packet came in for the node's own network: its route leads to the loopback device.
func (w *oneWay) ends() bool {
	return slices.ContainsFunc(w.in, func(in trace.Seen) bool {
		return slices.ContainsFunc(w.routes, func(r trace.Route) bool {
			return r.To == in.To.Addr() && r.Device == "lo" && r.Problem == ""
		})
	})
}

// last of what was seen.
func (w *oneWay) last() *trace.Packet {
	if n := len(w.out); n > 0 {
		return &w.out[n-1].Packet
	}
	return &w.in[len(w.in)-1].Packet
}

func devices(seen []trace.Seen) []string {
	var out []string
	for _, s := range seen {
		if !slices.Contains(out, s.Device) {
			out = append(out, s.Device)
		}
	}
	return out
}

func (w *oneWay) String() string {
	var parts []string
	if d := devices(w.in); len(d) > 0 {
		parts = append(parts, "in by "+strings.Join(d, ", "))
	}
	if d := devices(w.out); len(d) > 0 {
		parts = append(parts, "out by "+strings.Join(d, ", "))
	}
	if len(parts) == 0 && len(w.dropped) > 0 {
		return "on no device: it is dropped as the node sends it"
	}
	return joinOr(parts, "not seen")
}

func lastOf(w *oneWay) string {
	if len(w.out) > 0 {
		return "out by " + w.out[len(w.out)-1].Device
	}
	if len(w.in) == 0 {
		return "on no device"
	}
	return "in by " + w.in[len(w.in)-1].Device
}
