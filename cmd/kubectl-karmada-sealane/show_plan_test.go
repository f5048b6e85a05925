// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestPlanRowsAreInTheAgentsOrder(t *testing.T) {
	got := planRows(planned{Holds: []string{"tunnel a", "  peer b"}, Changes: []string{"add link c"}, Problem: "busy"})
	want := "[{planned tunnel a} {planned   peer b} {problem the last sync failed: busy} {differs add link c}]"
	if fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// TestShowPlanFindsTheNode: in whichever member it is, and says where it looked.
func TestShowPlanFindsTheNode(t *testing.T) {
	k := newKarmada(t)
	k.kubeconfig = writeKubeconfig(t, server, "karmada", "c1", "c2", "lost-member")
	k.install(t)
	k.report(t, []string{"c1", "c2", "c3"}, connected()...)
	pod := func(name, node string, ready corev1.ConditionStatus) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: name,
			Labels: map[string]string{"app.kubernetes.io/name": nodeAgentName}},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "node", Image: "agent"}}}}
		k.create(t, p)
		k.goes(t, p)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		if err := k.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	pod("sealane-node-waits", "worker-1", corev1.ConditionFalse)
	pod("sealane-node-works", "worker-1", corev1.ConditionTrue)
	// Both contexts lead to one API server here, so the node is in both; c3 has none.
	k.fails(t, []string{"one in each of c1, c2", "-C"}, "show", "plan", "worker-1", "--member-timeout=2s")
	k.fails(t, []string{"did you mean worker-1", "c3: "}, "show", "plan", "worker-2", "--member-timeout=2s")
	// No kubelet runs here, so the execution fails: of the pod that has its turn.
	k.fails(t, []string{"exec sealane-node-works -c node -- /sealane-agent plan"}, "show", "plan", "worker-1", "-C", "c2",
		"--member-timeout=2s")
	k.fails(t, []string{`"c9"`}, "show", "plan", "worker-1", "-C", "c9")
}
