// SPDX-License-Identifier: Apache-2.0

package suite

import "testing"

// Ways runs test for each way that a packet can take between two clusters with a gateway and a worker each, with the
// names of the nodes that it begins and ends on.
func Ways(t *testing.T, from, to string, test func(t *testing.T, client, server string)) {
	t.Helper()
	for _, client := range []string{"-worker", "-gw"} {
		for _, server := range []string{"-worker", "-gw"} {
			t.Run(from+client+" to "+to+server, func(t *testing.T) { test(t, from+client, to+server) })
		}
	}
}

// CheckFromPod checks that the pod client-<client> reaches the server of another cluster's node by its pod and by its
// service, and that it is seen with its own address.
func CheckFromPod(t *testing.T, from, client, to, server string) {
	t.Helper()
	pod, service := PodIP(t, to, "server-"+server), ClusterIP(t, to, "server-"+server)
	own := PodIP(t, from, "client-"+client)
	CheckHTTP(t, from, "client-"+client, pod+":8080", "server-"+server, own)
	CheckHTTP(t, from, "client-"+client, service, "server-"+server, own)
}

// CheckFromHost checks the same of the host network of a node, which is seen with an address of the pod network.
func CheckFromHost(t *testing.T, from, client, to, server string) {
	t.Helper()
	pod, service := PodIP(t, to, "server-"+server), ClusterIP(t, to, "server-"+server)
	CheckHTTP(t, from, "host-"+client, pod+":8080", "server-"+server, "")
	CheckHTTP(t, from, "host-"+client, service, "server-"+server, "")
}

// CheckLarge sends from a pod to a server's pod what does not fit one packet.
func CheckLarge(t *testing.T, cluster, client, address string) {
	t.Helper()
	if out, err := InPod(t.Context(), cluster, client, "udp", address+":8080", "60000"); err != nil {
		t.Errorf("60,000-byte datagram to %s: %v: %s", address, err, out)
	}
	out, err := InPod(t.Context(), cluster, client, "http", "-quiet", "-timeout=20s", "http://"+address+
		":8080/body?bytes=8388608")
	if err != nil || out != "8388608" {
		t.Errorf("8 MiB body from %s: %q, %v", address, out, err)
	}
}
