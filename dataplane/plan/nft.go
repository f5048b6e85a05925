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
//	carried    mangle postrouting    what goes by the carrier of IPsec, and nothing else there
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
		for _, c := range append(slices.Concat(services, pools, vteps, v.flowChains(f), v.served(f)), v.clamp(f),
			v.egress(f), v.carriedOnly(f), v.ownOnly(f), v.forward(f), v.gateways(f), v.guard(f), v.host(f), v.nullSNAT(f),
			v.unmark(), v.untracked(f), v.untranslated(f)) {
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
		v.relaySets(f, add)
		add(setKept, v.keptNetworks(f))
	}
	add(setNodes, v.nodeAddresses(f))
	add(setVTEPs, v.vxlanVTEPs(f))
	add(setOuters, v.outers[f])
	add(setCarried, v.carried(f))
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
