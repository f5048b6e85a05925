// SPDX-License-Identifier: Apache-2.0

package nodenetworks

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
	"github.com/sealane-io/sealane/memberagent/cluster/discovery"
	"github.com/sealane-io/sealane/memberagent/cluster/pods"
)

// input is all that decides.
type input struct {
	nodes []corev1.Node
	// ranges are those that CNI plugins give to the pods of one node, by its name.
	ranges map[string][]netip.Prefix
	pods   []corev1.Pod
	// networks are those of the cluster's pods that other clusters route to it.
	networks []netip.Prefix
}

// decide returns by the names of nodes what their spec.podCIDRs does not say. What a plugin says of ranges makes it
// short; the pods make it right: each that is elsewhere than the ranges say has a route of its own.
func decide(in input) map[string]v1alpha1.NodeNetworkSpec {
	d := decision{where: &bart.Table[string]{}, beyond: map[string][]netip.Prefix{}}
	names := make([]string, 0, len(in.nodes))
	for i := range in.nodes {
		names = append(names, in.nodes[i].Name)
	}
	slices.Sort(names)
	var allowed netipx.IPSetBuilder
	for _, p := range in.networks {
		allowed.AddPrefix(p)
	}
	for _, cidr := range discovery.Prefixes(discovery.NodeCIDRs(in.nodes)) {
		allowed.RemovePrefix(cidr)
	}
	networks, err := allowed.IPSet()
	if err != nil { // of a prefix that is not valid, of which there is none
		return nil
	}
	d.stated(in.nodes)
	d.ranges(names, in.ranges, networks)
	d.pods(names, in.pods, networks)
	out := make(map[string]v1alpha1.NodeNetworkSpec, len(d.beyond))
	for name, prefixes := range d.beyond {
		out[name] = spec(prefixes)
	}
	return out
}

// decision is which node has what so far.
type decision struct {
	where *bart.Table[string]
	// beyond is what of it no spec.podCIDRs says, by node.
	beyond map[string][]netip.Prefix
}

// stated takes spec.podCIDRs, which overlap nowhere; else what the first node by name has.
func (d *decision) stated(nodes []corev1.Node) {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for i := range nodes {
		for _, p := range discovery.PodCIDRs(nodes[i : i+1]) {
			if !d.where.OverlapsPrefix(p) {
				d.where.Insert(p, nodes[i].Name)
			}
		}
	}
}

// ranges takes what plugins say, the wider before the narrower: what a wider one says already is left out. What two
// nodes have is nobody's.
func (d *decision) ranges(names []string, ranges map[string][]netip.Prefix, networks *netipx.IPSet) {
	owners := map[netip.Prefix]string{}
	twice := map[netip.Prefix]bool{}
	for _, name := range names {
		var b netipx.IPSetBuilder
		for _, p := range ranges[name] {
			b.AddPrefix(p)
		}
		b.Intersect(networks)
		set, err := b.IPSet()
		if err != nil {
			continue
		}
		for _, p := range set.Prefixes() {
			if _, has := owners[p]; has {
				twice[p] = true
			}
			owners[p] = name
		}
	}
	all := make([]netip.Prefix, 0, len(owners))
	for p := range owners {
		if !twice[p] {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, widest)
	for _, p := range all {
		if at, ok := d.where.LookupPrefix(p); ok && at == owners[p] {
			continue
		}
		d.where.Insert(p, owners[p])
		d.beyond[owners[p]] = append(d.beyond[owners[p]], p)
	}
}

// widest sorts the wider before the narrower.
func widest(a, b netip.Prefix) int {
	return cmp.Or(cmp.Compare(a.Bits(), b.Bits()), netfacts.Compare(a, b))
}

// pods takes the addresses of those that are not where the ranges say. Of two pods with one address, that on the node
// of the range has it, since a node must not take what is another's by telling of a pod; else the first by
// pods.Compare.
func (d *decision) pods(names []string, all []corev1.Pod, networks *netipx.IPSet) {
	order := make([]*corev1.Pod, len(all))
	for i := range all {
		order[i] = &all[i]
	}
	slices.SortFunc(order, pods.Compare)
	inPlace, claimed := map[netip.Addr]bool{}, map[netip.Addr]string{}
	for _, p := range order {
		name := p.Spec.NodeName
		if _, known := slices.BinarySearch(names, name); !known {
			continue
		}
		for _, ip := range pods.Addresses(p) {
			if !networks.Contains(ip) {
				continue
			}
			if at, ok := d.where.Lookup(ip); ok && at == name {
				inPlace[ip] = true
			} else if _, taken := claimed[ip]; !taken {
				claimed[ip] = name
			}
		}
	}
	elsewhere := map[string]*netipx.IPSetBuilder{}
	for ip, name := range claimed {
		if inPlace[ip] {
			continue
		}
		if elsewhere[name] == nil {
			elsewhere[name] = &netipx.IPSetBuilder{}
		}
		elsewhere[name].Add(ip)
	}
	for name, b := range elsewhere {
		if set, err := b.IPSet(); err == nil {
			d.beyond[name] = append(d.beyond[name], set.Prefixes()...)
		}
	}
}

// spec has as many prefixes as there is room for, the widest.
func spec(prefixes []netip.Prefix) v1alpha1.NodeNetworkSpec {
	var s v1alpha1.NodeNetworkSpec
	if len(prefixes) > v1alpha1.MaxNodePodCIDRs {
		slices.SortFunc(prefixes, widest)
		s.LeftOut = int32(len(prefixes) - v1alpha1.MaxNodePodCIDRs)
		prefixes = prefixes[:v1alpha1.MaxNodePodCIDRs]
	}
	slices.SortFunc(prefixes, netfacts.Compare)
	for _, p := range prefixes {
		s.PodCIDRs = append(s.PodCIDRs, p.String())
	}
	return s
}
