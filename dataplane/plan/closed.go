// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/sealane-io/sealane/dataplane/topology"
)

// FailClosed returns the part of For that keeps packets to other clusters out of the clear, and packets
// that claim to be from them away: the routes behind others, with their rule, and the tables. It needs no link,
// no address of the node, and no other process, so it can be had from boot on, from the last known topology.
func FailClosed(t topology.Topology, n NodeFacts) Plan {
	t = possible(t, n)
	active := choose(t, n)
	if len(t.Remotes) == 0 {
		return Plan{Active: active}
	}
	return newView(t, n, active).failClosed()
}

func (v *view) failClosed() Plan {
	p := Plan{Active: v.active, Routes: slices.Concat(v.standing(ways{}), v.unassigned()), Rules: v.outboundRules(),
		Tables: v.tables()}
	p.sort()
	return p
}

// standing keeps packets to every remote prefix wherever no other route leads there: before the first link
// is up, when one goes and takes its routes along, and when no gateway is left. Else the default route would
// send them in clear. Where there is no way to a cluster, a sender hears at once that it is unreachable. Where there is
// one, and its link is gone for the moment, packets are dropped silently: the error would end connections that are
// being made, which find another gateway, or this one again, by the retransmission of their SYN.
func (v *view) standing(w ways) []Route {
	out := make([]Route, 0, len(v.destinations))
	for _, d := range v.destinations {
		f, kind := FamilyOf(d.dst.Addr()), Unreachable
		if !slices.Contains(v.known, f) {
			continue
		}
		if w.to(d.remote, f) {
			kind = Blackhole
		}
		out = append(out, Route{Table: OutboundTable, Dst: d.dst, Metric: StandingMetric, Type: kind})
	}
	return out
}
