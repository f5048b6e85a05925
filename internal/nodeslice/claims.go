// SPDX-License-Identifier: Apache-2.0

package nodeslice

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// Dispute is an address that a node says is its own and that another node has. No one is told that it has it.
type Dispute struct{ Node, Address, Owner string }

// maxDisputes are told of one node: its status has room for thousands.
const maxDisputes = 4

// Settled returns the nodes without the addresses that others have, given the slices that there are, and what was taken
// from which, at most maxDisputes of each, sorted by node.
func Settled(nodes []corev1.Node, have []v1alpha1.NodeSlice) ([]corev1.Node, []Dispute) {
	owner := owners(nodes, have)
	out := slices.Clone(nodes)
	var disputes []Dispute
	for i := range out {
		n := &out[i]
		taken := func(a corev1.NodeAddress) bool {
			ip, err := netfacts.ParseAddr(a.Address)
			return a.Type == corev1.NodeInternalIP && err == nil && owner[ip] != "" && owner[ip] != n.Name
		}
		if !slices.ContainsFunc(n.Status.Addresses, taken) {
			continue
		}
		kept := make([]corev1.NodeAddress, 0, len(n.Status.Addresses))
		told := 0
		for _, a := range n.Status.Addresses {
			if taken(a) {
				if told++; told <= maxDisputes {
					ip, _ := netfacts.ParseAddr(a.Address)
					disputes = append(disputes, Dispute{n.Name, a.Address, owner[ip]})
				}
				continue
			}
			kept = append(kept, a)
		}
		n.Status.Addresses = kept
	}
	slices.SortStableFunc(disputes, func(a, b Dispute) int { return cmp.Compare(a.Node, b.Node) })
	return out, disputes
}

// owners returns the node that each address is of which several could be. A kubelet says what the addresses of its node
// are, so whoever has the credentials of one can name those of a gateway: who was told to have an address keeps it for
// as long as it says so, and of those that are new together the oldest has it. Only what nodes use of their addresses
// counts, the first of each family, so that none can be had in advance.
func owners(nodes []corev1.Node, have []v1alpha1.NodeSlice) map[netip.Addr]string {
	before := map[netip.Addr]string{}
	told, _ := Join(have)
	for i := range told {
		for _, a := range used(internal(&told[i]), nil) {
			if _, taken := before[a]; !taken {
				before[a] = told[i].Name
			}
		}
	}
	sorted := make([]*corev1.Node, len(nodes))
	for i := range nodes {
		sorted[i] = &nodes[i]
	}
	slices.SortFunc(sorted, func(a, b *corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	out := make(map[netip.Addr]string, len(nodes))
	for _, n := range sorted {
		for _, a := range used(internal(n), nil) {
			if before[a] == n.Name {
				out[a] = n.Name
			}
		}
	}
	for _, n := range sorted {
		free := func(a netip.Addr) bool { return out[a] == "" || out[a] == n.Name }
		for _, a := range used(internal(n), free) {
			out[a] = n.Name
		}
	}
	return out
}

// used are the addresses that nodes use of one: the first of each family that there is, and that is free.
func used(addresses []string, free func(netip.Addr) bool) []netip.Addr {
	var out []netip.Addr
	for _, text := range addresses {
		a, err := netfacts.ParseAddr(text)
		if err != nil || free != nil && !free(a) ||
			slices.ContainsFunc(out, func(other netip.Addr) bool { return other.Is4() == a.Is4() }) {
			continue
		}
		out = append(out, a)
	}
	return out
}

// internal are the InternalIPs of a node.
func internal(n *corev1.Node) []string {
	var out []string
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			out = append(out, a.Address)
		}
	}
	return out
}
