// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"testing"

	"github.com/sealane-io/sealane/e2e/suite"
)

// ways are the pairs of nodes between which traffic takes different paths.
var ways = []struct{ name, client, server string }{
	{"worker to worker", "c1-worker", "c2-worker"},
	{"worker to gateway", "c1-worker", "c2-gw"},
	{"gateway to worker", "c1-gw", "c2-worker"},
	{"gateway to gateway", "c1-gw", "c2-gw"},
}

// TestAPodReachesPodsAndServicesOfAnotherCluster walks every way a packet can take, in both directions between
// the clusters, from pods and from the host network.
func TestAPodReachesPodsAndServicesOfAnotherCluster(t *testing.T) {
	for _, direction := range []struct{ from, to string }{{"c1", "c2"}, {"c2", "c1"}} {
		for _, way := range ways {
			client, server := direction.from+way.client[2:], direction.to+way.server[2:]
			t.Run(direction.from+" to "+direction.to+", "+way.name, func(t *testing.T) {
				pod, service := suite.PodIP(t, direction.to, "server-"+server), suite.ClusterIP(t, direction.to, "server-"+server)
				suite.CheckHTTP(t, direction.from, "client-"+client, pod+":8080", "server-"+server, suite.PodIP(t, direction.from,
					"client-"+client))
				suite.CheckHTTP(t, direction.from, "client-"+client, service, "server-"+server, suite.PodIP(t, direction.from,
					"client-"+client))
				suite.CheckHTTP(t, direction.from, "host-"+client, pod+":8080", "server-"+server, "")
				suite.CheckHTTP(t, direction.from, "host-"+client, service, "server-"+server, "")
				checkLarge(t, direction.from, "client-"+client, pod)
			})
		}
	}
}

// checkLarge sends what does not fit one packet.
func checkLarge(t *testing.T, cluster, client, address string) {
	t.Helper()
	if out, err := suite.InPod(t.Context(), cluster, client, "udp", address+":8080", "60000"); err != nil {
		t.Errorf("60,000-byte datagram to %s: %v: %s", address, err, out)
	}
	out, err := suite.InPod(t.Context(), cluster, client, "http", "-quiet", "-timeout=20s", "http://"+address+
		":8080/body?bytes=8388608")
	if err != nil || out != "8388608" {
		t.Errorf("8 MiB body from %s: %q, %v", address, out, err)
	}
}
