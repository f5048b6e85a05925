// SPDX-License-Identifier: Apache-2.0

package services

import (
	"slices"

	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// place is where a service is exported.
type place struct {
	cluster string
	key     key
}

// remembered is what the Bundles last written tell of the members that are not known.
type remembered struct {
	// exports by cluster.
	exports map[string][]v1alpha1.Export
	// hollow are the exports of which only the cluster's own Bundle tells, without the backends.
	hollow map[place]bool
	// ready is the number of backends behind a ClusterIP that stands for them, where that is told.
	ready map[place]*int32
}

// recall completes the exports of a member that were restored and accepted.
func (r *remembered) recall(m *member) {
	for i := range m.exports {
		a := &m.exports[i]
		at := place{a.cluster, a.key()}
		a.hollow, a.ready = r.hollow[at], r.ready[at]
		a.wasFull = m.told(v1alpha1.ExportCondition{
			Namespace: at.key.namespace, Name: at.key.name, Type: string(mcs.ServiceExportConditionReady),
		}).Reason == ReasonBundleFull
	}
}

// tale is what one Bundle tells of one cluster's export.
type tale struct {
	imported *v1alpha1.Import
	cluster  *v1alpha1.ImportCluster
}

// same says that two tales make the same export.
func (t tale) same(o tale) bool {
	return slices.Equal(t.cluster.Ports, o.cluster.Ports) && slices.Equal(t.cluster.ClusterIPs, o.cluster.ClusterIPs) &&
		slices.EqualFunc(t.cluster.Backends, o.cluster.Backends, func(a, b v1alpha1.Backends) bool {
			return slices.Equal(a.Ports, b.Ports) && slices.Equal(a.Addresses, b.Addresses)
		})
}

// restore reads the Bundles last written. The cluster's own tells only where no other does: the backends are
// not in it. Members that see different exports of a service have different parts of each.
func restore(members []*member) remembered {
	unknown := make(map[string]bool, len(members))
	for _, m := range members {
		if !m.Known {
			unknown[m.Cluster] = true
		}
	}
	out := remembered{exports: map[string][]v1alpha1.Export{}, hollow: map[place]bool{}, ready: map[place]*int32{}}
	if len(unknown) == 0 {
		return out
	}
	others, own := map[place][]tale{}, map[place][]tale{}
	for _, m := range members {
		if m.Last == nil {
			continue
		}
		for i := range m.Last.Imports {
			imported := &m.Last.Imports[i]
			for j := range imported.Clusters {
				c := &imported.Clusters[j]
				at, t := place{c.Cluster, key{imported.Namespace, imported.Name}}, tale{imported, c}
				switch {
				case !unknown[c.Cluster]:
				case c.Cluster == m.Cluster:
					own[at] = []tale{t}
				case !slices.ContainsFunc(others[at], t.same):
					others[at] = append(others[at], t)
				}
			}
		}
	}
	for at, tales := range own {
		out.hollow[at] = others[at] == nil
		others[at] = append(others[at], tales...)
	}
	for at, tales := range others {
		out.add(at, tales)
	}
	return out
}

// add makes an export of all that is told of it.
func (r *remembered) add(at place, tales []tale) {
	e := export(tales[0].imported, tales[0].cluster)
	if len(tales) > 1 {
		all := make([]v1alpha1.Backends, 0, len(tales))
		for _, t := range tales {
			all = append(all, export(t.imported, t.cluster).Backends...)
			// Where the cluster's type lost, it has none.
			if len(e.ClusterIPs) == 0 {
				e.ClusterIPs = t.cluster.ClusterIPs
			}
		}
		e.Backends = together(all, e.ClusterIPs)
	}
	for _, t := range tales {
		if t.cluster.ReadyBackends != nil {
			r.ready[at] = t.cluster.ReadyBackends
			break
		}
	}
	r.exports[at.cluster] = append(r.exports[at.cluster], e)
}

// together gives every address all the ports that some group has for it. The ClusterIP stands for pods that
// are not told of: it keeps those ports that no pod of its family has.
func together(groups []v1alpha1.Backends, clusterIPs []string) []v1alpha1.Backends {
	ports, backends := map[string][]v1alpha1.BackendPort{}, map[string]v1alpha1.Backend{}
	podPorts := map[bool][]string{}
	for _, g := range groups {
		for _, b := range g.Addresses {
			if _, ok := backends[b.IP]; !ok {
				backends[b.IP] = b
			}
			for _, p := range g.Ports {
				if !slices.Contains(ports[b.IP], p) {
					ports[b.IP] = append(ports[b.IP], p)
				}
				if !slices.Contains(clusterIPs, b.IP) {
					podPorts[is4(b.IP)] = append(podPorts[is4(b.IP)], p.Name)
				}
			}
		}
	}
	var out []v1alpha1.Backends
	for ip, b := range backends {
		mine := ports[ip]
		if slices.Contains(clusterIPs, ip) {
			mine = slices.DeleteFunc(mine, func(p v1alpha1.BackendPort) bool { return slices.Contains(podPorts[is4(ip)], p.Name) })
			if len(mine) == 0 {
				continue
			}
		}
		slices.SortFunc(mine, comparePorts)
		out = addGroup(out, v1alpha1.Backends{Ports: mine, Addresses: []v1alpha1.Backend{b}})
	}
	return sortGroups(out)
}

// export returns what a cluster exported, its backends' ports by the names that they have there.
func export(imported *v1alpha1.Import, c *v1alpha1.ImportCluster) v1alpha1.Export {
	out := v1alpha1.Export{
		Namespace: imported.Namespace, Name: imported.Name,
		CreatedAt: c.CreatedAt, Settings: imported.Settings, ClusterIPs: c.ClusterIPs,
		Mode: c.Mode, Scope: c.Scope,
	}
	if c.Settings != nil {
		out.Settings = *c.Settings
	}
	own := make(map[string]string, len(c.Ports))
	for _, p := range imported.Settings.Ports {
		at := slices.IndexFunc(out.Settings.Ports, func(o v1alpha1.ServicePort) bool { return sameNumber(o, p) })
		if at >= 0 {
			own[p.Name] = out.Settings.Ports[at].Name
		}
	}
	for _, g := range c.Backends {
		renamed := v1alpha1.Backends{Addresses: g.Addresses}
		for _, p := range g.Ports {
			if name, ok := own[p.Name]; ok {
				p.Name = name
				renamed.Ports = append(renamed.Ports, p)
			}
		}
		out.Backends = append(out.Backends, renamed)
	}
	return out
}
