// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"testing"
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
				pod, service := podIP(t, direction.to, "server-"+server), clusterIP(t, direction.to, "server-"+server)
				checkHTTP(t, direction.from, "client-"+client, pod+":8080", "server-"+server, podIP(t, direction.from, "client-"+client))
				checkHTTP(t, direction.from, "client-"+client, service, "server-"+server, podIP(t, direction.from, "client-"+client))
				checkHTTP(t, direction.from, "host-"+client, pod+":8080", "server-"+server, "")
				checkHTTP(t, direction.from, "host-"+client, service, "server-"+server, "")
				checkLarge(t, direction.from, "client-"+client, pod)
			})
		}
	}
}

// checkHTTP expects the server's answer, and that it saw the client's own address, or for "" one of the
// client's pod network.
func checkHTTP(t *testing.T, cluster, client, address, server, clientIP string) {
	t.Helper()
	a, err := get(t.Context(), cluster, client, "http://"+address)
	if err != nil {
		t.Errorf("%s to %s: %v", client, address, err)
		return
	}
	if a.Pod != server {
		t.Errorf("%s to %s: answered by %q, expected %q", client, address, a.Pod, server)
	}
	if clientIP != "" && a.Client != clientIP {
		t.Errorf("%s to %s: the server saw %s, expected the client's own %s", client, address, a.Client, clientIP)
	}
	if clientIP == "" && !inPodNetwork(cluster, a.Client) {
		t.Errorf("%s to %s: the server saw %s, expected an address of %s's pod network", client, address, a.Client, cluster)
	}
}

// checkLarge sends what does not fit one packet.
func checkLarge(t *testing.T, cluster, client, address string) {
	t.Helper()
	if out, err := in(t.Context(), cluster, client, "udp", address+":8080", "60000"); err != nil {
		t.Errorf("60,000-byte datagram to %s: %v: %s", address, err, out)
	}
	out, err := in(t.Context(), cluster, client, "http", "-quiet", "-timeout=20s", "http://"+address+":8080/body?bytes=8388608")
	if err != nil || out != "8388608" {
		t.Errorf("8 MiB body from %s: %q, %v", address, out, err)
	}
}
