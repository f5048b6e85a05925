// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"testing"

	"github.com/sealane-io/sealane/e2e/suite"
)

// TestAPodReachesPodsAndServicesOfAnotherCluster walks every way a packet can take, in both directions between
// the clusters, from pods and from the host network.
func TestAPodReachesPodsAndServicesOfAnotherCluster(t *testing.T) { everyWay(t) }

// everyWay checks all ways that a packet can take between pods and nodes of c1 and c2: to pods and services, by TCP,
// UDP and ICMP, small, large and in fragments.
func everyWay(t *testing.T) {
	t.Helper()
	for from, to := range map[string]string{"c1": "c2", "c2": "c1"} {
		suite.Ways(t, from, to, func(t *testing.T, client, server string) {
			suite.CheckFromPod(t, from, client, to, server)
			suite.CheckFromHost(t, from, client, to, server)
			for _, kind := range []string{"client-", "host-"} {
				suite.CheckSizes(t, from, kind+client, to, server)
			}
		})
	}
}
