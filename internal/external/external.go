// SPDX-License-Identifier: Apache-2.0

// Package external decides which hosts outside all clusters one cluster may export. The cluster agent gives such hosts
// global addresses, and every gateway, independently, sends to no others: this is the one rule of both. It is pure.
package external

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// field is where it is stated which hosts may be exported.
const field = "spec.clusters[].externalCIDRs of the ClusterSet"

// Parse parses a network of hosts outside all clusters, in CIDR notation. The error is a *netfacts.Error.
func Parse(text string) (netip.Prefix, error) {
	p, err := netfacts.ParsePrefix(text)
	if err == nil && !p.Addr().Is4() {
		return netip.Prefix{}, &netfacts.Error{Reason: netfacts.ReasonInvalidCIDR,
			Message: fmt.Sprintf("%s is of IPv6, and hosts outside are reached by IPv4 alone", p)}
	}
	return p, err
}

// Name is what a host outside has in the ledger of global addresses in the place of a pod's name: its address.
func Name(ip netip.Addr) string { return ip.Unmap().String() }

// HostOf returns the host outside that has a global address, and false of a pod. Who is gone has a name alone.
func HostOf(p v1alpha1.GlobalPod) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(p.Name)
	return ip, err == nil && Name(ip) == p.Name && (p.IP == p.Name || p.IP == "" && p.IPv6 == "")
}

// Hosts are those that a cluster may export. The zero value has none.
type Hosts struct {
	cluster string
	// stated are the networks that the ClusterSet allows, and allowed what of them is nobody's.
	stated, allowed *netipx.IPSet
	own             *netipx.IPSet
	// block says that the cluster has a block of global addresses.
	block bool
	// nodes are who has the addresses of nodes, and apiServers those of the cluster's API server.
	nodes      map[netip.Addr]string
	apiServers []netip.Addr
}

// For returns the hosts that a cluster may export by its Peering, but none of its nodes or of its API servers, and
// what is wrong with the Peering's networks of them.
func For(p *v1alpha1.PeeringSpec, nodes []corev1.Node, apiServers []netip.Addr) (Hosts, []error) {
	var errs []error
	var stated, own, others netipx.IPSetBuilder
	for _, text := range p.ExternalCIDRs {
		if prefix, err := Parse(text); err != nil {
			errs = append(errs, err)
		} else {
			stated.AddPrefix(prefix)
		}
	}
	add := func(b *netipx.IPSetBuilder, texts ...string) {
		for _, text := range texts {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				b.AddPrefix(prefix.Masked())
			}
		}
	}
	add(&own, slices.Concat(p.Networks.PodCIDRs, p.Networks.ServiceCIDRs)...)
	for i := range nodes {
		add(&own, append(slices.Clone(nodes[i].Spec.PodCIDRs), nodes[i].Spec.PodCIDR)...)
	}
	_, err := netfacts.ParseGlobal(p.GlobalCIDR)
	add(&others, p.GlobalCIDR)
	for _, r := range p.RemoteClusters {
		add(&others, append(slices.Concat(r.Networks.PodCIDRs, r.Networks.ServiceCIDRs), r.GlobalCIDR)...)
	}
	h := Hosts{cluster: p.ClusterID, block: err == nil, stated: set(&stated), own: set(&own),
		nodes: map[netip.Addr]string{}, apiServers: apiServers}
	stated.AddSet(h.stated)
	stated.RemoveSet(h.own)
	stated.RemoveSet(set(&others))
	h.allowed = set(&stated)
	for i := range nodes {
		for _, a := range nodes[i].Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				h.nodes[ip.Unmap()] = nodes[i].Name
			}
		}
	}
	return h, errs
}

// set returns what a builder has: only a prefix that is not valid makes an error, and none was added.
func set(b *netipx.IPSetBuilder) *netipx.IPSet {
	s, err := b.IPSet()
	if err != nil {
		return new(netipx.IPSet)
	}
	return s
}

// Ranges are the networks that hold all hosts that may be exported, sorted. Some addresses in them are of nodes.
func (h Hosts) Ranges() []netip.Prefix {
	if h.allowed == nil {
		return nil
	}
	return h.allowed.Prefixes()
}

// Outside says whether an address is neither of the cluster's pods or services nor of its nodes.
func (h Hosts) Outside(ip netip.Addr) bool {
	_, node := h.nodes[ip.Unmap()]
	return h.own != nil && !h.own.Contains(ip.Unmap()) && !node
}

// Check says why an address is not of a host that may be exported.
func (h Hosts) Check(ip netip.Addr) error {
	ip = ip.Unmap()
	if h.own == nil {
		return fmt.Errorf("%s is of a cluster that is not accepted yet", ip)
	}
	_, err := netfacts.ParseAddr(ip.String())
	node, ofNode := h.nodes[ip]
	switch {
	case err != nil || !ip.Is4():
		return fmt.Errorf("%s is no IPv4 address that a host can be reached by", ip)
	case h.own.Contains(ip):
		return fmt.Errorf("%s is in the networks of the cluster's own pods and services", ip)
	case ofNode:
		return fmt.Errorf("%s is an address of node %s: no host outside the cluster", ip, clip.Quote(node))
	case !h.stated.Contains(ip):
		return fmt.Errorf("%s is outside the cluster, and not in %s for %s, where the admin of Karmada may add it", ip, field,
			clip.Quote(h.cluster))
	case slices.Contains(h.apiServers, ip):
		return fmt.Errorf("%s is an address of the cluster's API server", ip)
	case !h.allowed.Contains(ip):
		return fmt.Errorf("%s is in a network of another cluster, or in a block of global addresses", ip)
	case !h.block:
		return fmt.Errorf("%s is outside the cluster, and exported by a global address alone: the cluster has no block of "+
			"these, see spec.clusters[].globalnet of the ClusterSet", ip)
	}
	return nil
}
