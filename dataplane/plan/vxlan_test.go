// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// TestACableByVXLANThatLeaves is one that packets come by and none go by, and it gives way to one that has its address.
func TestACableByVXLANThatLeaves(t *testing.T) {
	eachCase(t, func(path string, _ *txtar.Archive, top topology.Topology, nodes []plan.NodeFacts) {
		if !strings.HasSuffix(path, "/vxlan.txtar") {
			return
		}
		const remote = 0 // c2
		n := nodes[0]
		leaving := top.WithVXLAN(n.Name, nil).Remotes[remote].Gateways
		leaving = leaving[len(leaving)-1:]
		top.Remotes[remote].VXLAN = false
		top.Remotes[remote].Gateways[0].VTEPs = nil
		for _, c := range []struct {
			name, address string
			want          bool
		}{{"as it was", leaving[0].VTEP.String(), true}, {"taken by c4", "172.31.4.2", false}} {
			t.Run(c.name, func(t *testing.T) {
				leaving[0].VTEP = netip.MustParseAddr(c.address)
				p := plan.For(top.WithVXLAN(n.Name, map[string][]topology.Gateway{"c2": leaving}), n)
				found := false
				for _, tunnel := range p.VXLAN {
					for _, peer := range tunnel.Peers {
						found = found || peer.Cluster == "c2"
					}
				}
				if found != c.want {
					t.Errorf("packets from c2 by VXLAN are taken: %t, want %t", found, c.want)
				}
				if slots := p.Active.Remotes["c2"]; len(slots) != 2 || slots[0] != 0 || slots[1] != 1 {
					t.Errorf("packets go to c2 by slots %v, want the usual cables", slots)
				}
				for _, table := range p.Tables {
					load(t, table.String())
				}
			})
		}
	})
}
