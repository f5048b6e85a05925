// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"testing"
)

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

// Body is how much CheckSizes asks a server for by TCP, of its pod and of its service each.
const Body = 8 << 20

// CheckSizes sends from a client, client-<node> or host-<node>, to the server of another cluster's node what fits one
// packet and what does not: by UDP and TCP to its pod and to its service, and by ICMP to its pod, for a service answers
// none. Datagrams that are too large are sent in fragments.
func CheckSizes(t *testing.T, from, client, to, server string) {
	t.Helper()
	const small, fragments = 64, 60_000
	pod, service := PodIP(t, to, "server-"+server), ClusterIP(t, to, "server-"+server)
	command := []string{"reach"}
	add := func(protocol, address string, sizes ...int) {
		for _, size := range sizes {
			command = append(command, fmt.Sprintf("%s,%d,%s", protocol, size, address))
		}
	}
	for _, address := range []string{pod + ":8080", service + ":80"} {
		add("udp", address, small, fragments)
		add("tcp", address, small, Body)
	}
	add("icmp", pod, small, fragments)
	out, err := InPod(t.Context(), from, client, command...)
	if n := len(command) - 1; err != nil || out != fmt.Sprintf("%d of %[1]d", n) {
		t.Errorf("%s to the pod and the service of server-%s: %s came back: %v", client, server, out, err)
	}
}
