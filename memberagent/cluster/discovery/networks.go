// SPDX-License-Identifier: Apache-2.0

// Package discovery finds out which addresses a cluster's pods, services and nodes have.
package discovery

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// maxNodeCIDRs is the number of nodes' addresses above which they are reported as the networks they lie in.
const maxNodeCIDRs = 1000

// Hints are what the sources say, each list empty where they say nothing. A stated range is one that the
// cluster's configuration names; it stays the same as nodes come and go.
type Hints struct {
	StatedPods, StatedServices []netip.Prefix
	Nodes                      []corev1.Node
}

// Networks of the cluster. An override wins, list by list. Stated pod ranges come with those pod CIDRs of
// nodes that lie outside of them; without stated ranges the nodes' pod CIDRs are all there is.
func Networks(h Hints, override v1alpha1.Networks) v1alpha1.Networks {
	pods := slices.Clone(h.StatedPods)
	for _, p := range podCIDRs(h.Nodes) {
		if !slices.ContainsFunc(h.StatedPods, func(s netip.Prefix) bool { return contains(s, p) }) {
			pods = append(pods, p)
		}
	}
	out := v1alpha1.Networks{PodCIDRs: texts(Aggregate(pods)), ServiceCIDRs: texts(Aggregate(h.StatedServices))}
	if len(override.PodCIDRs) > 0 {
		out.PodCIDRs = override.PodCIDRs
	}
	if len(override.ServiceCIDRs) > 0 {
		out.ServiceCIDRs = override.ServiceCIDRs
	}
	return out
}

func podCIDRs(nodes []corev1.Node) []netip.Prefix {
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

// NodeCIDRs are the nodes' internal addresses, as hosts, or as /24 and /64 where there are very many.
func NodeCIDRs(nodes []corev1.Node) []string {
	var out []netip.Prefix
	for i := range nodes {
		for _, a := range nodes[i].Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if a.Type == corev1.NodeInternalIP && err == nil {
				ip = ip.Unmap().WithZone("")
				out = append(out, netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
	}
	if len(out) > maxNodeCIDRs {
		for i, p := range out {
			bits := 64
			if p.Addr().Is4() {
				bits = 24
			}
			out[i] = netip.PrefixFrom(p.Addr(), bits).Masked()
		}
	}
	slices.SortFunc(out, comparePrefixes)
	return texts(slices.Compact(out))
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
func Aggregate(in []netip.Prefix) []netip.Prefix {
	out := slices.Clone(in)
	slices.SortFunc(out, comparePrefixes)
	for {
		merged := make([]netip.Prefix, 0, len(out))
		for _, p := range out {
			n := len(merged)
			switch {
			case n > 0 && contains(merged[n-1], p):
			case n > 0 && siblings(merged[n-1], p):
				merged[n-1] = netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked()
			default:
				merged = append(merged, p)
			}
		}
		if len(merged) == len(out) {
			return merged
		}
		out = merged
	}
}

func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

func siblings(a, b netip.Prefix) bool {
	return a != b && a.Bits() == b.Bits() && a.Bits() > 0 && a.Addr().Is4() == b.Addr().Is4() &&
		netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked() == netip.PrefixFrom(b.Addr(), b.Bits()-1).Masked()
}

func comparePrefixes(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}

func texts(in []netip.Prefix) []string {
	out := make([]string, 0, len(in))
	for _, p := range in {
		out = append(out, p.String())
	}
	return out
}
