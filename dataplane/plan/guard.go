// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// guard drops what a cable delivers unless it is from the networks behind that cable to pods or services
// of this cluster: else a hostile member could speak to host ports, or for somebody else. Only gateways'
// probes reach the node itself. Whoever else claims to be in a remote network is dropped, whatever rp_filter
// is. VXLAN is spoken between node addresses, over the links that lead there, and nowhere else: its socket
// listens on every address of the node, and what it unpacks is believed. Packets that one of several gateways passes
// on between cables and the pods of other nodes are not tracked: then each packet of a flow may take another gateway,
// in either direction, and a gateway that takes over needs to know nothing of the flows. Nor are the answers of
// services that a sibling has translated and hands over: this gateway has not seen what they answer.
func (v *view) guard(f Family) Chain {
	var r rules
	if v.overlays(f) {
		r.add(`udp dport %d %s saddr != @%s %s daddr @%s counter drop`, v.Cable.VXLANPort, f, setNodes, f, setNodes)
		r.add(`udp dport %d %s daddr != @%s fib daddr type local counter drop`, v.Cable.VXLANPort, f, setNodes)
		r.add(`udp dport %d %s daddr @%s fib saddr . iif oif 0 counter drop`, v.Cable.VXLANPort, f, setNodes)
		r.add(`iifname "%s*" udp dport %d %s daddr @%s counter drop`, LinkPrefix, v.Cable.VXLANPort, f, setNodes)
	}
	v.guardVXLAN(f, &r)
	v.guardIPsec(f, &r)
	if a := addressOf(v.self, f); a.IsValid() && v.hasCables() {
		// Before the check of remote sources: a remote network may contain its gateway's address.
		r.add(`iifname != "%s*" %s daddr %s udp dport %s notrack accept`, LinkPrefix, f, a, v.cablePorts())
	}
	if slices.Contains(v.known, f) {
		r.add(`iifname != "lo" iifname != "%s*" %s saddr @%s counter drop`, LinkPrefix, f, setRemote)
	}
	if v.hasCables() {
		if len(v.nodeAddresses(f)) > 0 {
			r.add(`iifname "%s*" %s daddr @%s counter drop`, CablePrefix, f, setNodes)
		}
		if f == IPv6 && len(v.mesh) > 0 {
			r.add(`iifname "%s" ip6 saddr %s ip6 daddr %s icmpv6 type { echo-request, echo-reply } accept`,
				MeshLink, ULAPrefix(), MeshULA(v.facts.ID))
		}
		if len(v.meshPods(f)) > 0 {
			r.add(`iifname "%s" %s saddr @%s %s daddr @%s accept`, MeshLink, f, setMesh, f, setOwn)
		}
		r = append(r, v.probeRules(f)...)
		for _, j := range v.slots {
			if slices.Contains(v.families, f) && reaches(f, knowing(v.behind[j], false)) {
				if len(v.transit(f)) > 0 {
					r.add(`iifname "%s" %s saddr @%s%d %s daddr @%s notrack accept`, CableLink(j), f, setCable, j, f,
						setTransit)
				}
				r.add(`iifname "%s" %s saddr @%s%d %s daddr @%s accept`, CableLink(j), f, setCable, j, f, setLocal)
			}
		}
		v.fromGlobal(f, &r)
		v.guardRelayed(f, &r)
		r.add(`iifname "%s*" counter drop`, CablePrefix)
	}
	if macs := v.siblingMACs(); macs != "" && slices.Contains(v.families, f) {
		r.add(`iifname "%s" ether saddr %s %s daddr @%s meta mark set meta mark | 0x%08x`, OverlayLink, macs, f, setRemote,
			SiblingMark)
	}
	v.handedRelayed(f, &r)
	v.track(f, &r)
	if slices.Contains(v.families, f) && len(v.transit(f)) > 0 {
		r.add(`iifname "%s" %s saddr @%s %s daddr @%s notrack`, OverlayLink, f, setTransit, f, setRemote)
	}
	for _, set := range v.answered(f) {
		r.add(`iifname "%s" meta mark & 0x%08x == 0x%08x %s saddr @%s %s daddr @%s notrack`, OverlayLink, SiblingMark,
			SiblingMark, f, set, f, setRemote)
	}
	if v.overlays(f) {
		r.add(`%s saddr @%s %s daddr @%s udp dport %d notrack`, f, setNodes, f, setNodes, v.Cable.VXLANPort)
	}
	return Chain{Name: "guard", Type: "filter", Hook: "prerouting", Priority: "raw", Rules: r}
}

// hostPriority is behind ipvs, which translates at 98 in INPUT, and near to no name.
const hostPriority = "130"

// host drops what comes from other clusters to the node's own addresses in the pod network, but replies and errors of
// the node's flows, for whose sake the guard lets it pass. On these addresses listens whatever listens on all, and
// errors of no flow would tell the node how much it may send to its own cluster. What is not tracked is for a pod of
// another node that says to have the address of this one. VXLAN between nodes is not tracked: what is tracked came by
// a translation, round the guard. It is behind that of ipvs.
func (v *view) host(f Family) Chain {
	var r rules
	if v.overlays(f) {
		r.add(`udp dport %d %s saddr != @%s counter drop`, v.Cable.VXLANPort, f, setNodes)
		r.add(`udp dport %d ct state != untracked counter drop`, v.Cable.VXLANPort)
	}
	if v.hasVXLAN(f) {
		r.add(`udp dport %d ct state != untracked counter drop`, v.Cable.VXLANCablePort)
	}
	if slices.Contains(v.families, f) && len(inFamily(f, v.Local.Pods)) > 0 {
		r.add(`iifname "%s*" %s daddr @%s ct state invalid,new,untracked counter drop`, LinkPrefix, f, setPods)
	}
	if v.translates(f) {
		r.add(`iifname "%s*" %s daddr @%s ct state invalid,new,untracked counter drop`, LinkPrefix, f, setGlobal)
	}
	if v.toExternal(f) {
		// An address of the node itself is none of a host outside.
		r.add(`iifname "%s*" %s daddr @%s counter drop`, CablePrefix, f, setExternal)
	}
	return Chain{Name: "host", Type: "filter", Hook: "input", Priority: hostPriority, Rules: r}
}

// untracked is what connections need not be known of, and what is not sent. Where a load balancer leads to a node port,
// the service proxy of this node has translated what came by the cable, and knows the answers by that alone.
func (v *view) untracked(f Family) Chain {
	c := Chain{Name: "untracked", Type: "filter", Hook: "output", Priority: "raw"}
	if v.overlays(f) {
		c.Rules = append(c.Rules, fmt.Sprintf(`%s saddr @%s %s daddr @%s udp dport %d notrack`,
			f, setNodes, f, setNodes, v.Cable.VXLANPort))
	}
	if addressOf(v.self, f).IsValid() && v.hasCables() && !v.self.Balanced {
		c.Rules = append(c.Rules, fmt.Sprintf(`udp sport %s notrack`, v.cablePorts()))
	}
	if v.hasVXLAN(f) {
		c.Rules = append(c.Rules, fmt.Sprintf(`udp dport %d %s daddr @%s notrack`, v.Cable.VXLANCablePort, f, setVTEPs))
	}
	if f == IPv6 && v.byIPsec() {
		c.Rules = append(c.Rules, fmt.Sprintf(`udp dport %d ip6 daddr @%s notrack`, v.Cable.IPsecVXLANPort, setCarried))
	}
	v.noRedirects(f, (*rules)(&c.Rules))
	return c
}

// cablePorts as nft lists them.
func (v *view) cablePorts() string {
	ports := make([]string, 0, len(v.slots)+1)
	for _, j := range v.slots {
		if !isVXLAN(j) {
			ports = append(ports, strconv.Itoa(int(v.Cable.Port)+j))
		}
	}
	if v.byIPsec() {
		ports = append(ports, strconv.Itoa(int(v.Cable.IPsecPort)))
	}
	if len(v.mesh) > 0 {
		ports = append(ports, strconv.Itoa(int(v.Cable.MeshPort)))
	}
	if len(ports) == 1 {
		return ports[0]
	}
	return "{ " + strings.Join(ports, ", ") + " }"
}
