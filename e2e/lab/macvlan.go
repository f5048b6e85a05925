// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"slices"
)

// maxUnderlayNodes leaves room for the nodes' own addresses in the first part of a pod subnet of 256 addresses.
const maxUnderlayNodes = 7

// underlayRange are the addresses of a pod subnet of an underlay that one node gives to its pods.
type underlayRange struct {
	Subnet               netip.Prefix
	Gateway, First, Last netip.Addr
}

// underlayRanges are those of the j-th node, one in each pod subnet; nodes begin with another subnet in turn, so that
// all are in use. The first part of each subnet is for the router's and the nodes' own addresses.
func (c Cluster) underlayRanges(j int) []underlayRange {
	var out []underlayRange
	for _, subnet := range prefixesOf(c.PodCIDRs, IPv4) {
		part := slice(subnet, j+1, len(c.Nodes)+1)
		size := 1 << min(8, part.Addr().BitLen()-part.Bits())
		out = append(out, underlayRange{Subnet: subnet, Gateway: offset(subnet, 1), First: offset(part, 1),
			Last: offset(part, size-2)})
	}
	turn := j % len(out)
	return slices.Concat(out[turn:], out[:turn])
}

// hijacked are the networks that pods of the i-th cluster, with macvlan, reach by their node: its services and the pods
// and services of the other clusters.
func (t Topology) hijacked(i int) []string {
	out := slices.Clone(t.Clusters[i].ServiceCIDRs)
	for k, c := range t.Clusters {
		if k != i {
			out = append(append(out, c.PodCIDRs...), c.ServiceCIDRs...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// onLink are the pod subnets that the nodes of the i-th cluster have on their link.
func (l *Lab) onLink(i int) []netip.Prefix {
	if c := l.Topology.Clusters[i]; c.CNI == CNIMacvlan {
		return prefixesOf(c.PodCIDRs, IPv4)
	}
	return nil
}

// nodeLines give the j-th node of the i-th cluster an address in each pod subnet on its link, as nodes of a VLAN have.
func (l *Lab) nodeLines(i, j int) []string {
	var lines []string
	for _, p := range l.onLink(i) {
		lines = append(lines, fmt.Sprintf("addr add %s/%d dev eth0", offset(p, 11+j), p.Bits()))
	}
	return lines
}

// underlayLines connect the router of the underlay to the pod subnets of the i-th cluster, on the nodes' link.
func (l *Lab) underlayLines(i int) []string {
	var lines []string
	for _, p := range l.onLink(i) {
		lines = append(lines, fmt.Sprintf("addr add %s/%d dev br%d", offset(p, 1), p.Bits(), i+1))
	}
	return lines
}

// underlayRules translate, in the router, what pods of an underlay send to the control planes, which know nodes only.
func (l *Lab) underlayRules() string {
	rules := "*nat\n"
	for i := range l.Topology.Clusters {
		for _, p := range l.onLink(i) {
			rules += fmt.Sprintf("-A POSTROUTING -s %s -o host -j MASQUERADE\n", p)
		}
	}
	return rules + "COMMIT\n"
}
