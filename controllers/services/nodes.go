// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// onNodes judges the backends that have their node's address, as pods of the host network do, family by family. Nodes
// are not routed between clusters: importers reach such a backend by the ClusterIP, which the exporting cluster's
// kube-proxy translates on its gateway. Where that leads to all backends of the family it stands for them, see
// accepted.byClusterIP; otherwise those with their node's address are left out.
func (a *accepted) onNodes(n *networks) {
	for _, v4 := range []bool{true, false} {
		if !a.has(v4, n.nodes.Contains) {
			continue
		}
		why := a.noClusterIP(v4)
		if why == "" {
			a.byClusterIP = append(a.byClusterIP, v4)
			continue
		}
		a.leaveOutNodes(v4, n)
		a.whyNotRouted = cmp.Or(a.whyNotRouted, why)
	}
}

// noClusterIP says why the ClusterIP of a family cannot stand for all its backends, and what to do; "" if it can.
func (a *accepted) noClusterIP(v4 bool) string {
	s := &a.export.Settings
	family := corev1.IPv6Protocol
	if v4 {
		family = corev1.IPv4Protocol
	}
	switch {
	case s.Type == v1alpha1.Headless:
		return "no other cluster reaches those of a headless Service: do not use hostNetwork, or export a Service with a " +
			"ClusterIP"
	case !slices.ContainsFunc(a.export.ClusterIPs, func(ip string) bool { return is4(ip) == v4 }):
		return "other clusters reach those by the ClusterIP alone, and the Service has none of " + string(family) +
			" in the accepted service CIDRs: complete these in the ClusterSet, spec.clusters, or do not use hostNetwork"
	case ptr.Deref(s.InternalTrafficPolicy, "") == corev1.ServiceInternalTrafficPolicyLocal:
		return "other clusters reach those by the ClusterIP alone, and with internalTrafficPolicy Local that leads to no " +
			"other node: make it Cluster, or do not use hostNetwork"
	case slices.Contains(a.outsideFamilies, v4):
		return "other clusters reach those by the ClusterIP alone, which leads also to the backends outside the pod CIDRs: " +
			"take these into a Service of their own, or do not use hostNetwork"
	}
	return ""
}

// has says whether a backend of a family has such an address.
func (a *accepted) has(v4 bool, is func(netip.Addr) bool) bool {
	return slices.ContainsFunc(a.export.Backends, func(g v1alpha1.Backends) bool {
		return slices.ContainsFunc(g.Addresses, func(b v1alpha1.Backend) bool {
			ip, ok := parseIP(b.IP)
			return ok && ip.Is4() == v4 && is(ip)
		})
	})
}

func (a *accepted) leaveOutNodes(v4 bool, n *networks) {
	for i := range a.export.Backends {
		g := &a.export.Backends[i]
		g.Addresses = slices.DeleteFunc(g.Addresses, func(b v1alpha1.Backend) bool {
			ip, ok := parseIP(b.IP)
			if !ok || ip.Is4() != v4 || !n.nodes.Contains(ip) {
				return false
			}
			a.notRouted++
			return true
		})
	}
	a.export.Backends = slices.DeleteFunc(a.export.Backends,
		func(g v1alpha1.Backends) bool { return len(g.Addresses) == 0 })
	if len(a.export.Backends) == 0 {
		a.export.Backends = nil
	}
}

// unreachable says that an export has backends, none of which other clusters can reach.
func (a *accepted) unreachable() bool {
	return a.notRouted+a.outside > 0 && len(a.export.Backends) == 0
}
