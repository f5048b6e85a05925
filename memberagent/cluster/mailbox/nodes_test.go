// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// agentPod is a pod of the node agents on n1, as the kubelet describes its container.
func agentPod(name string, conditions []corev1.PodCondition, container corev1.ContainerStatus) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Spec.NodeName = name, "n1"
	p.Status.Conditions, p.Status.ContainerStatuses = conditions, []corev1.ContainerStatus{container}
	return p
}

// TestARollOut: what is said of a node that has an agent and one that is to follow it.
func TestARollOut(t *testing.T) {
	ready := func(s corev1.ConditionStatus) corev1.PodCondition {
		return corev1.PodCondition{Type: corev1.PodReady, Status: s}
	}
	programmed := corev1.PodCondition{Type: v1alpha1.PodNodeProgrammed, Reason: v1alpha1.ReasonNodeProgrammed}
	turn := func(reason string) corev1.PodCondition {
		c := corev1.PodCondition{Type: v1alpha1.PodMayProgram, Reason: reason, Status: corev1.ConditionTrue, Message: "why"}
		if reason == v1alpha1.ReasonHeld || reason == v1alpha1.ReasonNotRehearsed {
			c.Status = corev1.ConditionFalse
		}
		return c
	}
	may := turn(v1alpha1.ReasonProgramming)
	running := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	waiting := func(reason, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	old := agentPod("a", []corev1.PodCondition{ready(corev1.ConditionTrue), programmed, may},
		running)
	unbound := agentPod("b", []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: "Unschedulable", Message: "0/1 nodes are available: 1 Insufficient cpu."}}, corev1.ContainerStatus{})
	unbound.Status.ContainerStatuses, unbound.Spec.NodeName = nil, ""
	unbound.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"n1"}}},
		}}}}}
	crashed := corev1.ContainerStatus{RestartCount: 2, LastTerminationState: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1}}}
	crashing := crashed
	crashing.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s"}
	gone := agentPod("a", nil, crashed)
	gone.DeletionTimestamp = &metav1.Time{}
	once := crashed
	once.RestartCount = 1
	const fine = "True Programmed: 1 of 1 nodes are programmed"
	const goesOn = "False AgentsFailing: 1 of 2 node agents run, 1 failed: pod b of node n1: "
	for name, c := range map[string]struct {
		pods        []*corev1.Pod
		nodes, runs string
	}{
		"no roll-out": {[]*corev1.Pod{old}, fine, "True Running: 1 of 1 node agents run"},
		"the image does not exist": {
			[]*corev1.Pod{old, agentPod("b", []corev1.PodCondition{ready(corev1.ConditionFalse)},
				waiting("ErrImagePull", "typo: not found"))},
			fine, goesOn + "ErrImagePull: typo: not found (pod a goes on)",
		},
		"no room": {[]*corev1.Pod{old, unbound}, fine,
			goesOn + "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. (pod a goes on)"},
		"it crashes": {[]*corev1.Pod{old, agentPod("b", nil, crashing)}, fine,
			goesOn + "Error: it ends with exit code 1, see its logs (pod a goes on)"},
		"it has crashed and tries again": {[]*corev1.Pod{old, agentPod("b", nil, crashed)}, fine,
			goesOn + "Error: it ends with exit code 1, see its logs (pod a goes on)"},
		"it has crashed once": {[]*corev1.Pod{old, agentPod("b", nil, once)}, fine,
			"False Starting: 1 of 2 node agents run, waiting for pod b of node n1"},
		"the other one ends, which crashed long ago": {[]*corev1.Pod{gone,
			agentPod("b", []corev1.PodCondition{programmed, may},
				running)}, fine, "True Running: 1 of 1 node agents run"},
		"there is none": {nil, "False Programming: 0 of 1 nodes are programmed, waiting for pods of DaemonSet sealane-node",
			"False Starting: 0 of 0 node agents run, waiting for DaemonSet sealane-node to replace 0: its events say why it " +
				"may not"},
		"it is being made": {[]*corev1.Pod{old, agentPod("b", nil, waiting("ContainerCreating", ""))}, fine,
			"False Starting: 1 of 2 node agents run, waiting for pod b of node n1"},
		"it waits": {[]*corev1.Pod{old, agentPod("b", []corev1.PodCondition{ready(corev1.ConditionTrue),
			turn(v1alpha1.ReasonRehearsed)}, running)}, fine, "True Running: 2 of 2 node agents run"},
		"it could not program the node": {[]*corev1.Pod{old, agentPod("b", []corev1.PodCondition{
			turn(v1alpha1.ReasonNotRehearsed)}, running)}, fine, goesOn + "NotRehearsed: why (pod a goes on)"},
		"another node is not programmed": {[]*corev1.Pod{old, agentPod("b", []corev1.PodCondition{
			turn(v1alpha1.ReasonHeld)}, running)}, fine,
			"False Starting: 1 of 2 node agents run, waiting for pod b of node n1"},
		"it has taken over, and the old one is not gone yet": {
			[]*corev1.Pod{
				agentPod("a", []corev1.PodCondition{ready(corev1.ConditionFalse), programmed, may},
					running),
				agentPod("b", []corev1.PodCondition{ready(corev1.ConditionTrue), programmed, may},
					running),
			}, fine, "False Starting: 1 of 2 node agents run, waiting for pod a of node n1",
		},
		"the old one is not ready either": {
			[]*corev1.Pod{
				agentPod("a", []corev1.PodCondition{ready(corev1.ConditionFalse), programmed, may},
					running),
				agentPod("b", []corev1.PodCondition{ready(corev1.ConditionFalse), turn(v1alpha1.ReasonRehearsed)}, running),
			}, "False Programming: 0 of 1 nodes are programmed, waiting for pod a of node n1",
			"False Starting: 0 of 2 node agents run, waiting for pod a of node n1, pod b of node n1",
		},
		"it fails on a new node": {[]*corev1.Pod{agentPod("b", nil, waiting("InvalidImageName", "typo"))},
			"False Programming: 0 of 1 nodes are programmed, waiting for pod b of node n1",
			"False AgentsFailing: 0 of 1 node agents run, 1 failed: pod b of node n1: InvalidImageName: typo"},
	} {
		t.Run(name, func(t *testing.T) {
			var agents []nodeAgent
			for _, p := range c.pods {
				agents = append(agents, agentOf(p))
			}
			text := func(c metav1.Condition) string { return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message) }
			if got := text(nodesProgrammed(speaking(agents), 1)); got != c.nodes {
				t.Errorf("nodes: got %s\nwant %s", got, c.nodes)
			}
			if got := text(agentsRunning(agents, 0)); got != c.runs {
				t.Errorf("agents: got %s\nwant %s", got, c.runs)
			}
		})
	}
	t.Run("pods that cannot be made", func(t *testing.T) {
		got := agentsRunning([]nodeAgent{agentOf(old)}, 1)
		if got.Status != metav1.ConditionFalse || got.Reason != reasonStarting ||
			!strings.Contains(got.Message, "replace 1") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("revisions that failed", func(t *testing.T) {
		failed := corev1.PodCondition{Type: v1alpha1.PodNodeProgrammed, Reason: v1alpha1.ReasonProgrammingFailed}
		var agents []nodeAgent
		for revision, p := range map[string]*corev1.Pod{
			"works":                  old,
			"waits and could not":    agentPod("b", []corev1.PodCondition{turn(v1alpha1.ReasonNotRehearsed)}, running),
			"has no image":           agentPod("c", nil, waiting("ErrImagePull", "")),
			"d: cannot program":      agentPod("d", []corev1.PodCondition{may, failed}, running),
			"e: took over and ended": agentPod("e", []corev1.PodCondition{may}, crashing),
			"f: dies":                agentPod("f", []corev1.PodCondition{turn(v1alpha1.ReasonCrashing)}, running),
		} {
			p.Labels = map[string]string{"controller-revision-hash": revision}
			agents = append(agents, agentOf(p))
		}
		want := []string{"d: cannot program", "e: took over and ended", "f: dies"}
		if got := failedRevisions(agents); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("a long story", func(t *testing.T) {
		if got := agentOf(agentPod("b", nil, waiting("ErrImagePull", strings.Repeat("x", 5000)))).failing; len(
			got) > maxFailing {
			t.Errorf("%d bytes", len(got))
		}
	})
}
