// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestClouds: each is known by the providerID that its cloud provider writes, and said to have its own firewalls.
func TestClouds(t *testing.T) {
	for id, want := range map[string]string{
		"aws:///eu-west-1a/i-0a1b2c3d4e5f":                   "AWS: UDP 4500 and up to gateways",
		"azure:///subscriptions/s/resourceGroups/g/vm/x":     "Azure: ",
		"gce://project/europe-west1-b/gke-node-1":            "1460 bytes",
		"cn-hangzhou.i-bp1a2b3c4d5e":                         "Alibaba Cloud: ",
		"openstack:///0c1d":                                  "OpenStack: ",
		"kind://docker/kind/kind-worker":                     "none that is known",
		"":                                                   "none that is known",
		"i-0a1b2c3d4e5f-that-says-no-cloud.example.i-amnone": "none that is known",
	} {
		node := corev1.Node{Spec: corev1.NodeSpec{ProviderID: id}}
		if c := cloudCheck([]corev1.Node{{}, node}); c.Verdict != verdictOK || !strings.Contains(c.Found, want) {
			t.Errorf("%q: expected %q, found %s %q", id, want, c.Verdict, c.Found)
		}
	}
	if c := cloudCheck(nil); c.Verdict != verdictOK {
		t.Errorf("no node: %+v", c)
	}
}
