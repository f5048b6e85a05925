// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// maxPods is the number of ready pods of one family above which a cluster's share of a ClusterSetIP service
// is its ClusterIP.
const maxPods = 100

// byAge orders the exports of one service: the oldest wins (KEP-1645, Constraints and Conflict Resolution).
func byAge(a, b accepted) int {
	return cmp.Or(a.export.CreatedAt.Compare(b.export.CreatedAt.Time), cmp.Compare(a.cluster, b.cluster))
}

// merge makes one import of the exports of one service, the oldest first. Each cluster has its backends.
func merge(exports []accepted) v1alpha1.Import {
	oldest := &exports[0].export
	out := v1alpha1.Import{
		Namespace: oldest.Namespace, Name: oldest.Name,
		Settings: oldest.Settings,
		Clusters: make([]v1alpha1.ImportCluster, 0, len(exports)),
	}
	ports, served := union(exports)
	out.Settings.Ports = ports
	out.Settings.IPFamilies = families(exports)
	for i := range exports {
		e := &exports[i].export
		c := v1alpha1.ImportCluster{
			Cluster: exports[i].cluster, CreatedAt: e.CreatedAt,
			Ports: []string{}, ClusterIPs: []string{}, Backends: []v1alpha1.Backends{},
		}
		if !equality.Semantic.DeepEqual(e.Settings, out.Settings) {
			c.Settings = &e.Settings
		}
		// A cluster whose type lost contributes nothing.
		if e.Settings.Type == out.Settings.Type {
			share(&c, e, ports, served[i])
		}
		out.Clusters = append(out.Clusters, c)
	}
	slices.SortFunc(out.Clusters, func(a, b v1alpha1.ImportCluster) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return out
}

// union returns the ports of all exports of the winning type and, for each export, the place in the union of
// each of its ports that it serves there, by the port's own name. Ports match by name, then by protocol and
// number; of two that clash, the older export's stays. A Service with several ports needs a name for each.
func union(exports []accepted) (ports []v1alpha1.ServicePort, served []map[string]int) {
	ports = []v1alpha1.ServicePort{}
	served = make([]map[string]int, len(exports))
	for i := range exports {
		s := &exports[i].export.Settings
		if s.Type != exports[0].export.Settings.Type {
			continue
		}
		served[i] = make(map[string]int, len(s.Ports))
		for _, p := range s.Ports {
			at := slices.IndexFunc(ports, func(u v1alpha1.ServicePort) bool { return p.Name != "" && u.Name == p.Name })
			if at < 0 {
				at = slices.IndexFunc(ports, func(u v1alpha1.ServicePort) bool { return sameNumber(u, p) })
			}
			if at < 0 {
				at = len(ports)
				ports = append(ports, p)
			}
			if sameNumber(ports[at], p) {
				served[i][p.Name] = at
			}
		}
	}
	if len(ports) > 1 {
		nameAll(ports)
	}
	return ports, served
}

func sameNumber(a, b v1alpha1.ServicePort) bool { return a.Protocol == b.Protocol && a.Port == b.Port }

// nameAll generates the names that are missing: "tcp-80", and "tcp-80-2" should somebody have taken that.
func nameAll(ports []v1alpha1.ServicePort) {
	for i := range ports {
		if ports[i].Name != "" {
			continue
		}
		base := fmt.Sprintf("%s-%d", strings.ToLower(string(ports[i].Protocol)), ports[i].Port)
		name := base
		for n := 2; slices.ContainsFunc(ports, func(p v1alpha1.ServicePort) bool { return p.Name == name }); n++ {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		ports[i].Name = name
	}
}

// families returns those of all exports of the winning type, in the order of the oldest.
func families(exports []accepted) []corev1.IPFamily {
	out := make([]corev1.IPFamily, 0, 2)
	for i := range exports {
		s := &exports[i].export.Settings
		for _, f := range s.IPFamilies {
			if s.Type == exports[0].export.Settings.Type && !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	return out
}

// share fills in what a cluster contributes, in terms of the merged ports.
func share(c *v1alpha1.ImportCluster, e *v1alpha1.Export, ports []v1alpha1.ServicePort, served map[string]int) {
	for _, at := range served {
		c.Ports = append(c.Ports, ports[at].Name)
	}
	slices.Sort(c.Ports)
	c.ClusterIPs = e.ClusterIPs
	for _, g := range e.Backends {
		renamed := v1alpha1.Backends{Ports: make([]v1alpha1.BackendPort, 0, len(g.Ports)), Addresses: g.Addresses}
		for _, p := range g.Ports {
			if at, ok := served[p.Name]; ok && ports[at].Protocol == p.Protocol {
				p.Name = ports[at].Name
				renamed.Ports = append(renamed.Ports, p)
			}
		}
		if len(renamed.Ports) > 0 || len(e.Settings.Ports) == 0 {
			slices.SortFunc(renamed.Ports, comparePorts)
			c.Backends = addGroup(c.Backends, renamed)
		}
	}
	if e.Settings.Type == v1alpha1.ClusterSetIP {
		c.Backends = capped(c.Backends, c.ClusterIPs, servicePorts(c.Ports, ports))
	}
	c.Backends = sortGroups(c.Backends)
}

// servicePorts returns the ports of a ClusterIP.
func servicePorts(names []string, ports []v1alpha1.ServicePort) []v1alpha1.BackendPort {
	out := make([]v1alpha1.BackendPort, 0, len(names))
	for _, p := range ports {
		if slices.Contains(names, p.Name) {
			out = append(out, v1alpha1.BackendPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
		}
	}
	slices.SortFunc(out, comparePorts)
	return out
}

// capped keeps at most maxPods backends of each family. A family with more ready ones has its ClusterIP in
// their place or, if it has none, the first of them.
func capped(groups []v1alpha1.Backends, clusterIPs []string, ports []v1alpha1.BackendPort) []v1alpha1.Backends {
	total, ready := map[bool]int{}, map[bool]int{}
	for _, g := range groups {
		for _, b := range g.Addresses {
			total[is4(b.IP)]++
			if b.Ready {
				ready[is4(b.IP)]++
			}
		}
	}
	for _, v4 := range []bool{true, false} {
		if total[v4] <= maxPods {
			continue
		}
		at := slices.IndexFunc(clusterIPs, func(ip string) bool { return is4(ip) == v4 })
		if ready[v4] <= maxPods || at < 0 {
			groups = first(groups, v4, ready[v4])
			continue
		}
		groups = addGroup(first(groups, v4, -1), v1alpha1.Backends{
			Ports: ports, Addresses: []v1alpha1.Backend{{IP: clusterIPs[at], Ready: true, Serving: true}},
		})
	}
	return groups
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
