// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestGatewaysWithoutIPsec are named where a pair is to be reached by it, and where none is nobody is bothered.
func TestGatewaysWithoutIPsec(t *testing.T) {
	const ready = "2 of 2 gateways are well"
	agent := func(node string, containers ...string) nodeAgent {
		pod := agentPod("agent-"+node, nil, corev1.ContainerStatus{})
		pod.Spec.NodeName, pod.Status.ContainerStatuses = node, nil
		for _, name := range containers {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: name})
		}
		return agentOf(pod)
	}
	gateways := func(names ...string) (out []v1alpha1.Gateway) {
		for _, name := range names {
			out = append(out, v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		return out
	}
	going := gateways("g1")
	going[0].DeletionTimestamp = ptr.To(metav1.NewTime(time.Unix(1, 0)))
	byIPsec := []v1alpha1.RemoteCluster{{Name: "c3", Cable: v1alpha1.CableIPsec}, {Name: "c4"},
		{Name: "c2", Cable: v1alpha1.CableIPsec}}
	for _, c := range []struct {
		name     string
		remotes  []v1alpha1.RemoteCluster
		gateways []v1alpha1.Gateway
		agents   []nodeAgent
		bare     string // "" for a condition that stays as it is
	}{
		{"none has it", byIPsec, gateways("g1", "g2"), []nodeAgent{agent("g2", "node"), agent("g1", "node")}, "g1, g2"},
		{"one has it", byIPsec, gateways("g1", "g2"), []nodeAgent{agent("g1", "node", "ipsec"), agent("g2", "node")}, "g2"},
		{"all have it", byIPsec, gateways("g1"), []nodeAgent{agent("g1", "node", "ipsec")}, ""},
		{"nobody asks for it", []v1alpha1.RemoteCluster{{Name: "c2"}, {Name: "c3", Cable: v1alpha1.CableVXLAN}},
			gateways("g1"), []nodeAgent{agent("g1", "node")}, ""},
		{"a node that is no gateway", byIPsec, gateways("g1"),
			[]nodeAgent{agent("g1", "node", "ipsec"), agent("w1", "node")}, ""},
		{"a gateway that goes", byIPsec, going, []nodeAgent{agent("g1", "node")}, ""},
		{"a pod of which nothing is known", byIPsec, gateways("g1"), []nodeAgent{agent("g1")}, ""},
		{"a gateway without an agent", byIPsec, gateways("g1"), nil, ""},
	} {
		well := metav1.Condition{Type: v1alpha1.PeeringGatewaysReady, Status: metav1.ConditionTrue, Reason: "Ready",
			Message: ready}
		got := withoutIPsec(well, c.remotes, c.gateways, c.agents)
		if c.bare == "" {
			if got != well {
				t.Errorf("%s: %+v", c.name, got)
			}
			continue
		}
		for _, want := range []string{ready + "; c2, c3 are to be reached by ipsec",
			"missing on the gateways " + c.bare + ":", "install again, with --ipsec"} {
			if got.Status != metav1.ConditionFalse || got.Reason != v1alpha1.ReasonNoIPsecContainer ||
				!strings.Contains(got.Message, want) {
				t.Errorf("%s: no %q in %+v", c.name, want, got)
			}
		}
		worse := well
		worse.Status, worse.Reason = metav1.ConditionFalse, v1alpha1.ReasonGatewaysNotReady
		if got := withoutIPsec(worse, c.remotes, c.gateways, c.agents); got.Reason != v1alpha1.ReasonGatewaysNotReady ||
			!strings.Contains(got.Message, c.bare) {
			t.Errorf("%s, of gateways that are not well: %+v", c.name, got)
		}
	}
}
