// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestTheSizeThatPassesByAllTunnels is the least of those that are connected and lose larger packets.
func TestTheSizeThatPassesByAllTunnels(t *testing.T) {
	const up, down = v1alpha1.ConnectionConnected, v1alpha1.ConnectionError
	of := func(status v1alpha1.ConnectionStatus, mtu int32) v1alpha1.Gateway {
		g := gateway("a", 0, v1alpha1.GatewayActive, status)
		g.Status.Connections[0].MTU = mtu
		return g
	}
	type list = []v1alpha1.Gateway
	for want, all := range map[int32][]list{
		0:    {nil, {of(up, 0)}, {of(down, 1300)}, {silent(of(up, 1300))}},
		1300: {{of(up, 1300)}, {of(up, 1300), of(up, 1400)}, {of(up, 1400), of(up, 1300)}, {of(up, 1300), of(up, 0)}},
		1400: {{of(up, 1400), of(down, 1300)}, {of(up, 1400), silent(of(up, 1300))}},
	} {
		for _, gateways := range all {
			for _, c := range PeeringStatus(peeringInput(gateways...)).Connections {
				if c.Cluster == "c2" && c.MTU != want || c.Cluster != "c2" && c.MTU != 0 {
					t.Errorf("%d gateways: of %s %d, want %d", len(gateways), c.Cluster, c.MTU, want)
				}
			}
		}
	}
}
