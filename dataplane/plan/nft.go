// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sealane-io/sealane/dataplane/topology"
)

// Names of the sets. The set of a cable, "cable0", holds the CIDRs of the clusters behind it.
const (
	setLocal  = "local"
	setPods   = "pods"
	setRemote = "remote"
	setNodes  = "nodes"
	setCable  = "cable"
)

// tables returns one table a family. A packet meets their chains in this order:
//
//	guard      raw prerouting        what a cable may deliver, who may speak VXLAN
//	host       input                 no other cluster opens a connection to the node itself
//	untracked  raw output            no connection tracking for outer packets
//	clamp      mangle postrouting    TCP's MSS fits the path
//	nullsnat   nat postrouting, before kube-proxy and CNIs: no masquerade between clusters
func (v *view) tables() []Table {
	var out []Table
	for _, f := range []Family{IPv4, IPv6} {
		if f == IPv6 && !v.facts.IPv6 {
			continue
		}
		t := Table{Family: f, Sets: v.sets(f)}
		for _, c := range []Chain{v.clamp(f), v.guard(f), v.host(f), v.nullSNAT(f), v.untracked(f)} {
			if len(c.Rules) > 0 {
				t.Chains = append(t.Chains, c)
			}
		}
		if len(t.Chains) > 0 {
			out = append(out, t)
		}
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
			add(setCable+strconv.Itoa(j), routed(f, v.behind[j]))
		}
		add(setLocal, disjoint(inFamily(f, v.Local.Announced)))
		add(setPods, disjoint(inFamily(f, v.Local.Pods)))
	}
	add(setNodes, v.nodeAddresses(f))
	if carried {
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
	prefixes = slices.SortedFunc(slices.Values(prefixes), comparePrefix)
	out := prefixes[:0]
	for _, p := range prefixes {
		if len(out) == 0 || !out[len(out)-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

// guard drops what a cable delivers unless it is from the networks behind that cable to pods or services
// of this cluster: else a hostile member could speak to host ports, or for somebody else. Only gateways'
// probes reach the node itself. VXLAN is spoken between node addresses and nowhere else: its socket listens
// on every address of the node, and what it unpacks is believed.
func (v *view) guard(f Family) Chain {
	c := Chain{Name: "guard", Type: "filter", Hook: "prerouting", Priority: "raw"}
	add := func(format string, args ...any) { c.Rules = append(c.Rules, fmt.Sprintf(format, args...)) }
	haveNodes := len(v.nodeAddresses(f)) > 0
	if f == v.outer {
		add(`udp dport %d %s saddr != @%s %s daddr @%s counter drop`, v.Cable.VXLANPort, f, setNodes, f, setNodes)
		add(`udp dport %d %s daddr != @%s fib daddr type local counter drop`, v.Cable.VXLANPort, f, setNodes)
	}
	if len(v.slots) > 0 {
		if haveNodes {
			add(`iifname "%s*" %s daddr @%s counter drop`, CablePrefix, f, setNodes)
		}
		if f == IPv6 && v.probing() {
			add(`iifname "%s*" ip6 saddr %s ip6 daddr %s icmpv6 type { echo-request, echo-reply } accept`,
				CablePrefix, ULAPrefix(), ULA(v.facts.PublicKey))
		}
		for _, j := range v.slots {
			if slices.Contains(v.families, f) && reaches(f, v.behind[j]) {
				add(`iifname "%s" %s saddr @%s%d %s daddr @%s accept`, CableLink(j), f, setCable, j, f, setLocal)
			}
		}
		add(`iifname "%s*" counter drop`, CablePrefix)
	}
	if f == v.outer {
		add(`%s saddr @%s %s daddr @%s udp dport %d notrack`, f, setNodes, f, setNodes, v.Cable.VXLANPort)
	}
	if a := addressOf(v.self, f); a.IsValid() && len(v.slots) > 0 {
		add(`%s daddr %s udp dport %s notrack`, f, a, v.cablePorts())
	}
	return c
}

// host drops connections from other clusters to the node's own addresses in the pod network, which the
// guard lets pass for the sake of replies: on them listens whatever listens on all addresses.
func (v *view) host(f Family) Chain {
	c := Chain{Name: "host", Type: "filter", Hook: "input", Priority: "filter"}
	if slices.Contains(v.families, f) && len(inFamily(f, v.Local.Pods)) > 0 {
		c.Rules = []string{fmt.Sprintf(`iifname "%s*" %s daddr @%s ct state new counter drop`, LinkPrefix, f, setPods)}
	}
	return c
}

func (v *view) untracked(f Family) Chain {
	c := Chain{Name: "untracked", Type: "filter", Hook: "output", Priority: "raw"}
	if f == v.outer {
		c.Rules = append(c.Rules, fmt.Sprintf(`%s saddr @%s %s daddr @%s udp dport %d notrack`,
			f, setNodes, f, setNodes, v.Cable.VXLANPort))
	}
	if addressOf(v.self, f).IsValid() && len(v.slots) > 0 {
		c.Rules = append(c.Rules, fmt.Sprintf(`udp sport %s notrack`, v.cablePorts()))
	}
	return c
}

// cablePorts as nft lists them.
func (v *view) cablePorts() string {
	ports := make([]string, len(v.slots))
	for i, j := range v.slots {
		ports[i] = strconv.Itoa(int(v.Cable.Port) + j)
	}
	if len(ports) == 1 {
		return ports[0]
	}
	return "{ " + strings.Join(ports, ", ") + " }"
}

// nullSNAT binds a flow between clusters to its own source before any masquerade can. A flow of the host
// whose source was chosen before a service's DNAT gets the node's pod address, or no reply would come.
func (v *view) nullSNAT(f Family) Chain {
	c := Chain{Name: "nullsnat", Type: "nat", Hook: "postrouting", Priority: "srcnat-5"}
	if !slices.Contains(v.families, f) {
		return c
	}
	c.Rules = []string{
		fmt.Sprintf(`%s saddr @%s %s daddr @%s snat to %s saddr`, f, setLocal, f, setRemote, f),
		fmt.Sprintf(`%s saddr @%s %s daddr @%s snat to %s saddr`, f, setRemote, f, setLocal, f),
	}
	if len(v.nodeAddresses(f)) > 0 {
		c.Rules = append(c.Rules, fmt.Sprintf(`%s saddr @%s %s daddr @%s snat to %s saddr`, f, setRemote, f, setNodes, f))
	}
	if source := v.sources[f]; source.IsValid() {
		c.Rules = append(c.Rules, fmt.Sprintf(`oifname "%s*" %s saddr != @%s %s daddr @%s snat to %s`,
			LinkPrefix, f, setLocal, f, setRemote, source))
	}
	return c
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
