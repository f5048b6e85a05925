// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
)

// forward lets over our links only what is between local and remote networks, and nothing from a cable to a
// cable or back into the overlay, but what this cluster is told to pass on: else a service whose backends are elsewhere
// would make it a relay. What
// passes is marked, for the FORWARD chains to accept. Destinations are looked at after a service's translation,
// and the sources of answers before its reversal: they are pods and nodes, and a service that nobody translates
// does not leave by the default route. The answers that a sibling has translated, and hands over, have the source that
// the other cluster is to see. VXLAN is not forwarded after a translation, which could have given it a node's source.
func (v *view) forward(f Family) Chain {
	var r rules
	if v.overlays(f) {
		r.add(`udp dport %d %s daddr @%s ct state != untracked counter drop`, v.Cable.VXLANPort, f, setNodes)
	}
	if len(v.outers[f]) > 0 {
		// Masqueraded, it would have this gateway's address at the other end.
		r.add(`udp dport %d %s daddr @%s counter drop`, v.Cable.VXLANCablePort, f, setOuters)
	}
	v.forwardIPsec(f, &r)
	v.forwardRelayed(f, &r)
	if v.hasCables() {
		r.add(`iifname "%s*" oifname "%s*" counter drop`, CablePrefix, CablePrefix)
	}
	if macs := v.siblingMACs(); macs != "" && slices.Contains(v.families, f) {
		// What a sibling hands over goes to cables or nowhere: two gateways whose cables to a cluster are dead would pass
		// it to and fro. What a worker sends goes to cables, or to a sibling.
		r.add(`iifname "%s" oifname "%s" ether saddr %s counter drop`, OverlayLink, OverlayLink, macs)
		r.add(`iifname "%s" oifname "%s" %s daddr != @%s counter drop`, OverlayLink, OverlayLink, f, setRemote)
	} else {
		r.add(`iifname "%s" oifname "%s" counter drop`, OverlayLink, OverlayLink)
	}
	if slices.Contains(v.families, f) {
		for _, set := range v.inside(f) {
			r.add(`oifname "%s*" %s saddr @%s %s daddr @%s meta mark set meta mark | 0x%08x accept`,
				LinkPrefix, f, set, f, setRemote, ForwardMark)
			r.add(`iifname "%s*" %s saddr @%s %s daddr @%s meta mark set meta mark | 0x%08x accept`,
				LinkPrefix, f, setRemote, f, set, ForwardMark)
		}
		v.forwardExternal(f, &r)
		for _, set := range v.answered(f) {
			r.add(`iifname "%s" oifname "%s*" meta mark & 0x%08x == 0x%08x %s saddr @%s %s daddr @%s ct state untracked `+
				`meta mark set meta mark | 0x%08x accept`, OverlayLink, CablePrefix, SiblingMark, SiblingMark, f, set, f, setRemote,
				ForwardMark)
		}
		if len(v.translated(f)) > 0 && len(inFamily(f, v.Local.Pods)) > 0 {
			r.add(`iifname "%s" %s saddr @%s %s daddr @%s meta mark set meta mark | 0x%08x accept`,
				OverlayLink, f, setTranslated, f, setPods, ForwardMark)
			r.add(`oifname "%s" %s saddr @%s %s daddr @%s meta mark set meta mark | 0x%08x accept`,
				OverlayLink, f, setPods, f, setTranslated, ForwardMark)
		}
	}
	for _, direction := range []string{"iifname", "oifname"} {
		r.add(`%s "%s*" counter drop`, direction, LinkPrefix)
	}
	return Chain{Name: "forward", Type: "filter", Hook: "forward", Priority: "filter-1", Rules: r}
}

// inside names the sets of the addresses that others may reach: pods, and nodes behind services.
func (v *view) inside(f Family) []string {
	var out []string
	if len(inFamily(f, v.Local.Pods)) > 0 {
		out = append(out, setPods)
	}
	if len(v.nodeAddresses(f)) > 0 {
		out = append(out, setNodes)
	}
	return out
}

// answered names the sets of the addresses, on one of several gateways, from which its siblings answer for services.
func (v *view) answered(f Family) []string {
	if v.siblingMACs() == "" || !slices.Contains(v.families, f) {
		return nil
	}
	if v.translates(f) {
		return []string{setLocal, setGlobal}
	}
	return []string{setLocal}
}

// siblingMACs are, on a gateway, the hardware addresses of the others' overlay links, as nft lists them; empty if
// there are none.
func (v *view) siblingMACs() string {
	if v.gateway == nil {
		return ""
	}
	var macs []string
	for _, g := range v.Local.Gateways {
		if n := v.nodes[g.Node]; g.Node != v.self.Name && v.on(n).IsValid() {
			macs = append(macs, vtepMAC(v.on(n)))
		}
	}
	slices.Sort(macs)
	if len(macs) < 2 {
		return strings.Join(macs, "")
	}
	return "{ " + strings.Join(macs, ", ") + " }"
}

func (v *view) unmark() Chain {
	var r rules
	for _, direction := range []string{"iifname", "oifname"} {
		r.add(`%s "%s*" meta mark set meta mark & 0x%08x`, direction, LinkPrefix, ^v.marks())
	}
	return Chain{Name: "unmark", Type: "filter", Hook: "forward", Priority: "filter+1", Rules: r}
}

// egress drops what would leave for a remote network in clear, where somebody's rule or route comes before
// ours, or by the throw for a remote gateway's address. Only the cables' own outer packets go there.
func (v *view) egress(f Family) Chain {
	var r rules
	if slices.Contains(v.known, f) {
		if v.hasCables() {
			r.add(`udp sport %s fib saddr type local accept`, v.cablePorts())
		}
		if v.hasVXLAN(f) {
			r.add(`udp dport %d %s daddr @%s fib saddr type local accept`, v.Cable.VXLANCablePort, f, setVTEPs)
		}
		r.add(`oifname != "lo" oifname != "%s*" %s daddr @%s counter drop`, LinkPrefix, f, setRemote)
		if v.translates(f) {
			r.add(`oifname != "lo" oifname != "%s*" %s daddr @%s counter drop`, LinkPrefix, f, setGlobal)
		}
	}
	return Chain{Name: "egress", Type: "filter", Hook: "postrouting", Priority: "mangle", Rules: r}
}

func (v *view) clamp(f Family) Chain {
	c := Chain{Name: "clamp", Type: "filter", Hook: "postrouting", Priority: "mangle"}
	if slices.Contains(v.families, f) {
		for _, direction := range []string{"iifname", "oifname"} {
			c.Rules = append(c.Rules, fmt.Sprintf(`%s "%s*" tcp flags syn / syn,rst tcp option maxseg size set rt mtu`,
				direction, LinkPrefix))
		}
	}
	return c
}
