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
	noWay := func(topology.Remote, Family) bool { return false }
	p := Plan{Active: v.active, Routes: slices.Concat(v.standing(noWay), v.unassigned()), Rules: v.outboundRules(),
		Tables: v.tables()}
	p.sort()
	return p
}

// standing keeps packets to every remote prefix wherever no other route leads there: before the first link
// is up, when one goes and takes its routes along, and when no gateway is left. Else the default route would
// send them in clear. Where there is no way to a cluster, a sender hears at once that it is unreachable. Where there is
// one, and its link is gone for the moment, packets are dropped silently: the error would end connections that are
// being made, which find another gateway, or this one again, by the retransmission of their SYN.
func (v *view) standing(hasWay func(topology.Remote, Family) bool) []Route {
	var out []Route
	for _, r := range v.Remotes {
		for _, f := range v.known {
			kind := Unreachable
			if hasWay(r, f) {
				kind = Blackhole
			}
			for _, dst := range inFamily(f, r.Routed) {
				out = append(out, Route{Table: OutboundTable, Dst: dst, Metric: StandingMetric, Type: kind})
			}
		}
	}
	return out
}

// hasWay says whether this node has a route of a family to a remote cluster.
func (v *view) hasWay(r topology.Remote, f Family) bool {
	_, ok := v.towards(r, f)
	return ok && slices.Contains(v.families, f)
}
