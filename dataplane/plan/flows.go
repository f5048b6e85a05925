// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// Flows that a gateway translates end when they take another one. The kernel spreads flows over next hops by a hash, of
// which a next hop that comes back takes its part again, whoever has it meanwhile. So a node that chooses among
// gateways that translate records the one that each flow takes in the mark of its connection, and looks up what follows
// in a table that leads there and nowhere else. Where that gateway is dead nothing leads to the table, or it has no
// route, and the flow takes another one, which is recorded in its place.

// setKept holds the networks to which flows keep the gateway that they have taken.
const setKept = "kept"

// recallPriority is behind a service's translation, so that the destination is the one that routes are looked up for.
const recallPriority = "-75"

// flowMark is the value of the bits of FlowMask for the gateway of a slot; it is never 0. Those bits that nobody else
// is known to use come first.
func flowMark(slot int) uint32 {
	var mark uint32
	for i, bit := range []uint32{0x1000, 0x1, 0x40, 0x20, 0x10} {
		if (slot+1)>>i&1 != 0 {
			mark |= bit
		}
	}
	return mark
}

// flowHop is a gateway that this node chooses among others.
type flowHop struct {
	slot int
	// match is the part of a rule that matches what leaves by the gateway.
	match string
}

// kept returns the clusters to which flows keep their gateway on this node: gateways translate there or here, and there
// are several to choose from, on a worker of the local cluster, on a gateway of the remote one.
func (v *view) kept(f Family) []topology.Remote {
	if v.ActivePassive || !slices.Contains(v.families, f) || v.gateway == nil && len(v.Local.Gateways) < 2 {
		return nil
	}
	var out []topology.Remote
	for i := range v.Remotes {
		r := &v.Remotes[i]
		if !r.Translated && !blockOf(r.Block, r.BlockIPv6, f).IsValid() {
			continue
		}
		several := len(r.Gateways) > 0
		if v.gateway != nil {
			several = len(gatewaySlots(slotsOf(r.Gateways))) > 1
		}
		if several && v.answers(*r, f) && len(inFamily(f, r.Routed)) > 0 {
			out = append(out, *r)
		}
	}
	return out
}

// flowHops returns the gateways that this node chooses among for the clusters that kept returns, by slot.
func (v *view) flowHops(f Family) []flowHop {
	kept := v.kept(f)
	if len(kept) == 0 {
		return nil
	}
	var out []flowHop
	if v.gateway == nil {
		for _, g := range v.Local.Gateways {
			if hop := v.nextHop(v.nodes[g.Node], f); hop.IsValid() {
				out = append(out, flowHop{g.Slot, fmt.Sprintf(`oifname "%s" rt %s nexthop %s`, OverlayLink, f, hop)})
			}
		}
		return out
	}
	cables := map[int][]string{}
	for _, j := range slices.Sorted(maps.Keys(bySlot(kept))) {
		cables[gatewaySlot(j)] = append(cables[gatewaySlot(j)], fmt.Sprintf("%q", CableLink(j)))
	}
	for _, slot := range slices.Sorted(maps.Keys(cables)) {
		links := cables[slot][0]
		if len(cables[slot]) > 1 {
			links = "{ " + strings.Join(cables[slot], ", ") + " }"
		}
		out = append(out, flowHop{slot, "oifname " + links})
	}
	return out
}

// flowRoutes lead, in a table of each gateway, to the clusters that kept returns. On a worker they do whether the
// gateway is alive or not, which one rule says for all clusters; on a gateway only by the cables in use.
func (v *view) flowRoutes(f Family) []Route {
	var out []Route
	for _, r := range v.kept(f) {
		route, ok := v.towards(r, f)
		if !ok || v.gateway != nil && !v.carries(r) {
			continue
		}
		add := func(slot int, route Route) {
			route.Table = FlowTable + slot
			for _, dst := range inFamily(f, r.Routed) {
				route.Dst = dst
				out = append(out, route)
			}
		}
		if v.gateway != nil {
			for _, cable := range v.active.Remotes[r.Name] {
				single := route
				single.NextHops = nil
				add(gatewaySlot(cable), v.byCables(single, r, f, []int{cable}))
			}
			continue
		}
		for _, g := range v.Local.Gateways {
			if hop := v.nextHop(v.nodes[g.Node], f); hop.IsValid() {
				route.NextHops = []NextHop{{OverlayLink, hop, 1}}
				add(g.Slot, route)
			}
		}
	}
	return out
}

// flowRules look up the tables of the gateways that carry.
func (v *view) flowRules(f Family) []Rule {
	if len(v.kept(f)) == 0 {
		return nil
	}
	carrying := map[int]bool{}
	for _, g := range v.Local.Gateways {
		if v.gateway == nil && slices.Contains(v.active.Gateways, g.Node) {
			carrying[g.Slot] = true
		}
	}
	if v.gateway != nil {
		for _, r := range v.kept(f) {
			for _, cable := range v.active.Remotes[r.Name] {
				carrying[gatewaySlot(cable)] = true
			}
		}
	}
	var out []Rule
	for _, slot := range slices.Sorted(maps.Keys(carrying)) {
		out = append(out, Rule{Family: f, Priority: FlowPriority, Mark: flowMark(slot), Mask: FlowMask,
			Table: FlowTable + slot})
	}
	return out
}

// keptNetworks are the elements of the set of that name.
func (v *view) keptNetworks(f Family) []netip.Prefix { return routed(f, v.kept(f)) }

// flowChains mark what belongs to a flow whose gateway is recorded, in front of the look-up of its route: what is
// forwarded, and what the node itself sends. Behind it they take the mark away, and record by which gateway the flow
// goes. Answers go where they have come from.
func (v *view) flowChains(f Family) []Chain {
	hops := v.flowHops(f)
	if len(hops) == 0 {
		return nil
	}
	var recall, record rules
	for _, r := range []*rules{&recall, &record} {
		r.add(`%s daddr != @%s accept`, f, setKept)
		r.add(`ct direction reply accept`)
	}
	record.add(`meta mark set meta mark & 0x%08x`, ^uint32(FlowMask))
	for _, h := range hops {
		mark := flowMark(h.slot)
		others := ^uint32(FlowMask) | mark // as nft lists it
		recall.add(`ct mark & 0x%08x == 0x%08x meta mark set meta mark & 0x%08x | 0x%08x`, FlowMask, mark, others, mark)
		record.add(`%s ct mark set ct mark & 0x%08x | 0x%08x`, h.match, others, mark)
	}
	return []Chain{
		{Name: "recall", Type: "filter", Hook: "prerouting", Priority: recallPriority, Rules: recall},
		{Name: "recallown", Type: "route", Hook: "output", Priority: recallPriority, Rules: recall},
		{Name: "record", Type: "filter", Hook: "postrouting", Priority: "mangle", Rules: record},
	}
}

// flowTables are the tables of all gateways that there can be.
func flowTables() []int {
	out := make([]int, v1alpha1.MaxSlot+1)
	for slot := range out {
		out[slot] = FlowTable + slot
	}
	return out
}
