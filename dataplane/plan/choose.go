// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// Choose returns the slots, sorted, of the gateways of one cluster that carry traffic: at most n. Those that are
// current go on as long as they are alive, so that a gateway that returns disturbs nobody; the rest are the
// first of the others by slot. Where none is alive the current ones stay, or before there are any the first:
// to be without an answer is no reason to move.
func Choose(gateways []topology.Gateway, alive, current []int, n int) []int {
	usable := among(gateways, alive)
	if len(usable) == 0 {
		usable = among(gateways, current)
	}
	if len(usable) == 0 {
		usable = slotsOf(gateways)
	}
	isCurrent := func(slot int) bool { return slices.Contains(current, slot) }
	out := filterSlots(usable, isCurrent)
	for _, slot := range usable {
		if !isCurrent(slot) {
			out = append(out, slot)
		}
	}
	out = out[:min(n, len(out))]
	slices.Sort(out)
	return out
}

func slotsOf(gateways []topology.Gateway) []int {
	out := make([]int, len(gateways))
	for i, g := range gateways {
		out[i] = g.Slot
	}
	return out
}

// among returns the gateways' slots that are in the list, in the gateways' order.
func among(gateways []topology.Gateway, slots []int) []int {
	return filterSlots(slotsOf(gateways), func(slot int) bool { return slices.Contains(slots, slot) })
}

func filterSlots(slots []int, keep func(int) bool) []int {
	return slices.DeleteFunc(slices.Clone(slots), func(slot int) bool { return !keep(slot) })
}

// Carrying returns how many of a cluster's gateways carry traffic at once, at most.
func Carrying(t topology.Topology) int {
	if t.ActivePassive {
		return 1
	}
	return v1alpha1.MaxSlot + 1
}

// choose decides by which gateways a node's traffic goes.
func choose(t topology.Topology, n NodeFacts) Active {
	self := slices.IndexFunc(t.Local.Gateways, func(g topology.Gateway) bool { return g.Node == n.Name })
	// A gateway that answers is better than one that does not, how often it may have failed before.
	answering := func(gateways []topology.Gateway, cluster string) []int {
		if alive := n.Alive[cluster]; len(among(gateways, alive)) > 0 {
			return alive
		}
		return n.Held[cluster]
	}
	local := func(gateways []topology.Gateway) []string {
		slots := Choose(gateways, answering(gateways, t.Cluster), n.Current[t.Cluster], Carrying(t))
		var out []string
		for _, g := range gateways {
			if slices.Contains(slots, g.Slot) {
				out = append(out, g.Node)
			}
		}
		return out
	}
	if self < 0 {
		return Active{Gateways: local(t.Local.Gateways)}
	}
	up := n.Alive[t.Cluster]
	if n.Withdrawn {
		up = answering(t.Local.Gateways, t.Cluster)
	}
	var siblings []topology.Gateway
	for i, g := range t.Local.Gateways {
		if i != self && slices.Contains(up, g.Slot) {
			siblings = append(siblings, g)
		}
	}
	cables := func(r topology.Remote) []int {
		alive := permitted(r, answering(r.Gateways, by(r)), n.Current[by(r)])
		return chooseCables(r.Gateways, alive, n.Shaken[by(r)], n.Current[by(r)], Carrying(t), r.IPsec)
	}
	var a Active
	for _, r := range t.Remotes {
		alive := among(r.Gateways, permitted(r, n.Alive[by(r)], n.Current[by(r)]))
		handsOver := len(alive) == 0 || n.Withdrawn && !r.Translated
		switch {
		case len(r.Gateways) == 0:
		case handsOver && len(siblings) > 0:
			if a.Siblings == nil {
				a.Siblings, a.Received = map[string][]string{}, map[string][]int{}
			}
			a.Siblings[r.Name] = local(siblings)
			a.Received[r.Name] = cables(r)
		default:
			if a.Remotes == nil {
				a.Remotes = make(map[string][]int, len(t.Remotes))
			}
			a.Remotes[r.Name] = cables(r)
		}
	}
	return a
}

// chooseCables is Choose among gateways of which some have several cables: the usual one, one with the next key, and
// one by VXLAN, which carries as long as it is alive. Where no cable is alive it is not the one by VXLAN: what is not
// known to arrive is not sent in clear. With ipsec it is the cable by IPsec or, until that answers, what carries now,
// in place of one by VXLAN the usual one.
func chooseCables(gateways []topology.Gateway, alive, shaken, current []int, n int, ipsec bool) []int {
	var usual []topology.Gateway
	next, vxlan := map[int]topology.Gateway{}, map[int]topology.Gateway{}
	before := current
	for _, g := range gateways {
		switch {
		case g.Leaving: // nothing is sent there
			alive, current = without(alive, g.Slot), without(current, g.Slot)
		case g.VTEP.IsValid():
			vxlan[gatewaySlot(g.Slot)] = g
		case g.Next:
			next[gatewaySlot(g.Slot)] = g
		default:
			usual = append(usual, g)
		}
	}
	if len(next)+len(vxlan) == 0 && !ipsec {
		return Choose(usual, alive, current, n)
	}
	out := Choose(usual, gatewaySlots(alive), gatewaySlots(current), n)
	for i, slot := range out {
		g, ok := vxlan[slot]
		if ok && (slices.Contains(alive, g.Slot) || ipsec && !moves(slot, before)) {
			out[i] = g.Slot
		} else if g, ok := next[slot]; ok {
			out[i] = cableOf(slot, g, slices.Concat(alive, shaken), current)
		}
	}
	if ipsec {
		out = filterSlots(out, func(slot int) bool { return isIPsec(slot) || moves(gatewaySlot(slot), before) })
	}
	slices.Sort(out)
	return out
}

// moves says whether traffic to the gateway of a slot goes by another cable than one by IPsec.
func moves(slot int, current []int) bool {
	return slices.ContainsFunc(current, func(s int) bool { return gatewaySlot(s) == slot && !isIPsec(s) })
}

// permitted leaves out the cables that may not carry to a cluster: all but those by IPsec, where it is to be reached by
// that, unless traffic goes there by another one now.
func permitted(r topology.Remote, slots, current []int) []int {
	if !r.IPsec {
		return slots
	}
	return filterSlots(slots, func(slot int) bool { return isIPsec(slot) || moves(gatewaySlot(slot), current) })
}

// cableOf returns the slot of the cable to a gateway of a slot that has another one with the next key: the preferred of
// those that work, or else the one in use.
func cableOf(slot int, next topology.Gateway, works, current []int) int {
	first, second := slot, next.Slot
	if next.Preferred {
		first, second = second, first
	}
	for _, usable := range [][]int{works, current} {
		for _, s := range []int{first, second} {
			if slices.Contains(usable, s) {
				return s
			}
		}
	}
	return slot
}

func without(slots []int, slot int) []int {
	return filterSlots(slots, func(s int) bool { return s != slot })
}

// gatewaySlot returns the slot of the gateway that a cable of a slot leads to.
func gatewaySlot(slot int) int { return slot % v1alpha1.NextKeySlots }

func gatewaySlots(cables []int) []int {
	out := make([]int, len(cables))
	for i, slot := range cables {
		out[i] = gatewaySlot(slot)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Current returns, for each cluster by name, the slots of its gateways that the routes of a node use, as Observe
// found them: of remote clusters by the cables, of the local cluster by the next hops on the overlay. It is what
// Choose calls current; nothing else remembers it.
func Current(t topology.Topology, have Plan) map[string][]int {
	hops := hopsOf(have.Routes)
	v := view{Topology: t, outer: overlayFamily(t.Local.Nodes)}
	local := map[netip.Addr]int{}
	for _, g := range t.Local.Gateways {
		i := slices.IndexFunc(t.Local.Nodes, func(n topology.Node) bool { return n.Name == g.Node })
		if i < 0 || !v.on(t.Local.Nodes[i]).IsValid() {
			continue
		}
		for _, f := range []Family{IPv4, IPv6} {
			if hop := v.nextHop(t.Local.Nodes[i], f); hop.IsValid() {
				local[hop] = g.Slot
			}
		}
	}
	found := map[string]map[int]bool{}
	note := func(cluster string, slot int) {
		if found[cluster] == nil {
			found[cluster] = map[int]bool{}
		}
		found[cluster][slot] = true
	}
	for _, r := range t.Remotes {
		for _, dst := range r.Routed {
			for _, h := range hops(dst) {
				if slot, ok := local[h.Via]; ok && h.Link == OverlayLink {
					note(t.Cluster, slot)
				} else if slot, ok := cableSlot(h.Link); ok {
					note(r.Name, slot)
				}
			}
		}
	}
	out := make(map[string][]int, len(found))
	for cluster, slots := range found {
		out[cluster] = slices.Sorted(maps.Keys(slots))
	}
	return out
}

// hopsOf finds the next hops to remote prefixes: in the order of the routes if they are a plan's, and else in a map.
func hopsOf(routes []Route) func(netip.Prefix) []NextHop {
	if slices.IsSortedFunc(routes, compareRoute) {
		return func(dst netip.Prefix) []NextHop {
			i, ok := slices.BinarySearchFunc(routes, Route{Table: OutboundTable, Dst: dst, Metric: RouteMetric}, compareRoute)
			if !ok {
				return nil
			}
			return routes[i].NextHops
		}
	}
	hops := map[netip.Prefix][]NextHop{}
	for _, r := range routes {
		if r.Table == OutboundTable && r.Metric == RouteMetric {
			hops[r.Dst] = r.NextHops
		}
	}
	return func(dst netip.Prefix) []NextHop { return hops[dst] }
}

// OfVXLAN says whether a link is a cable by VXLAN alone, which does not encrypt.
func OfVXLAN(link string) bool {
	slot, ok := cableSlot(link)
	return ok && isVXLAN(slot) && !isIPsec(slot)
}

// OfIPsec says whether a link is a cable by IPsec.
func OfIPsec(link string) bool {
	slot, ok := cableSlot(link)
	return ok && isIPsec(slot)
}

// OfNextKeys says whether a link is a cable with next keys.
func OfNextKeys(link string) bool {
	slot, ok := cableSlot(link)
	return ok && isNext(slot)
}

// cableSlot is the inverse of CableLink.
func cableSlot(link string) (int, bool) {
	for _, kind := range []struct {
		prefix string
		first  int
	}{{vxlanCablePrefix, v1alpha1.VXLANSlots}, {ipsecCablePrefix, v1alpha1.IPsecSlots}, {CablePrefix, 0}} {
		if text, ok := strings.CutPrefix(link, kind.prefix); ok {
			slot, err := strconv.Atoi(text)
			return kind.first + slot, err == nil
		}
	}
	return 0, false
}
