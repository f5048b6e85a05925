// SPDX-License-Identifier: Apache-2.0

// Package discovery finds out which addresses a cluster's pods, services and nodes have.
package discovery

import (
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// How many node addresses and pod networks a report holds; they are the limits of the CRD.
const (
	maxNodeCIDRs = 10240
	maxPodCIDRs  = 1024
)

// Hints are what the sources say, each list empty where they say nothing. A stated range is one that the
// cluster's configuration names; it stays the same as nodes come and go.
type Hints struct {
	StatedPods, StatedServices []netip.Prefix
	// CNI are the ranges that objects of CNI plugins state.
	CNI []netip.Prefix
	// OnNodes are those of them that one node has, by its name.
	OnNodes map[string][]netip.Prefix
	Nodes   []corev1.Node
}

// Networks of the cluster. An override wins, list by list. Else pods have what is stated, what objects of CNI plugins
// state, and the nodes' pod CIDRs: several plugins may give one pod its addresses, or have given them to the older
// pods. Pods may share a network with the nodes, whose addresses are no pods', whoever states the network.
func Networks(h Hints, override v1alpha1.Networks) v1alpha1.Networks {
	nodes := nodeAddresses(h.Nodes)
	out := v1alpha1.Networks{
		PodCIDRs:     texts(without(statedPods(h), nodes)),
		ServiceCIDRs: texts(Aggregate(h.StatedServices)),
	}
	if len(override.PodCIDRs) > 0 {
		out.PodCIDRs = override.PodCIDRs
		if pods := Prefixes(override.PodCIDRs); containsAny(pods, nodes) {
			out.PodCIDRs = texts(without(pods, nodes))
		}
	}
	if len(override.ServiceCIDRs) > 0 {
		out.ServiceCIDRs = override.ServiceCIDRs
	}
	return out
}

// statedPods are the networks of pods where no override says them.
func statedPods(h Hints) []netip.Prefix { return slices.Concat(h.StatedPods, h.CNI, PodCIDRs(h.Nodes)) }

// underlay says whether pods share networks with nodes.
func underlay(h Hints, override v1alpha1.Networks) bool {
	pods := statedPods(h)
	if len(override.PodCIDRs) > 0 {
		pods = Prefixes(override.PodCIDRs)
	}
	return containsAny(pods, nodeAddresses(h.Nodes))
}

// containsAny says whether one of the prefixes holds one of the nodes.
func containsAny(pods, nodes []netip.Prefix) bool {
	return slices.ContainsFunc(nodes, func(n netip.Prefix) bool {
		return slices.ContainsFunc(pods, func(p netip.Prefix) bool { return contains(p, n) })
	})
}

// without returns the fewest prefixes that hold the addresses of the first and none of the second, sorted.
func without(in, not []netip.Prefix) []netip.Prefix {
	var b netipx.IPSetBuilder
	for _, p := range in {
		b.AddPrefix(p)
	}
	for _, p := range not {
		b.RemovePrefix(p)
	}
	set, err := b.IPSet()
	if err != nil { // a prefix that is not valid, of which there is none
		return in
	}
	return set.Prefixes()
}

// PodCIDRs are the ranges that nodes have by their spec.podCIDRs, in the order of the nodes.
func PodCIDRs(nodes []corev1.Node) []netip.Prefix {
	var out []netip.Prefix
	for i := range nodes {
		list := nodes[i].Spec.PodCIDRs
		if len(list) == 0 && nodes[i].Spec.PodCIDR != "" {
			list = []string{nodes[i].Spec.PodCIDR}
		}
		out = append(out, Prefixes(list)...)
	}
	return out
}

// NodeCIDRs are the nodes' internal addresses, as /32 and /128, sorted; of very many the first.
func NodeCIDRs(nodes []corev1.Node) []string {
	out := nodeAddresses(nodes)
	return texts(out[:min(len(out), maxNodeCIDRs)])
}

func nodeAddresses(nodes []corev1.Node) []netip.Prefix {
	var out []netip.Prefix
	for i := range nodes {
		for _, a := range nodes[i].Status.Addresses {
			if a.Type != corev1.NodeInternalIP {
				continue
			}
			if ip, err := netfacts.ParseAddr(a.Address); err == nil {
				out = append(out, netfacts.Host(ip))
			}
		}
	}
	slices.SortFunc(out, netfacts.Compare)
	return slices.Compact(out)
}

// Families of the networks' services, IPv4 first.
func Families(n v1alpha1.Networks) []corev1.IPFamily {
	var v4, v6 []corev1.IPFamily
	for _, p := range Prefixes(n.ServiceCIDRs) {
		if p.Addr().Is4() {
			v4 = []corev1.IPFamily{corev1.IPv4Protocol}
		} else {
			v6 = []corev1.IPFamily{corev1.IPv6Protocol}
		}
	}
	return append(v4, v6...)
}

// Prefixes parses a list, each element of which may be several separated by commas. What does not parse is
// left out.
func Prefixes(list []string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		for part := range strings.SplitSeq(s, ",") {
			if p, err := netip.ParsePrefix(strings.TrimSpace(part)); err == nil {
				out = append(out, p.Masked())
			}
		}
	}
	return out
}

// Aggregate returns the fewest prefixes that hold exactly the same addresses, sorted.
func Aggregate(in []netip.Prefix) []netip.Prefix { return without(in, nil) }

// contains says whether a prefix holds all of another.
func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

func texts(in []netip.Prefix) []string {
	out := make([]string, 0, len(in))
	for _, p := range in {
		out = append(out, p.String())
	}
	return out
}
