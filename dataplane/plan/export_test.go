// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/sealane-io/sealane/dataplane/topology"
)

// Whole is For where each part of a plan sees what is alive, so that none may be fixed by mistake.
func Whole(t topology.Topology, n NodeFacts) Plan {
	t = possible(t, n)
	active := choose(t, n)
	if len(t.Remotes) == 0 {
		return Plan{Active: active}
	}
	v := newView(t, n, active)
	if !v.on(v.self).IsValid() {
		return v.failClosed()
	}
	w := v.ways()
	p := Plan{Active: v.active, Links: v.links(), Addresses: v.addresses(), Neighbours: v.neighbours(), FDB: v.fdb(),
		Tunnels: v.tunnels(), VXLAN: v.vxlanCables(), Tables: v.tables(), ForwardAccepts: v.families}
	p.Routes = slices.Concat(v.standing(w), v.unassigned(), v.throws(), v.outbound(w), v.received(), v.shares(),
		v.flowRoutes(IPv4), v.flowRoutes(IPv6), v.backends(), v.probed(), v.inbound(), v.neighboursOfPods(), v.meshRoutes(),
		v.carrierRoutes())
	p.Rules = slices.Concat(v.inboundRules(), v.meshRules(), v.flowRules(IPv4), v.flowRules(IPv6), v.outboundRules())
	p.sort()
	return p
}
