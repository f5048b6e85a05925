// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// byAge orders the exports of one service: the oldest wins (KEP-1645, Constraints and Conflict Resolution). Of
// those that the broker saw at once, as after its own absence, the older creation counts. What is withdrawn
// decides nothing.
func byAge(a, b accepted) int {
	return cmp.Or(compareBool(a.withdrawn(), b.withdrawn()), a.age.Compare(b.age),
		a.export.CreatedAt.Compare(b.export.CreatedAt.Time), cmp.Compare(a.cluster, b.cluster))
}

// merge makes one import of the exports of one service, the oldest first. Each cluster has its backends.
func merge(exports []accepted, choice *v1alpha1.ClusterChoice, rules *rules) *v1alpha1.Import {
	oldest := &exports[0].export
	out := &v1alpha1.Import{
		Namespace: oldest.Namespace, Name: oldest.Name,
		Settings: oldest.Settings,
		Clusters: make([]v1alpha1.ImportCluster, 0, len(exports)),
	}
	// All endpoints of a headless service are used, by their own addresses.
	if oldest.Settings.Type == v1alpha1.ClusterSetIP {
		out.Choice = choice
		if rules.mode(oldest) == v1alpha1.ServiceModeClusterIP {
			out.Mode = v1alpha1.ServiceModeClusterIP
		}
	}
	ports, served := union(exports)
	out.Settings.Ports = ports
	out.Settings.IPFamilies = families(exports)
	for i := range exports {
		if exports[i].withdrawn() && !exports[i].serves {
			continue
		}
		e := &exports[i].export
		c := v1alpha1.ImportCluster{
			// as the wire carries it
			Cluster: exports[i].cluster, CreatedAt: metav1.NewTime(exports[i].age.Truncate(time.Second)),
			Ports: []string{}, ClusterIPs: []string{}, Backends: []v1alpha1.Backends{},
		}
		// A cluster whose type lost contributes nothing.
		if e.Settings.Type == out.Settings.Type {
			contribute(&c, e, ports, served[i])
			switch {
			case exports[i].byBlock:
				translated(&c, &exports[i], out)
			case e.Settings.Type == v1alpha1.ClusterSetIP:
				rules.endpoints(&c, &exports[i], out)
			default:
				c.Backends = byOwn(exports[i].withoutHosts(c.Backends))
			}
			c.Backends = sortGroups(c.Backends)
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

// mode is what an export asks for, or else the ClusterSet.
func (r *rules) mode(e *v1alpha1.Export) v1alpha1.ServiceMode {
	return cmp.Or(e.Mode, r.services.Mode, v1alpha1.ServiceModeClusterSetIP)
}

// contribute fills in a cluster's ports and backends, in terms of the merged ports.
func contribute(c *v1alpha1.ImportCluster, e *v1alpha1.Export, ports []v1alpha1.ServicePort, served map[string]int) {
	for _, at := range served {
		c.Ports = append(c.Ports, ports[at].Name)
	}
	slices.Sort(c.Ports)
	c.ClusterIPs = e.ClusterIPs
	for _, g := range e.Backends {
		// What is added to a group is not to change the export: without room to spare it is copied first.
		renamed := v1alpha1.Backends{Ports: make([]v1alpha1.BackendPort, 0, len(g.Ports)),
			Addresses: slices.Clip(g.Addresses)}
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
}
