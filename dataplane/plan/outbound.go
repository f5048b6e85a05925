// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/dataplane/topology"
)

// ways are the routes to remote clusters, by their places in the topology and without destinations; one of no type is
// none.
type ways map[Family][]Route

// ways to all remote clusters in the families that reach them.
func (v *view) ways() ways {
	out := ways{}
	for _, f := range v.families {
		out[f] = make([]Route, len(v.Remotes))
		for i := range v.Remotes {
			if route, ok := v.towards(v.Remotes[i], f); ok {
				out[f][i] = route
			}
		}
	}
	return out
}

// to says whether there is one to a cluster in a family.
func (w ways) to(remote int, f Family) bool { return w[f] != nil && w[f][remote].Type != "" }

// outbound routes every remote prefix that can be reached: through the local gateways in use, on a gateway by
// its own cables.
func (v *view) outbound(w ways) []Route {
	out := make([]Route, 0, len(v.destinations))
	for _, d := range v.destinations {
		if f := FamilyOf(d.dst.Addr()); w.to(d.remote, f) {
			route := w[f][d.remote]
			route.Dst = d.dst
			out = append(out, route)
		}
	}
	return out
}

// towards returns the route to a remote cluster, without its destination, if there is one.
func (v *view) towards(r topology.Remote, f Family) (Route, bool) {
	if !v.answers(r, f) {
		return Route{}, false
	}
	route := Route{Table: OutboundTable, Metric: RouteMetric, Type: Unicast, Source: v.sourceTo(r, f), MTU: v.pathMTU(r)}
	if v.carries(r) {
		return v.byCables(route, r, f, v.active.Remotes[r.Name]), true
	}
	route.MTULock = f == IPv6 && route.MTU < v.leastMTU
	over := v.active.Gateways
	if v.gateway != nil {
		over = v.active.Siblings[r.Name]
	}
	for _, name := range over {
		if n := v.nodes[name]; len(r.Gateways) > 0 && v.on(n).IsValid() && v.nextHop(n, f).IsValid() {
			route.NextHops = append(route.NextHops, NextHop{OverlayLink, v.nextHop(n, f), 1})
		}
	}
	slices.SortFunc(route.NextHops, func(a, b NextHop) int { return a.Via.Compare(b.Via) })
	return route, len(route.NextHops) > 0
}

// byCables makes a route to a cluster lead through the cables to slots.
func (v *view) byCables(route Route, r topology.Remote, f Family, slots []int) Route {
	for _, j := range slots {
		hop := NextHop{Link: CableLink(j), Weight: 1}
		i := slices.IndexFunc(r.Gateways, func(g topology.Gateway) bool { return g.Slot == j && g.VTEP.IsValid() })
		switch {
		case i >= 0:
			hop.Via = vxlanHop(r.Gateways[i], f)
		case f == IPv6 && len(slots) > 1:
			hop.Via = cableNextHop()
		}
		route.NextHops = append(route.NextHops, hop)
	}
	route.MTULock = f == IPv6 && route.MTU < v.cableMTU(*v.gateway)
	return route
}

// received routes, on a gateway that hands the traffic to a cluster over to its siblings, what they hand over to it by
// its own cables. Each of two gateways may take its cables for dead, as where the way to a cluster loses packets; then
// a packet takes both, and no agreement, on its way.
func (v *view) received() []Route {
	var out []Route
	for _, r := range v.Remotes {
		slots := v.active.Received[r.Name]
		if len(slots) == 0 {
			continue
		}
		for _, f := range v.families {
			if !v.answers(r, f) {
				continue
			}
			route := v.byCables(Route{Table: SiblingTable, Metric: RouteMetric, Type: Unicast, MTU: v.pathMTU(r)}, r, f, slots)
			for _, dst := range inFamily(f, r.Routed) {
				route.Dst = dst
				out = append(out, route)
			}
		}
	}
	return out
}

// backends routes, on the nodes of a cluster with several gateways, the addresses from which the gateways send what
// they have translated.
func (v *view) backends() []Route {
	var out []Route
	for _, g := range v.Local.Gateways {
		n := v.nodes[g.Node]
		if !v.several() || g.Node == v.self.Name || !v.on(n).IsValid() {
			continue
		}
		for _, f := range v.families {
			if hop := v.nextHop(n, f); hop.IsValid() {
				out = append(out, Route{Table: OutboundTable, Dst: host(v.translatedBy(g, f)), Metric: RouteMetric, Type: Unicast,
					NextHops: []NextHop{{OverlayLink, hop, 1}}})
			}
		}
	}
	return out
}

// throws keep the cables' outer packets out of the cables, where a remote CIDR contains the address of a
// remote gateway.
func (v *view) throws() []Route {
	if v.gateway == nil {
		return nil
	}
	var out []Route
	for _, r := range v.Remotes {
		for _, g := range r.Gateways {
			for _, c := range g.Candidates {
				f := FamilyOf(c.Addr)
				inside := slices.ContainsFunc(inFamily(f, r.Routed), func(p netip.Prefix) bool { return p.Contains(c.Addr) })
				if inside && slices.Contains(v.families, f) {
					out = append(out, Route{Table: OutboundTable, Dst: host(c.Addr), Metric: ThrowMetric, Type: Throw})
				}
			}
		}
	}
	return out
}
