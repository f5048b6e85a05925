// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/globalnet"
)

// Names of sets and maps of global addresses. "globalcable0" holds what the clusters behind a cable have that know this
// one by its block, and "globalremote" what all such clusters have; "tracked" is the part of it that a gateway's own
// cables carry; "external" has the hosts outside all clusters that may be exported. The maps lead from a
// service's address, protocol and port to its chain, from a pod's global address to its own, and back; and from a pod
// to the chain of the range that its connections come from.
const (
	setGlobal       = "global"
	setGlobalCable  = "globalcable"
	setGlobalRemote = "globalremote"
	setTracked      = "tracked"
	setExternal     = "external"
	mapServices     = "services"
	mapPods         = "globalpods"
	mapSources      = "podglobals"
	mapEgress       = "egresspods"
)

// backendSeed makes every gateway choose the same backend for a client's address and port.
const backendSeed = 0x5ea1

// translates says whether gateways of the cluster translate between its own and its global addresses.
func (v *view) translates(f Family) bool {
	return v.block(f).IsValid() && slices.Contains(v.families, f)
}

// block is the cluster's block of global addresses, or what it has of IPv6; invalid where there is none.
func (v *view) block(f Family) netip.Prefix { return blockOf(v.Local.Global, v.Local.GlobalIPv6, f) }

func blockOf(ipv4, ipv6 netip.Prefix, f Family) netip.Prefix {
	if f == IPv6 {
		return ipv6
	}
	return ipv4
}

// addressType is how nft calls addresses of a family.
func addressType(f Family) string {
	if f == IPv6 {
		return "ipv6_addr"
	}
	return "ipv4_addr"
}

// knowing returns those of the clusters that know this one by its block, or those that do not.
func knowing(clusters []topology.Remote, translated bool) []topology.Remote {
	return slices.DeleteFunc(slices.Clone(clusters), func(r topology.Remote) bool { return r.Translated != translated })
}

// globalSets are the sets that gateways translate by.
func (v *view) globalSets(f Family, add func(name string, elements []netip.Prefix)) {
	if !v.translates(f) {
		return
	}
	add(setGlobal, []netip.Prefix{v.block(f)})
	if len(v.slots) == 0 {
		return
	}
	for _, j := range v.slots {
		add(setGlobalCable+strconv.Itoa(j), routed(f, knowing(v.behind[j], true)))
	}
	add(setGlobalRemote, routed(f, knowing(v.Remotes, true)))
	add(setTracked, v.tracked(f))
	if v.toExternal(f) {
		add(setExternal, disjoint(slices.Clone(inFamily(f, v.Local.External))))
	}
}

// toExternal says whether the node is a gateway that translates for hosts outside all clusters.
func (v *view) toExternal(f Family) bool {
	return v.translates(f) && len(v.slots) > 0 && len(inFamily(f, v.Local.External)) > 0 &&
		reaches(f, knowing(v.Remotes, true))
}

// forwardExternal lets pass, on a gateway, what other clusters send to hosts outside by their global addresses, what
// these hosts send to other clusters, and the answers of both. Nothing else comes there from a cable.
func (v *view) forwardExternal(f Family, r *rules) {
	if !v.toExternal(f) {
		return
	}
	for _, translated := range []string{"ct status dnat", "ct direction reply"} {
		r.add(`iifname "%s*" oifname != "%s*" %s saddr @%s %s daddr @%s %s meta mark set meta mark | 0x%08x accept`,
			CablePrefix, LinkPrefix, f, setGlobalRemote, f, setExternal, translated, ForwardMark)
	}
	r.add(`iifname != "%s*" oifname "%s*" %s saddr @%s %s daddr @%s meta mark set meta mark | 0x%08x accept`, LinkPrefix,
		CablePrefix, f, setExternal, f, setGlobalRemote, ForwardMark)
	if v.siblingMACs() != "" {
		r.add(`iifname != "%s*" oifname "%s" %s saddr @%s %s daddr @%s ct direction reply meta mark set meta mark | 0x%08x `+
			`accept`, LinkPrefix, OverlayLink, f, setExternal, f, setGlobalRemote, ForwardMark)
	}
}

// tracked are, on one of several gateways, the networks for which it translates what comes from other nodes: it must
// know the flows. What it hands over to a sibling it must not, for it does not see the answers. What a sibling hands
// over to it, it always translates.
func (v *view) tracked(f Family) []netip.Prefix {
	if !v.translates(f) || len(v.transit(f)) == 0 {
		return nil
	}
	return routed(f, slices.DeleteFunc(knowing(v.Remotes, true), func(r topology.Remote) bool { return !v.carries(r) }))
}

// track adds the guard's rules that have a gateway track what it translates for other nodes: before those for the rest,
// which is not tracked.
func (v *view) track(f Family, r *rules) {
	if len(v.tracked(f)) > 0 {
		r.add(`iifname "%s" %s saddr @%s %s daddr @%s accept`, OverlayLink, f, setTransit, f, setTracked)
	}
	if v.translates(f) && v.siblingMACs() != "" && len(v.transit(f)) > 0 && reaches(f, knowing(v.Remotes, true)) {
		r.add(`iifname "%s" meta mark & 0x%08x == 0x%08x %s saddr @%s %s daddr @%s accept`, OverlayLink, SiblingMark,
			SiblingMark, f, setTransit, f, setGlobalRemote)
	}
}

// fromGlobal are the guard's rules for what cables deliver to global addresses.
func (v *view) fromGlobal(f Family, r *rules) {
	for _, j := range v.slots {
		if v.translates(f) && reaches(f, knowing(v.behind[j], true)) {
			r.add(`iifname "%s" %s saddr @%s%d %s daddr @%s accept`, CableLink(j), f, setGlobalCable, j, f, setGlobal)
		}
	}
}

// toGlobal binds, on a gateway, the flows to clusters that know this one by its block to an address of the gateway's
// share of it, whatever source they have. The same client keeps the same address. What has a source in the block, as
// the gateway's own packets have, keeps that. Pods may have addresses of the share that others have not. A pod with an
// address of its own is known by it, where there is but one gateway: others send the answers to whichever carries that
// address, and only the one that has translated knows the flow.
//
// What goes to a host outside all clusters gets the gateway's own address, since that host has no other way back.
func (v *view) toGlobal(f Family) []string {
	if !v.translates(f) || len(v.slots) == 0 || !reaches(f, knowing(v.Remotes, true)) {
		return nil
	}
	var r rules
	if v.toExternal(f) {
		r.add(`oifname != "%s*" %s saddr @%s %s daddr @%s ct status dnat masquerade`, LinkPrefix, f, setGlobalRemote, f,
			setExternal)
	}
	r.add(`oifname "%s*" %s saddr @%s %s daddr @%s snat to %s saddr`, CablePrefix, f, setGlobal, f, setGlobalRemote, f)
	if len(v.egressPods(f)) > 0 {
		r.add(`oifname "%s*" %s daddr @%s %s saddr vmap @%s`, CablePrefix, f, setGlobalRemote, f, mapEgress)
	}
	if v.knowsPods(f) {
		r.add(`oifname "%s*" %s daddr @%s snat to %s saddr map @%s`, CablePrefix, f, setGlobalRemote, f, mapSources)
	}
	r.add(`oifname "%s*" %s daddr @%s snat to %s`, CablePrefix, f, setGlobalRemote, v.egressOf(f, v.Local.ClusterEgress))
	return r
}

// knowsPods says whether pods that have a global address are known by it where they connect to others.
func (v *view) knowsPods(f Family) bool {
	return len(v.Local.Gateways) == 1 && len(v.globalPods(f)) > 0
}

// globalPods are those pods that have a global address of a family. IPv4 comes first.
func (v *view) globalPods(f Family) []topology.GlobalPod {
	first6, _ := slices.BinarySearchFunc(v.Local.GlobalPods, IPv6, func(p topology.GlobalPod, _ Family) int {
		return cmp.Compare(FamilyOf(p.Global), IPv6)
	})
	if f == IPv4 {
		return v.Local.GlobalPods[:first6]
	}
	return v.Local.GlobalPods[first6:]
}

// localServices are those services that have a global address of a family.
func (v *view) localServices(f Family) []topology.Service {
	return slices.DeleteFunc(slices.Clone(v.Local.Services), func(s topology.Service) bool {
		return FamilyOf(s.Address) != f
	})
}

// untranslated drops, after all translation, what would show an address of the cluster's own to those that know it by
// its block: packets that belong to no flow, which connection tracking does not translate.
func (v *view) untranslated(f Family) Chain {
	c := Chain{Name: "untranslated", Type: "filter", Hook: "postrouting", Priority: "srcnat+5"}
	if v.translates(f) && len(v.slots) > 0 && reaches(f, knowing(v.Remotes, true)) {
		var r rules
		v.passedOn(f, &r, fmt.Sprintf(`oifname "%s*"`, CablePrefix), "accept")
		c.Rules = append(r, fmt.Sprintf(`oifname "%s*" %s saddr != @%s %s daddr @%s counter drop`, CablePrefix, f,
			setGlobal, f, setGlobalRemote))
	}
	return c
}

// services returns, on a gateway, the chain that translates global addresses of services into backends and those of
// pods into their own, the maps by which it does, and the chains of services' ports. Whatever the number of services
// and pods, a packet meets three rules.
func (v *view) services(f Family) (chains []Chain, maps []Map) {
	if !v.translates(f) || len(v.slots) == 0 {
		return nil, nil
	}
	local, pods := v.localServices(f), v.globalPods(f)
	if len(local)+len(pods) == 0 {
		return nil, nil
	}
	var r rules
	if len(local) > 0 {
		table := Map{Name: mapServices, Key: addressType(f) + " . inet_proto . inet_service", Value: "verdict"}
		for _, s := range local {
			for _, p := range s.Ports {
				c := Chain{Name: serviceChain(s.Address, p), Rules: []string{balance(f, p, s.Affinity)}}
				chains = append(chains, c)
				table.Elements = append(table.Elements, MapElement{
					Key: fmt.Sprintf("%s . %s . %d", s.Address, p.Protocol, p.Port), Value: "goto " + c.Name})
			}
		}
		maps = append(maps, table)
		r.add(`iifname "%s*" %s daddr @%s %s daddr . meta l4proto . th dport vmap @%s`, CablePrefix, f, setGlobal, f,
			mapServices)
	}
	if len(pods) > 0 {
		maps = append(maps, v.podMaps(f)...)
		r.add(`iifname "%s*" dnat to %s daddr map @%s`, CablePrefix, f, mapPods)
	}
	for _, m := range maps {
		slices.SortFunc(m.Elements, func(a, b MapElement) int { return strings.Compare(a.Key, b.Key) })
	}
	slices.SortFunc(maps, func(a, b Map) int { return strings.Compare(a.Name, b.Name) })
	chains = append(chains, Chain{Name: "services", Type: "nat", Hook: "prerouting", Priority: "dstnat-5", Rules: r})
	return chains, maps
}

// serviceChain is the name of the chain of a service's port. nft allows no colons in it.
func serviceChain(a netip.Addr, p topology.ServicePort) string {
	return fmt.Sprintf("to-%s-%s-%d", strings.ReplaceAll(a.String(), ":", "_"), p.Protocol, p.Port)
}

// podMaps lead from pods' global addresses to their own and, where pods are known by them, back.
func (v *view) podMaps(f Family) []Map {
	kind, pods := addressType(f), v.globalPods(f)
	to, from := Map{Name: mapPods, Key: kind, Value: kind}, Map{Name: mapSources, Key: kind, Value: kind}
	to.Elements, from.Elements = make([]MapElement, 0, len(pods)), make([]MapElement, 0, len(pods))
	for _, p := range pods {
		to.Elements = append(to.Elements, MapElement{Key: p.Global.String(), Value: p.IP.String()})
		if p.Source {
			from.Elements = append(from.Elements, MapElement{Key: p.IP.String(), Value: p.Global.String()})
		}
	}
	if !v.knowsPods(f) {
		return []Map{to}
	}
	return []Map{to, from}
}

// balance spreads a port's connections over its backends, or its clients. It remembers nothing, so that every gateway
// leads a client to the same one.
func balance(f Family, p topology.ServicePort, byClient bool) string {
	if len(p.Backends) == 1 {
		return fmt.Sprintf(`meta l4proto %s dnat to %s`, p.Protocol, p.Backends[0])
	}
	elements := make([]string, len(p.Backends))
	for i, b := range p.Backends {
		elements[i] = fmt.Sprintf("%d : %s . %d", i, b.Addr(), b.Port())
	}
	match, hashed := "", fmt.Sprintf("%s saddr . %s sport", f, p.Protocol)
	if byClient {
		match, hashed = fmt.Sprintf("meta l4proto %s ", p.Protocol), fmt.Sprintf("%s saddr", f)
	}
	return fmt.Sprintf(`%sdnat %s to jhash %s mod %d seed 0x%x map { %s }`, match, f, hashed, len(p.Backends),
		backendSeed, strings.Join(elements, ", "))
}

// own is the address of a gateway of this cluster in its block, the source of what it sends in its own name; invalid
// on a worker and without a block.
func (v *view) own(f Family) netip.Addr {
	if v.gateway == nil || !v.translates(f) {
		return netip.Addr{}
	}
	return globalnet.Own(v.block(f), v.gateway.Slot)
}

// sourceTo returns what the node's own packets to a remote cluster have as source.
func (v *view) sourceTo(r topology.Remote, f Family) netip.Addr {
	if own := v.own(f); r.Translated && v.carries(r) && own.IsValid() {
		return own
	}
	return v.sources[f]
}

// unassigned makes the cluster's own block unreachable on every node: what is not translated goes nowhere, and whoever
// sends to an address that nobody has is told so.
func (v *view) unassigned() []Route {
	var out []Route
	for _, f := range v.families {
		if !v.translates(f) {
			continue
		}
		out = append(out, Route{Table: OutboundTable, Dst: v.block(f), Metric: StandingMetric, Type: Unreachable})
		if len(v.slots) > 0 {
			out = append(out, Route{Table: InboundTable, Dst: v.block(f), Metric: StandingMetric, Type: Unreachable})
		}
	}
	return out
}

// shares routes, on a gateway, each share of another cluster's block by a cable to the gateway whose share it is:
// that one alone knows the flows that it has translated, so there is no other way when it does not answer. Of a cluster
// behind a relay it is the relay that does.
func (v *view) shares() []Route {
	var out []Route
	for _, r := range v.Remotes {
		inUse, handedOver := v.active.Remotes[r.Name], false
		if len(inUse) == 0 {
			inUse, handedOver = v.active.Received[r.Name], true
		}
		cables := v.cablesByGateway(r, inUse)
		if len(inUse) == 0 || len(cables) < 2 || r.Behind != "" {
			continue
		}
		for _, f := range v.families {
			block := blockOf(r.Block, r.BlockIPv6, f)
			if !block.IsValid() || !v.answers(r, f) {
				continue
			}
			route := Route{Table: OutboundTable, Source: v.sourceTo(r, f)}
			if handedOver {
				route = Route{Table: SiblingTable}
			}
			route.Metric, route.Type, route.MTU = RouteMetric, Unicast, v.pathMTU(r)
			for slot, cable := range cables {
				route.Dst = globalnet.Share(block, slot)
				out = append(out, v.byCables(route, r, f, []int{cable}))
			}
		}
	}
	return out
}

// answers says whether a cluster that hears from this one by a family could answer: not where it knows this one by its
// block, which has nothing of the family.
func (v *view) answers(r topology.Remote, f Family) bool {
	return !r.Translated || v.block(f).IsValid()
}

// cablesByGateway returns, by the slot of each gateway of a cluster, that of the cable to it: of two to a gateway that
// replaces its key one in use, or else one that answers.
func (v *view) cablesByGateway(r topology.Remote, inUse []int) map[int]int {
	alive := v.facts.Alive[r.Name]
	out := map[int]int{}
	for _, g := range r.Gateways {
		if len(permitted(r, []int{g.Slot}, v.facts.Current[r.Name])) == 0 {
			continue
		}
		slot := g.Slot % v1alpha1.NextKeySlots
		was, ok := out[slot]
		better := !slices.Contains(inUse, was) && (slices.Contains(inUse, g.Slot) ||
			!slices.Contains(alive, was) && slices.Contains(alive, g.Slot))
		if !ok || better {
			out[slot] = g.Slot
		}
	}
	return out
}
