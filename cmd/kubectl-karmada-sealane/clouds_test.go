// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestClouds: each is known by the providerID that its cloud provider writes, and said to have its own firewalls, and
// its check of sources by its own name. None has to be turned off.
func TestClouds(t *testing.T) {
	for id, want := range map[string][2]string{
		"aws:///eu-west-1a/i-0a1b2c3d4e5f":               {"AWS: UDP 4500 and up to", "check of the instances may stay on"},
		"azure:///subscriptions/s/resourceGroups/g/vm/x": {"Azure: ", "IP forwarding of the network interfaces may stay off"},
		"gce://project/europe-west1-b/gke-node-1":        {"1460 bytes", "canIpForward of the instances may stay off"},
		"cn-hangzhou.i-bp1a2b3c4d5e":                     {"Alibaba Cloud: ", "check of the network interfaces may stay on"},
		"openstack:///0c1d":                              {"OpenStack: ", "port security of the nodes' ports may stay on"},
		"kind://docker/kind/kind-worker":                 {"none that is known", "open UDP 4500"},
		"":                                               {"none that is known", "UDP 4800 between nodes"},
		"i-0a1b2c3d4e5f-of-no-cloud.example.i-amnone":    {"none that is known", "open UDP 4500"},
	} {
		node := corev1.Node{Spec: corev1.NodeSpec{ProviderID: id}}
		c := cloudCheck([]corev1.Node{{}, node}, openPorts{})
		for _, text := range want {
			if c.Verdict != verdictOK || !strings.Contains(c.Found, text) {
				t.Errorf("%q: expected %q, found %s %q", id, text, c.Verdict, c.Found)
			}
		}
		if known, told := cloudOf([]*corev1.Node{&node}), firewallsOf([]*corev1.Node{&node}); known != nil &&
			!strings.Contains(told, want[1]) {
			t.Errorf("%q: expected %q where diagnose firewall names its firewalls, found %q", id, want[1], told)
		}
	}
	if c := cloudCheck(nil, openPorts{}); c.Verdict != verdictOK {
		t.Errorf("no node: %+v", c)
	}
}
