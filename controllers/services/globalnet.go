// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
)

// Global is what a Member's status says of the cluster's global addresses.
type Global struct {
	// Block of the cluster; invalid if it has none.
	Block netip.Prefix
	// IPv6 is what it has of IPv6; invalid if there is none.
	IPv6 netip.Prefix
	// ToAll says that all others know it by its block; else those do that Overlapping names.
	ToAll       bool
	Overlapping []string
}

// byBlock says whether an importing member knows an exporting one by its block.
func (m *member) byBlock(exporter *member) bool {
	return m != exporter && (exporter.Global.ToAll || slices.Contains(exporter.Global.Overlapping, m.Cluster) ||
		slices.Contains(m.Global.Overlapping, exporter.Cluster))
}

// globalIP returns the global address of a service or a pod, if it is one of its member's block.
func (a *accepted) globalIP(text string, block netip.Prefix) string {
	if text == "" || !block.IsValid() {
		return ""
	}
	ip, err := netip.ParseAddr(text)
	if _, ok := globalnet.Number(block, ip); err != nil || !ok {
		a.foreignGlobal++
		return ""
	}
	return ip.String()
}

// external says whether a backend is a host outside the cluster that others reach by a global address of its own.
func (a *accepted) external(b v1alpha1.Backend, n *networks) bool {
	ip, ok := parseIP(b.IP)
	global, err := netip.ParseAddr(b.GlobalIP)
	if a.export.Settings.Type != v1alpha1.Headless || !ok || !ip.Is4() || n.services.Contains(ip) || err != nil ||
		!n.block.IsValid() {
		return false
	}
	if _, inBlock := globalnet.Number(n.block, global); !inBlock {
		return false
	}
	a.hostsToSome = n.toSome
	if a.hosts == nil {
		a.hosts = map[string]bool{}
	}
	a.hosts[ip.String()] = true
	return true
}

// globalPods leaves the pods behind a headless service those of their global addresses that can be, and counts those
// without. A pod has one address for each of its own, whichever ports it is listed with.
func (a *accepted) globalPods(n *networks) {
	headless := a.export.Settings.Type == v1alpha1.Headless
	of := map[string]string{}
	pods := map[string]bool{}
	for i := range a.export.Backends {
		for j := range a.export.Backends[i].Addresses {
			b := &a.export.Backends[i].Addresses[j]
			block := n.blockIPv6
			if is4(b.IP) {
				block = n.block
			}
			switch {
			case !headless || !block.IsValid():
				b.GlobalIP = ""
				continue
			case b.GlobalIP != "":
				b.GlobalIP = a.globalIP(b.GlobalIP, block)
			}
			if had, ok := of[b.IP]; ok && b.GlobalIP != "" && had != b.GlobalIP {
				b.GlobalIP = ""
				a.sharedGlobal++
			}
			if b.GlobalIP != "" {
				of[b.IP] = b.GlobalIP
			}
			pods[b.IP] = true
		}
	}
	if headless && n.block.IsValid() {
		a.withoutGlobal = len(pods) - len(of)
		a.onlyIPv6 = len(pods) == 0 && len(a.export.Backends) > 0
	}
}

// ownGlobals leaves each global address to the oldest export that has it, and there to one pod. The exports are those
// of one member, the oldest first.
func ownGlobals(exports []accepted) {
	type owner struct {
		key key
		pod string
	}
	owners := map[string]owner{}
	own := func(address string, by owner) bool {
		if _, taken := owners[address]; !taken {
			owners[address] = by
		}
		return owners[address] == by
	}
	for i := range exports {
		a := &exports[i]
		for _, ip := range []*string{&a.export.GlobalIP, &a.export.GlobalIPv6} {
			if *ip != "" && !own(*ip, owner{a.key(), ""}) {
				*ip = ""
				a.sharedGlobal++
			}
		}
		for _, g := range a.export.Backends {
			for j := range g.Addresses {
				b := &g.Addresses[j]
				if b.GlobalIP != "" && !own(b.GlobalIP, owner{a.key(), b.IP}) {
					b.GlobalIP = ""
					a.sharedGlobal++
					a.withoutGlobal++
				}
			}
		}
	}
}

// translated puts a service's global addresses in the place of everything that importers cannot reach who know the
// cluster by its block. The pods of a headless service have addresses of their own.
func translated(c *v1alpha1.ImportCluster, a *accepted, imported *v1alpha1.Import) {
	if imported.Settings.Type == v1alpha1.Headless {
		c.ClusterIPs, c.Backends = []string{}, byGlobal(c.Backends)
		return
	}
	behind := 0
	byName := portsByName(c, imported)
	c.ClusterIPs = []string{}
	for _, f := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		v4, ip := f == corev1.IPv4Protocol, a.export.GlobalIPv6
		if v4 {
			ip = a.export.GlobalIP
		}
		if ip == "" || !slices.Contains(a.export.Settings.IPFamilies, f) {
			c.Backends = first(c.Backends, v4, -1)
			continue
		}
		_, ready := count(c.Backends, v4)
		behind = max(behind, ready)
		c.ClusterIPs = append(c.ClusterIPs, ip)
		c.Backends = replace(c.Backends, ip, byName)
	}
	if behind > 0 && imported.Choice != nil && imported.Choice.Failover != nil {
		n := int32(min(behind, maxPods+1))
		c.ReadyBackends = &n
	}
}

// byGlobal returns the backends that have a global address, by it.
func byGlobal(groups []v1alpha1.Backends) []v1alpha1.Backends {
	out := []v1alpha1.Backends{}
	for _, g := range groups {
		kept := make([]v1alpha1.Backend, 0, len(g.Addresses))
		for _, b := range g.Addresses {
			if b.GlobalIP != "" {
				b.IP, b.GlobalIP = b.GlobalIP, ""
				kept = append(kept, b)
			}
		}
		if len(kept) > 0 {
			out = append(out, v1alpha1.Backends{Ports: g.Ports, Addresses: kept})
		}
	}
	return out
}

// withoutHosts returns the backends without hosts outside the cluster, which nobody routes to it by their own
// addresses.
func (a *accepted) withoutHosts(groups []v1alpha1.Backends) []v1alpha1.Backends {
	if len(a.hosts) == 0 {
		return groups
	}
	out := []v1alpha1.Backends{}
	for _, g := range groups {
		g.Addresses = slices.DeleteFunc(slices.Clone(g.Addresses),
			func(b v1alpha1.Backend) bool { return a.hosts[b.IP] })
		if len(g.Addresses) > 0 {
			out = append(out, g)
		}
	}
	return out
}

// byOwn returns the backends by their own addresses alone.
func byOwn(groups []v1alpha1.Backends) []v1alpha1.Backends {
	for i := range groups {
		g := &groups[i]
		if !slices.ContainsFunc(g.Addresses, func(b v1alpha1.Backend) bool { return b.GlobalIP != "" }) {
			continue
		}
		g.Addresses = slices.Clone(g.Addresses)
		for j := range g.Addresses {
			g.Addresses[j].GlobalIP = ""
		}
	}
	return groups
}
