// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// maxPods is the number of ready pods of one family above which a cluster's share of a ClusterSetIP
	// service is its ClusterIP.
	maxPods = 100
	// fewPods is the number at or below which pods stand for themselves again: a service whose size hovers
	// around maxPods does not change back and forth.
	fewPods = 80
)

// rules are what the merge of every service follows.
type rules struct {
	services v1alpha1.ServicesSpec
	// standing are the shares that the records call large, and large those that are now: so many pods that
	// the ClusterIP stands for them.
	standing, large map[share]bool
	imports         *mergedImports
}

// place is where a service is exported.
type place struct {
	cluster string
	key     key
}

// share is what one cluster contributes to a service in one family.
type share struct {
	place place
	v4    bool
}

// standing returns the shares for which the records have the ClusterIP.
func standing(members []*member) map[share]bool {
	out := map[share]bool{}
	for _, m := range members {
		for k, s := range m.before {
			for _, f := range s.ClusterIPFamilies {
				out[share{place{m.Cluster, k}, f == corev1.IPv4Protocol}] = true
			}
		}
	}
	return out
}

// endpoints fills in what the importers of a ClusterSetIP service connect to in one cluster: its pods, or
// the ClusterIP of each family that has too many of them, is not to show them, or has some that are reached by it
// alone.
func (r *rules) endpoints(c *v1alpha1.ImportCluster, a *accepted, imported *v1alpha1.Import) {
	byName := portsByName(c, imported)
	hidden := imported.Mode == v1alpha1.ServiceModeClusterIP || r.services.Endpoints == v1alpha1.EndpointModeClusterIP
	stood := false
	behind := 0
	for _, v4 := range []bool{true, false} {
		total, ready := count(c.Backends, v4)
		limit, of := maxPods, share{place{a.cluster, a.key()}, v4}
		if r.standing[of] {
			limit = fewPods
		}
		at := slices.IndexFunc(c.ClusterIPs, func(ip string) bool { return is4(ip) == v4 })
		if at >= 0 && ready > limit {
			r.large[of] = true
		}
		byIP := hidden || slices.Contains(a.byClusterIP, v4)
		switch {
		case total == 0:
		case !byIP && total <= limit:
		case at >= 0 && (byIP || ready > limit):
			stood, behind = stood || ready > 0, max(behind, ready)
			c.Backends = replace(c.Backends, c.ClusterIPs[at], byName)
		case imported.Mode == v1alpha1.ServiceModeClusterIP:
			// DNS could not answer anything.
			c.Backends = first(c.Backends, v4, -1)
		default:
			c.Backends = first(c.Backends, v4, ready)
		}
	}
	if stood && imported.Choice != nil && imported.Choice.Failover != nil {
		n := int32(min(behind, maxPods+1))
		c.ReadyBackends = &n
	}
}

// portsByName returns the ports at which a cluster's ClusterIP serves.
func portsByName(c *v1alpha1.ImportCluster, imported *v1alpha1.Import) map[string]v1alpha1.BackendPort {
	byName := make(map[string]v1alpha1.BackendPort, len(c.Ports))
	for _, p := range imported.Settings.Ports {
		if slices.Contains(c.Ports, p.Name) {
			byName[p.Name] = v1alpha1.BackendPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port}
		}
	}
	return byName
}

// count returns how many backends of one family there are, and how many of them are ready.
func count(groups []v1alpha1.Backends, v4 bool) (total, ready int) {
	for _, g := range groups {
		for _, b := range g.Addresses {
			if is4(b.IP) != v4 {
				continue
			}
			total++
			if b.Ready {
				ready++
			}
		}
	}
	return total, ready
}

// replace puts a ClusterIP in the place of the backends of its family, on those ports that one of them that
// is ready listens on. Where none is ready, nothing is left.
func replace(groups []v1alpha1.Backends, clusterIP string, byName map[string]v1alpha1.BackendPort) []v1alpha1.Backends {
	v4 := is4(clusterIP)
	var ports []v1alpha1.BackendPort
	for _, g := range groups {
		if !slices.ContainsFunc(g.Addresses, func(b v1alpha1.Backend) bool { return b.Ready && is4(b.IP) == v4 }) {
			continue
		}
		for _, p := range g.Ports {
			if p, ok := byName[p.Name]; ok && !slices.Contains(ports, p) {
				ports = append(ports, p)
			}
		}
	}
	groups = first(groups, v4, -1)
	if len(ports) == 0 {
		return groups
	}
	slices.SortFunc(ports, comparePorts)
	return addGroup(groups, v1alpha1.Backends{
		Ports: ports, Addresses: []v1alpha1.Backend{{IP: clusterIP, Ready: true, Serving: true}},
	})
}

// first keeps the first maxPods backends of one family, all ready ones before any other, or, with ready
// below zero, none of that family.
func first(groups []v1alpha1.Backends, v4 bool, ready int) []v1alpha1.Backends {
	readyLeft, othersLeft := min(max(ready, 0), maxPods), 0
	if ready >= 0 {
		othersLeft = maxPods - readyLeft
	}
	out := make([]v1alpha1.Backends, 0, len(groups))
	for _, g := range groups {
		kept := make([]v1alpha1.Backend, 0, len(g.Addresses))
		for _, b := range g.Addresses {
			left := &othersLeft
			if b.Ready {
				left = &readyLeft
			}
			if is4(b.IP) == v4 {
				if *left == 0 {
					continue
				}
				*left--
			}
			kept = append(kept, b)
		}
		if len(kept) > 0 {
			out = append(out, v1alpha1.Backends{Ports: g.Ports, Addresses: kept})
		}
	}
	return out
}

func is4(ip string) bool {
	a, err := netip.ParseAddr(ip)
	return err == nil && a.Is4()
}
