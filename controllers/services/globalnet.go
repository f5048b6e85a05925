// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
)

// Global is what a Member's status says of the cluster's global addresses.
type Global struct {
	// Block of the cluster; invalid if it has none.
	Block netip.Prefix
	// ToAll says that all others know it by its block; else those do that Overlapping names.
	ToAll       bool
	Overlapping []string
}

// byBlock says whether an importing member knows an exporting one by its block.
func (m *member) byBlock(exporter *member) bool {
	return m != exporter && (exporter.Global.ToAll || slices.Contains(exporter.Global.Overlapping, m.Cluster) ||
		slices.Contains(m.Global.Overlapping, exporter.Cluster))
}

// globalIP returns a service's global address, if it is one of its member's block.
func (a *accepted) globalIP(text string, block netip.Prefix) string {
	if text == "" || !block.IsValid() {
		return ""
	}
	ip, err := netip.ParseAddr(text)
	if _, ok := globalnet.Number(block, ip); err != nil || !ok {
		a.foreignGlobal = true
		return ""
	}
	return ip.String()
}

// translated puts a service's global address in the place of everything that importers cannot reach who know the
// cluster by its block. What a headless service lists are pods, of which none is reached so.
func translated(c *v1alpha1.ImportCluster, a *accepted, imported *v1alpha1.Import) {
	_, behind := count(c.Backends, true)
	byName := portsByName(c, imported)
	backends := first(c.Backends, false, -1)
	c.ClusterIPs, c.Backends = []string{}, []v1alpha1.Backends{}
	if a.export.GlobalIP == "" || imported.Settings.Type != v1alpha1.ClusterSetIP {
		return
	}
	c.ClusterIPs = append(c.ClusterIPs, a.export.GlobalIP)
	c.Backends = replace(backends, a.export.GlobalIP, byName)
	if behind > 0 && imported.Choice != nil && imported.Choice.Failover != nil {
		n := int32(min(behind, maxPods+1))
		c.ReadyBackends = &n
	}
}
