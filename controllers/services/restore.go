// SPDX-License-Identifier: Apache-2.0

package services

import (
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// place is where a service is exported.
type place struct {
	cluster string
	key     key
}

// restore returns the exports of every member that is not known, as the Bundles last written tell them. The
// cluster's own Bundle comes last: the backends are not in it. hollow are the exports that no other tells of.
func restore(members []*member) (exports map[string][]v1alpha1.Export, hollow map[place]bool) {
	unknown := make(map[string]bool, len(members))
	for _, m := range members {
		if !m.Known {
			unknown[m.Cluster] = true
		}
	}
	exports = make(map[string][]v1alpha1.Export, len(unknown))
	hollow = map[place]bool{}
	found := map[place]bool{}
	for _, own := range []bool{false, true} {
		for _, m := range members {
			if m.Last == nil || len(unknown) == 0 {
				continue
			}
			for i := range m.Last.Imports {
				imported := &m.Last.Imports[i]
				for j := range imported.Clusters {
					c := &imported.Clusters[j]
					at := place{c.Cluster, key{imported.Namespace, imported.Name}}
					if unknown[c.Cluster] && (c.Cluster == m.Cluster) == own && !found[at] {
						found[at], hollow[at] = true, own
						exports[c.Cluster] = append(exports[c.Cluster], export(imported, c))
					}
				}
			}
		}
	}
	return exports, hollow
}

// export returns what a cluster exported, its backends' ports by the names that they have there.
func export(imported *v1alpha1.Import, c *v1alpha1.ImportCluster) v1alpha1.Export {
	out := v1alpha1.Export{
		Namespace: imported.Namespace, Name: imported.Name,
		CreatedAt: c.CreatedAt, Settings: imported.Settings, ClusterIPs: c.ClusterIPs,
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
