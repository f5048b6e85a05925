// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
)

// nullSNAT binds a flow between clusters to its own source before any masquerade can. A flow from another cluster
// to a service that one of several gateways translates, to a backend on another node, gets an address of this
// gateway: the backend's answers must come back here, whichever gateway its other packets take. What ipvs has
// translated has a mark in place of the status. A flow of the host whose source was chosen before a service's
// translation gets the node's pod address, or no reply would come; with ipvs that source is the service's address,
// which every node has. No other flow does: forwarded ones would hide their origin behind this node.
func (v *view) nullSNAT(f Family) Chain {
	c := Chain{Name: "nullsnat", Type: "nat", Hook: "postrouting", Priority: "srcnat-5"}
	if !slices.Contains(v.families, f) {
		return c
	}
	var r rules
	if len(v.slots) > 0 && v.several() {
		for _, translated := range []string{"ct status dnat",
			fmt.Sprintf("meta mark & 0x%08x == 0x%08x", ForwardMark, ForwardMark)} {
			r.add(`oifname "%s" %s saddr @%s %s snat to %s`, OverlayLink, f, setRemote, translated,
				v.translatedBy(*v.gateway, f))
		}
	}
	r = append(r, v.toGlobal(f)...)
	if source := v.sources[f]; source.IsValid() {
		r.add(`oifname "%s*" fib saddr type local %s saddr != @%s %s daddr @%s snat to %s`, LinkPrefix, f, setPods, f,
			setRemote, source)
	}
	r.add(`%s saddr @%s %s daddr @%s snat to %s saddr`, f, setLocal, f, setRemote, f)
	r.add(`%s saddr @%s %s daddr @%s snat to %s saddr`, f, setRemote, f, setLocal, f)
	if len(v.nodeAddresses(f)) > 0 {
		r.add(`%s saddr @%s %s daddr @%s snat to %s saddr`, f, setRemote, f, setNodes, f)
	}
	c.Rules = r
	return c
}

// served sees what ipvs has translated, which it sends like the node's own packets and not by FORWARD, and on gateways
// leads what other clusters send to a service the way of all that comes out of cables: routes are not looked up by the
// link that a packet came by. The mark is taken away before the packet leaves, for the overlay's outer packet has the
// same. Like forward it lets nothing of theirs go elsewhere, nor anything translated to the overlay's port.
func (v *view) served(f Family) []Chain {
	var mark, unmark rules
	if v.overlays(f) {
		mark.add(`udp dport %d %s daddr @%s ct state != untracked counter drop`, v.Cable.VXLANPort, f, setNodes)
	}
	if len(v.outers[f]) > 0 {
		mark.add(`udp dport %d %s daddr @%s ct state != untracked counter drop`, v.Cable.VXLANCablePort, f, setOuters)
	}
	if slices.Contains(v.families, f) && len(v.slots) > 0 {
		for _, set := range v.inside(f) {
			mark.add(`%s saddr @%s %s daddr @%s meta mark set meta mark | 0x%08x accept`, f, setRemote, f, set, ForwardMark)
		}
		mark.add(`%s saddr @%s counter drop`, f, setRemote)
		unmark.add(`%s saddr @%s meta mark set meta mark & 0x%08x`, f, setRemote, ^uint32(ForwardMark))
	}
	return []Chain{
		{Name: "served", Type: "route", Hook: "output", Priority: recallPriority, Rules: mark},
		{Name: "unmarkserved", Type: "filter", Hook: "postrouting", Priority: "srcnat+5", Rules: unmark},
	}
}
