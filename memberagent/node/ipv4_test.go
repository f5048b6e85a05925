// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestGatewaysMayDieWithoutIPv6: where nodes have IPv6 disabled, gateways are lost as on those that have it: those
// without, and those that probe them or are probed beside them.
func TestGatewaysMayDieWithoutIPv6(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		ipv4Only []string
	}{
		{"every node", []string{"gw1", "worker1", "gw2", "gw3", "gw4", "worker2"}},
		{"the nodes of a cluster", []string{"gw1", "gw4", "worker1"}},
		{"a gateway", []string{"gw4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := highlyAvailable(t, c.ipv4Only...)
			for _, m := range []*machine{n.gw1, n.gw2, n.gw3, n.gw4} {
				m.isMeasured(t)
			}
			flows := n.flows(t)
			for _, fault := range []struct {
				name       string
				do, repair func(t *testing.T)
			}{
				{"gw4 link down", func(t *testing.T) { n.gw4.run(t, "ip link set eth0 down") },
					func(t *testing.T) { n.linkUp(t, n.gw4) }},
				{"gw1 agent killed", func(t *testing.T) { n.gw1.stop(t, syscall.SIGKILL) }, n.gw1.start},
			} {
				t.Run(fault.name, func(t *testing.T) {
					s := begin(flows)
					fault.do(t)
					defer n.settled(t)
					defer fault.repair(t)
					s.lasts(t, 3*time.Second)
					s.check(t, "lost", allowed{lost: 200, outage: 2 * time.Second})
				})
			}
		})
	}
}

// isMeasured: a gateway says whether it is probed by IPv4, and that all of the other cluster's answer its probes.
func (m *machine) isMeasured(t *testing.T) {
	t.Helper()
	var s v1alpha1.GatewayStatus
	eventually(t, 20*time.Second, m.name+" has measured both gateways of the other cluster", func() bool {
		s = v1alpha1.GatewayStatus{}
		if m.read("status.json", &s) != nil || len(s.Connections) != 2 {
			return false
		}
		for _, c := range s.Connections {
			if c.Status != v1alpha1.ConnectionConnected || c.RTT == nil {
				return false
			}
		}
		return true
	})
	if s.Endpoint.IPv4Probes != m.ipv4Only {
		t.Errorf("%s: expected ipv4Probes %t in its endpoint, found %t", m.name, m.ipv4Only, s.Endpoint.IPv4Probes)
	}
}
