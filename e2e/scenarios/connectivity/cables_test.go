// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/suite"
)

// reachBy sets spec.cables of the ClusterSet, and waits until the gateways of c1 and c2 say that they send to each
// other by a cable.
func reachBy(t *testing.T, cables, want string) {
	t.Helper()
	suite.SetClusterSet(t, `{"cables":`+cables+`}`)
	for cluster, remote := range map[string]string{"c1": "c2", "c2": "c1"} {
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			got, err := suite.TryKubectl(ctx, "--context", cluster, "get", "gateways", "-o",
				`jsonpath={range .items[*].status.connections[?(@.cluster=="`+remote+`")]}{.cable} {.active} {.status}{end}`)
			if expected := want + " true Connected"; err == nil && got != expected {
				err = fmt.Errorf("%s to %s: expected %q, found %q", cluster, remote, expected, got)
			}
			return err
		})
	}
}

// TestAPairByVXLANAndBack: an administrator has two clusters reach each other without encryption, and with it again,
// while a connection between them goes on. Every way that a packet can take works by VXLAN, too.
func TestAPairByVXLANAndBack(t *testing.T) {
	const pair = `[{"clusters":[{"clusterNames":["c1"]},{"clusterNames":["c2"]}],"driver":"vxlan","unencrypted":true}]`
	suite.SetClusterSetAfter(t, `{"cables":null}`)
	suite.ConnectionSurvives(t, time.Second, suite.Undisturbed, func() { reachBy(t, pair, "vxlan") })
	suite.Contains(t, suite.Plugin(t, "show", "connections", "-C", "c1"), "NOT ENCRYPTED, by vxlan")
	everyWay(t)
	suite.ConnectionSurvives(t, time.Second, suite.Undisturbed, func() { reachBy(t, "null", "wireguard") })
}

// TestAPairByIPsecAndBack: an administrator has two clusters reach each other by IPsec, and by WireGuard again, while a
// connection between them goes on. Every way that a packet can take works by it.
func TestAPairByIPsecAndBack(t *testing.T) {
	const pair = `[{"clusters":[{"clusterNames":["c1"]},{"clusterNames":["c2"]}],"driver":"ipsec"}]`
	suite.SetClusterSetAfter(t, `{"cables":null}`)
	suite.ConnectionSurvives(t, time.Second, suite.Undisturbed, func() { reachBy(t, pair, "ipsec") })
	suite.Contains(t, suite.Plugin(t, "show", "connections", "-C", "c1"), "by ipsec")
	everyWay(t)
	suite.ConnectionSurvives(t, time.Second, suite.Undisturbed, func() { reachBy(t, "null", "wireguard") })
}

// everyWay checks all ways that a packet can take between pods and nodes of c1 and c2, small and large.
func everyWay(t *testing.T) {
	t.Helper()
	for from, to := range map[string]string{"c1": "c2", "c2": "c1"} {
		suite.Ways(t, from, to, func(t *testing.T, client, server string) {
			suite.CheckFromPod(t, from, client, to, server)
			suite.CheckFromHost(t, from, client, to, server)
			suite.CheckLarge(t, from, "client-"+client, suite.PodIP(t, to, "server-"+server))
		})
	}
}
