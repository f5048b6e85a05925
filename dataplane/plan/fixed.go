// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"reflect"
	"slices"

	"github.com/sealane-io/sealane/dataplane/topology"
)

// Fixed is what one node's plans have in common as long as nothing but the liveness of gateways changes: nearly all,
// where there are many nodes. It is a value that nobody changes, and neither are the slices of its plans but for the
// peers of tunnels.
type Fixed struct {
	view  view
	facts NodeFacts // without what is moving
	plan  Plan      // without what moves; its routes are the fixed ones
}

// fixedFacts are without what probes find, and what a node does about it.
func fixedFacts(n NodeFacts) NodeFacts {
	n.Alive, n.Held, n.Shaken, n.Current, n.Straight, n.PathMTU, n.Withdrawn = nil, nil, nil, nil, nil, nil, false
	return n
}

// Fix returns what is common to the plans of a node for a topology.
func Fix(t topology.Topology, n NodeFacts) *Fixed {
	x := &Fixed{facts: fixedFacts(n)}
	t = possible(t, n)
	if len(t.Remotes) == 0 {
		x.view.Topology = t
		return x
	}
	v := newView(t, x.facts, Active{})
	x.view = *v
	if !v.on(v.self).IsValid() {
		return x
	}
	x.plan = Plan{
		Links:      v.links(),
		Addresses:  v.addresses(),
		Neighbours: v.neighbours(),
		FDB:        v.fdb(),
		Routes: slices.Concat(v.unassigned(), v.throws(), v.backends(), v.probed(), v.inbound(), v.neighboursOfPods(),
			v.carrierRoutes()),
		Tunnels:        v.tunnels(),
		VXLAN:          v.vxlanCables(),
		ForwardAccepts: v.families,
	}
	x.plan.sort()
	if !v.tablesMove() {
		x.plan.Tables = v.tables()
	}
	return x
}

// Is says whether this is what Fix would return for the same topology and these facts.
func (x *Fixed) Is(n NodeFacts) bool { return x != nil && reflect.DeepEqual(x.facts, fixedFacts(n)) }

// tablesMove says whether the tables depend on which gateways carry: where some translate.
func (v *view) tablesMove() bool { return v.translates(IPv4) || v.translates(IPv6) }

// For returns what the package's For does for the same topology. The facts may differ from those that were fixed in
// Alive, Held, Shaken, Withdrawn, Current, Straight and PathMTU.
func (x *Fixed) For(n NodeFacts) Plan {
	active := choose(x.view.Topology, n)
	if len(x.view.Remotes) == 0 {
		return Plan{Active: active}
	}
	of := x.view
	v := &of
	v.facts, v.active = n, active
	v.active.Straight = straight(v.mesh, n)
	if !v.on(v.self).IsValid() {
		return v.failClosed()
	}
	w := v.ways()
	moving := Plan{
		Routes: slices.Concat(v.outbound(w), v.received(), v.shares(), v.flowRoutes(IPv4), v.flowRoutes(IPv6),
			v.meshRoutes()),
		Rules: slices.Concat(v.inboundRules(), v.meshRules(), v.flowRules(IPv4), v.flowRules(IPv6), v.outboundRules()),
	}
	moving.sort()
	p := x.plan
	p.Active, p.Rules = v.active, moving.Rules
	p.Routes = merged(merged(v.standing(w), moving.Routes), x.plan.Routes)
	p.Tunnels, p.VXLAN = v.carrying(x.plan.Tunnels), v.carrying(x.plan.VXLAN)
	if v.tablesMove() {
		p.Tables = v.tables()
	}
	return p
}

// merged returns two sorted lists of routes as one. Of two routes of one key the first list's stays.
func merged(a, b []Route) []Route {
	out := make([]Route, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch c := compareRoute(a[0], b[0]); {
		case c < 0:
			out, a = append(out, a[0]), a[1:]
		case c > 0:
			out, b = append(out, b[0]), b[1:]
		default:
			b = b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// carrying returns tunnels that say which of their peers traffic uses.
func (v *view) carrying(tunnels []Tunnel) []Tunnel {
	out := slices.Clone(tunnels)
	for i := range out {
		out[i].Peers = slices.Clone(out[i].Peers)
		slot, cable := cableSlot(out[i].Link)
		for k := range out[i].Peers {
			p := &out[i].Peers[k]
			if cable {
				p.Active = slices.Contains(v.active.Remotes[p.Cluster], slot)
			} else {
				p.Active = slices.Contains(v.active.Straight[p.Cluster], p.Node)
			}
		}
	}
	return out
}
