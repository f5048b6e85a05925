// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/netfacts"
	netdiscovery "github.com/sealane-io/sealane/memberagent/cluster/discovery"
)

// networksCheck judges a cluster's networks by themselves, as the broker will without a ClusterSet that says otherwise.
func networksCheck(n v1alpha1.Networks, problem string) checked {
	const name = "networks"
	all := fmt.Sprintf("pods %s; services %s", clip.List(n.PodCIDRs, 5), clip.List(n.ServiceCIDRs, 5))
	bad := checked{Name: name, Verdict: verdictFail, Found: all, Expected: "networks of pods and services that are known",
		Remedy: "state them in the ClusterSet under spec.clusters[].networks"}
	if problem != "" {
		bad.Found = problem
		return bad
	}
	if len(n.PodCIDRs) == 0 || len(n.ServiceCIDRs) == 0 {
		return bad
	}
	allowed, err := netfacts.ParseAllowed((&v1alpha1.ClusterSetSpec{}).Allowed())
	if err != nil {
		bad.Found = err.Error()
		return bad
	}
	var outside []string
	for _, text := range slices.Concat(n.PodCIDRs, n.ServiceCIDRs) {
		p, err := netfacts.ParsePrefix(text)
		if err != nil {
			bad.Found, bad.Expected = err.Error(), "networks that a cluster can have"
			return bad
		}
		if !allowed.ContainsPrefix(p) {
			outside = append(outside, text)
		}
	}
	if len(outside) > 0 {
		return checked{Name: name, Verdict: verdictWarn, Found: "not private: " + clip.List(outside, 5),
			Expected: "private networks, unless the ClusterSet allows others",
			Remedy:   "add them to spec.allowedCIDRs of the ClusterSet, if they are the cluster's own"}
	}
	return passed(name, "%s", all)
}

// overlapsOf compares candidates with each other, and returns one check for each that is known by its networks. A
// cluster's own nodes and networks are not compared.
func overlapsOf(candidates []candidate) map[string][]checked {
	var networks, nodes netfacts.Owners
	for i := range candidates {
		c := &candidates[i]
		for _, p := range c.prefixes() {
			networks.Add(p, c.name)
		}
		for _, p := range netdiscovery.Prefixes(c.nodes) {
			nodes.Add(p, c.name)
		}
	}
	out := map[string][]checked{}
	for i := range candidates {
		c := &candidates[i]
		if len(c.prefixes()) == 0 {
			continue
		}
		result := passed("overlaps", "none with the other clusters that were asked")
		if text := overlapText(&nodes, c, "the nodes"); text != "" {
			result = checked{Name: "overlaps", Verdict: verdictFail, Found: text,
				Expected: "networks outside those of the other clusters' nodes, which keep their own underlay",
				Remedy:   "give the cluster other networks, or have it known by a block with spec.globalnet of the ClusterSet"}
		}
		if text := overlapText(&networks, c, "the networks"); text != "" {
			result = checked{Name: "overlaps", Verdict: verdictFail, Found: text,
				Expected: "networks of pods and services that differ between clusters",
				Remedy: "install --globalnet Auto, or set spec.globalnet.mode: Auto in the ClusterSet there is; see " +
					"docs/globalnet.md"}
		}
		out[c.name] = []checked{result}
	}
	return out
}

func (c *candidate) prefixes() []netip.Prefix {
	return netdiscovery.Prefixes(slices.Concat(c.networks.PodCIDRs, c.networks.ServiceCIDRs))
}

// overlapText lists what a candidate's networks overlap of others, "" if nothing.
func overlapText(others *netfacts.Owners, c *candidate, what string) string {
	var found []string
	for _, p := range c.prefixes() {
		if o, is := others.Overlap(p, c.name); is {
			found = append(found, fmt.Sprintf("%s overlaps %s of %s", p, o.Prefix, o.Owner))
		}
	}
	if len(found) == 0 {
		return ""
	}
	return strings.TrimSpace(what + " of others: " + clip.List(found, 5))
}
