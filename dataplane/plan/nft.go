// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// Names of the sets. The set of a cable, "cable0", holds the CIDRs of the clusters behind it.
const (
	setLocal = "local"
	// setTransit holds the pods of the other nodes, whose packets a gateway passes on, and setTranslated the addresses
	// from which the local gateways send what they have translated.
	setTransit    = "transit"
	setTranslated = "translated"
	// setMesh holds the pods of the nodes that this one connects to, and setOwn its own.
	setMesh   = "mesh"
	setOwn    = "own"
	setPods   = "pods"
	setRemote = "remote"
	setNodes  = "nodes"
	setCable  = "cable"
)

// tables returns one table a family. A packet meets their chains in this order:
//
//	guard      raw prerouting        what a cable may deliver, who may speak VXLAN, who may be a remote source;
//	                                 marks what a sibling hands over
//	host       end of input          VXLAN that was not translated, no connections from others to the node
//	gateways   mangle prerouting     answers of services that this node has translated go back by gateways
//	forward    before FORWARD        nothing but local to remote over our links, marked for FORWARD to accept
//	unmark     after FORWARD         takes the mark away
//	recall     behind nat prerouting the gateway that a flow keeps
//	untracked  raw output            no connection tracking for outer packets
//	recallown  behind nat output     the same for the node's own
//	served     behind nat output     what ipvs has translated: nothing to VXLAN, and on gateways, from others only to
//	                                 pods and nodes, marked
//	record     mangle postrouting    by which gateway a flow goes
//	clamp      mangle postrouting    TCP's MSS fits the path
//	egress     mangle postrouting    nothing to a remote cluster but over our links
//	services   nat prerouting        on gateways, global addresses of services and pods into backends and pods' own
//	nullsnat   nat postrouting, before kube-proxy and CNIs: no masquerade between clusters, and on gateways a global
//	           address for what goes to clusters that know this one by its block
//	untranslated  after nat          nothing else goes to those
//	unmarkserved  after nat          takes the mark of served away
func (v *view) tables() []Table {
	var out []Table
	for _, f := range []Family{IPv4, IPv6} {
		if f == IPv6 && !v.facts.IPv6 {
			continue
		}
		services, maps := v.services(f)
		pools, egress := v.pools(f)
		vtepMaps, vteps := v.vtepChains(f)
		t := Table{Family: f, Sets: v.sets(f), Maps: slices.Concat(egress, maps, vtepMaps)} // sorted by name
		for _, c := range append(slices.Concat(services, pools, vteps, v.flowChains(f), v.served(f)), v.clamp(f), v.egress(f),
			v.forward(f), v.gateways(f), v.guard(f), v.host(f), v.nullSNAT(f), v.unmark(), v.untracked(f), v.untranslated(f)) {
			if len(c.Rules) > 0 {
				t.Chains = append(t.Chains, c)
			}
		}
		slices.SortFunc(t.Chains, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
		out = append(out, t)
	}
	return out
}

// sets returns those with elements, sorted by name; no rule names another.
func (v *view) sets(f Family) []Set {
	var sets []Set
	add := func(name string, elements []netip.Prefix) {
		if len(elements) > 0 {
			sets = append(sets, Set{name, elements})
		}
	}
	carried := slices.Contains(v.families, f)
	if carried {
		for _, j := range v.slots {
			add(setCable+strconv.Itoa(j), routed(f, knowing(v.behind[j], false)))
		}
		add(setLocal, disjoint(inFamily(f, v.Local.Announced)))
		add(setTransit, v.transit(f))
		add(setTranslated, v.translated(f))
		add(setPods, disjoint(inFamily(f, v.Local.Pods)))
		if pods := v.meshPods(f); len(pods) > 0 {
			add(setMesh, pods)
			add(setOwn, disjoint(inFamily(f, v.self.Pods)))
		}
		v.globalSets(f, add)
		add(setKept, v.keptNetworks(f))
	}
	add(setNodes, v.nodeAddresses(f))
	add(setVTEPs, v.vxlanVTEPs(f))
	if slices.Contains(v.known, f) {
		add(setRemote, routed(f, v.Remotes))
	}
	slices.SortFunc(sets, func(a, b Set) int { return strings.Compare(a.Name, b.Name) })
	return sets
}

// routed returns the prefixes of clusters.
func routed(f Family, clusters []topology.Remote) []netip.Prefix {
	var out []netip.Prefix
	for _, r := range clusters {
		out = append(out, inFamily(f, r.Routed)...)
	}
	return disjoint(out)
}

func reaches(f Family, clusters []topology.Remote) bool {
	return slices.ContainsFunc(clusters, func(r topology.Remote) bool { return len(inFamily(f, r.Routed)) > 0 })
}

// several says that there are ways around a gateway of the local cluster: another gateway, or a mesh. With one alone
// each packet passes by it, and it may track them: then a service that it translates shows its backends who the client
// is.
func (v *view) several() bool { return len(v.Local.Gateways) > 1 || v.meshed() }

// translated returns, on a node of a cluster with several gateways, from which addresses the others of them send what
// they have translated.
func (v *view) translated(f Family) []netip.Prefix {
	var out []netip.Prefix
	for _, g := range v.Local.Gateways {
		if a := v.translatedBy(g, f); g.Node != v.self.Name && a.IsValid() {
			out = append(out, host(a))
		}
	}
	return disjoint(out)
}

// translatedBy is such an address of a gateway; invalid in a cluster with one gateway.
func (v *view) translatedBy(g topology.Gateway, f Family) netip.Addr {
	on := v.on(v.nodes[g.Node])
	switch {
	case !v.several() || !on.IsValid():
		return netip.Addr{}
	case f == IPv4:
		return translated(g.Slot)
	}
	return translated6(on)
}

// transit returns, on one of several gateways, the pod networks of the other nodes.
func (v *view) transit(f Family) []netip.Prefix {
	if v.gateway == nil || !v.several() {
		return nil
	}
	var out []netip.Prefix
	for _, n := range v.others() {
		out = append(out, inFamily(f, n.Pods)...)
	}
	return disjoint(out)
}

func (v *view) nodeAddresses(f Family) []netip.Prefix {
	var out []netip.Prefix
	for _, n := range v.Local.Nodes {
		if a := addressOf(n, f); a.IsValid() {
			out = append(out, host(a))
		}
	}
	return disjoint(out)
}

// disjoint returns prefixes sorted, without those inside others. Neighbouring prefixes stay apart, so that
// a new one is seen to be new.
func disjoint(prefixes []netip.Prefix) []netip.Prefix {
	prefixes = slices.SortedFunc(slices.Values(prefixes), netfacts.Compare)
	out := prefixes[:0]
	for _, p := range prefixes {
		if len(out) == 0 || !out[len(out)-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

// overlays says whether the overlay's outer packets are of the family. Without nodes there is no overlay.
func (v *view) overlays(f Family) bool { return f == v.outer && len(v.nodeAddresses(f)) > 0 }

// rules are a chain's rules, one family's words in them.
type rules []string

func (r *rules) add(format string, args ...any) { *r = append(*r, fmt.Sprintf(format, args...)) }

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
		r.add(`iifname "%s*" counter drop`, CablePrefix)
	}
	if macs := v.siblingMACs(); macs != "" && slices.Contains(v.families, f) {
		r.add(`iifname "%s" ether saddr %s %s daddr @%s meta mark set meta mark | 0x%08x`, OverlayLink, macs, f, setRemote,
			SiblingMark)
	}
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
	if v.byVXLAN(f) {
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

// forward lets over our links only what is between local and remote networks, and nothing from a cable to a
// cable or back into the overlay: a service whose backends are elsewhere would make this cluster a relay. What
// passes is marked, for the FORWARD chains to accept. Destinations are looked at after a service's translation,
// and the sources of answers before its reversal: they are pods and nodes, and a service that nobody translates
// does not leave by the default route. The answers that a sibling has translated, and hands over, have the source that
// the other cluster is to see. VXLAN is not forwarded after a translation, which could have given it a node's source.
func (v *view) forward(f Family) Chain {
	var r rules
	if v.overlays(f) {
		r.add(`udp dport %d %s daddr @%s ct state != untracked counter drop`, v.Cable.VXLANPort, f, setNodes)
	}
	if v.byVXLAN(f) {
		// Masqueraded, it would have this gateway's address at the other end.
		r.add(`udp dport %d %s daddr @%s counter drop`, v.Cable.VXLANCablePort, f, setVTEPs)
	}
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
		if v.byVXLAN(f) {
			r.add(`udp dport %d %s daddr @%s fib saddr type local accept`, v.Cable.VXLANCablePort, f, setVTEPs)
		}
		r.add(`oifname != "lo" oifname != "%s*" %s daddr @%s counter drop`, LinkPrefix, f, setRemote)
		if v.translates(f) {
			r.add(`oifname != "lo" oifname != "%s*" %s daddr @%s counter drop`, LinkPrefix, f, setGlobal)
		}
	}
	return Chain{Name: "egress", Type: "filter", Hook: "postrouting", Priority: "mangle", Rules: r}
}

func (v *view) untracked(f Family) Chain {
	c := Chain{Name: "untracked", Type: "filter", Hook: "output", Priority: "raw"}
	if v.overlays(f) {
		c.Rules = append(c.Rules, fmt.Sprintf(`%s saddr @%s %s daddr @%s udp dport %d notrack`,
			f, setNodes, f, setNodes, v.Cable.VXLANPort))
	}
	if addressOf(v.self, f).IsValid() && v.hasCables() {
		c.Rules = append(c.Rules, fmt.Sprintf(`udp sport %s notrack`, v.cablePorts()))
	}
	if v.byVXLAN(f) {
		c.Rules = append(c.Rules, fmt.Sprintf(`udp dport %d %s daddr @%s notrack`, v.Cable.VXLANCablePort, f, setVTEPs))
	}
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
	if len(v.mesh) > 0 {
		ports = append(ports, strconv.Itoa(int(v.Cable.MeshPort)))
	}
	if len(ports) == 1 {
		return ports[0]
	}
	return "{ " + strings.Join(ports, ", ") + " }"
}

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
	if v.byVXLAN(f) {
		mark.add(`udp dport %d %s daddr @%s ct state != untracked counter drop`, v.Cable.VXLANCablePort, f, setVTEPs)
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
