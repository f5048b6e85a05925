// SPDX-License-Identifier: Apache-2.0

package nodenetworks

import (
	"net/netip"

	"github.com/gaissmai/bart"
	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/discovery"
)

// Located is where gateways send what is for a pod: to the node of the narrowest network that holds its address, of the
// nodes' spec.podCIDRs and of NodeNetworks.
type Located struct {
	where *bart.Table[string]
	of    *netipx.IPSet
}

// Locate takes the NodeNetworks by the names of nodes, and the networks of the cluster's pods that other clusters route
// to it.
func Locate(nodes []corev1.Node, beyond map[string]v1alpha1.NodeNetworkSpec, networks []netip.Prefix) Located {
	d := decision{where: &bart.Table[string]{}}
	d.stated(nodes)
	for i := range nodes {
		name := nodes[i].Name
		for _, p := range discovery.Prefixes(beyond[name].PodCIDRs) {
			d.where.Insert(p, name)
		}
	}
	return Located{where: d.where, of: setOf(networks)}
}

// Of says whether an address is in one of the cluster's pod networks.
func (l Located) Of(ip netip.Addr) bool { return l.of.Contains(ip) }

// On says whether gateways send what is for an address to a node.
func (l Located) On(node string, ip netip.Addr) bool {
	at, ok := l.where.Lookup(ip)
	return ok && at == node && l.Of(ip)
}

// setOf networks; it is empty if one of them is not valid, of which there is none.
func setOf(networks []netip.Prefix) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, p := range networks {
		b.AddPrefix(p)
	}
	set, err := b.IPSet()
	if err != nil {
		return &netipx.IPSet{}
	}
	return set
}
