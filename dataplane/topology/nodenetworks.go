// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
	"go4.org/netipx"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// buildNodeNetworks takes what nodes have beyond their spec.podCIDRs. Of networks that overlap the narrower counts, and
// in the topology each address is one node's.
func (b *builder) buildNodeNetworks(networks []v1alpha1.NodeNetwork) {
	if len(networks) == 0 {
		return
	}
	pods, where, touched := netfacts.Set(b.Local.Pods), &bart.Table[int]{}, map[int]bool{}
	for i, n := range b.Local.Nodes {
		for _, p := range n.Pods {
			where.Insert(p, i)
		}
	}
	taken := map[netip.Prefix]string{}
	for _, n := range unique(b, "NodeNetwork", networks, func(n v1alpha1.NodeNetwork) string { return n.Name }) {
		ref := "NodeNetwork/" + n.Name
		i, exists := slices.BinarySearchFunc(b.Local.Nodes, n.Name, func(n Node, name string) int {
			return cmp.Compare(n.Name, name)
		})
		if !exists {
			b.left(ref, "", faultf(ReasonUnknownNode, "there is no node of that name with an address"))
			continue
		}
		for _, cidr := range n.Spec.PodCIDRs {
			p, f := b.nodeNetwork(cidr, pods)
			if other, twice := taken[p]; f == nil && twice && other != n.Name {
				f = faultf(ReasonOverlap, "%s is that of NodeNetwork %s", p, other)
			}
			if f != nil {
				b.left(ref, "spec.podCIDRs", f)
				continue
			}
			taken[p], touched[i] = n.Name, true
			if before, had := where.Get(p); had {
				touched[before] = true
			}
			where.Insert(p, i)
		}
	}
	b.divide(where, touched)
}

// nodeNetwork parses a network of a node's pods, which has to be of the cluster's.
func (b *builder) nodeNetwork(cidr string, pods *netipx.IPSet) (netip.Prefix, *fault) {
	p, f := parsePrefix(cidr)
	if f != nil {
		return p, f
	}
	if !pods.ContainsPrefix(p) {
		return p, faultf(ReasonNotOfCluster, "%s is not inside the cluster's pod networks", p)
	}
	if other, ok := b.nodes.Overlap(p, nobody); ok {
		return p, faultf(ReasonContainsNode, "%s has an address of node %s in it", p, other.Owner)
	}
	return p, nil
}

// divide gives each node what it has less the narrower networks of others. The networks of a node that are not touched,
// and have none of others in them, stay as they are.
func (b *builder) divide(where *bart.Table[int], touched map[int]bool) {
	inside := map[netip.Prefix][]netip.Prefix{}
	for p, i := range where.All() {
		for q, j := range where.Supernets(p) {
			if q == p {
				continue
			}
			inside[q] = append(inside[q], p)
			if i != j {
				touched[j] = true
			}
			break // the next wider one
		}
	}
	sets := map[int]*netipx.IPSetBuilder{}
	for p, i := range where.All() {
		if !touched[i] {
			continue
		}
		if sets[i] == nil {
			sets[i] = &netipx.IPSetBuilder{}
		}
		if len(inside[p]) == 0 {
			sets[i].AddPrefix(p)
			continue
		}
		var own netipx.IPSetBuilder
		own.AddPrefix(p)
		for _, q := range inside[p] {
			own.RemovePrefix(q)
		}
		if set, err := own.IPSet(); err == nil {
			sets[i].AddSet(set)
		}
	}
	for i := range touched {
		b.Local.Nodes[i].Pods = nil
		if sets[i] == nil {
			continue
		}
		if set, err := sets[i].IPSet(); err == nil {
			b.Local.Nodes[i].Pods = set.Prefixes()
		}
	}
}
