// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// facts finds what the plan needs to know among the node's addresses. One on the link that has the node's own address
// is no pod address, even where pods share that network: a virtual address, or one of IPv6 that the node has made up,
// is not routed to the node.
func facts(top topology.Topology, node string, id plan.PeerID, addresses []kernel.LocalAddress,
	ipv6 bool) plan.NodeFacts {
	f := plan.NodeFacts{Name: node, ID: id, IPv6: ipv6}
	i := slices.IndexFunc(top.Local.Nodes, func(n topology.Node) bool { return n.Name == node })
	if i < 0 {
		return f
	}
	self := top.Local.Nodes[i]
	underlay := ""
	for _, a := range addresses {
		if slices.Contains(self.Addresses, a.Addr) {
			f.UnderlayMTU, underlay = a.MTU, a.Link
			break
		}
	}
	var others []kernel.LocalAddress
	for _, a := range addresses {
		switch {
		case a.Link != underlay:
			others = append(others, a)
		case a.Network.IsValid() && !a.Network.IsSingleIP() && !a.Addr.IsLinkLocalUnicast() &&
			!slices.Contains(f.Underlays, a.Network):
			f.Underlays = append(f.Underlays, a.Network)
		}
	}
	for _, family := range []plan.Family{plan.IPv4, plan.IPv6} {
		// A CNI may take the node's pod address from elsewhere in the cluster's pod CIDRs.
		for _, prefixes := range [][]netip.Prefix{self.Pods, top.Local.Pods} {
			if a, ok := podAddress(others, family, prefixes, self.Addresses); ok {
				f.PodAddresses = append(f.PodAddresses, a)
				break
			}
		}
	}
	return f
}

func podAddress(addresses []kernel.LocalAddress, family plan.Family, prefixes []netip.Prefix,
	not []netip.Addr) (netip.Addr, bool) {
	for _, a := range addresses {
		if plan.FamilyOf(a.Addr) == family && !slices.Contains(not, a.Addr) &&
			slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a.Addr) }) {
			return a.Addr, true
		}
	}
	return netip.Addr{}, false
}
