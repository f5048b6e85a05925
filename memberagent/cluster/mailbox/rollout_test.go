// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// agentsFrom reads "node revision state" lines, the oldest pod first. The states are those of an agent's life.
func agentsFrom(t *testing.T, text string) (agents []nodeAgent) {
	for i, line := range strings.Split(text, ",") {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		a := nodeAgent{pod: fmt.Sprint("p", i), node: f[0], revision: f[1], created: int64(i), turned: int64(i + 1)}
		switch f[2] {
		case "programs":
			a.took, a.started, a.programmed = true, true, v1alpha1.ReasonNodeProgrammed
		case "takes": // over, and has not programmed the node yet
			a.took, a.started = true, true
		case "dies":
			a.took, a.unready, a.programmed = true, true, v1alpha1.ReasonNodeProgrammed
		case "waits":
			a.waits = true
		case "ends":
			a.ending, a.took, a.programmed = true, true, v1alpha1.ReasonNodeProgrammed
		default:
			t.Fatal(line)
		}
		agents = append(agents, a)
	}
	return agents
}

func TestRollOut(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
	}
	nodes := []corev1.Node{node("a", corev1.ConditionTrue), node("b", corev1.ConditionTrue),
		node("c", corev1.ConditionTrue),
		node("off", corev1.ConditionUnknown)}
	for _, tt := range []struct{ name, agents, want string }{
		{"none", "", "none"},
		{"a fresh install", "a old takes, b old waits", "old 0+0/2 a"},
		{"all as they should be", "a old programs, b old programs", "old 2+0/2 b"},
		{"a new one waits", "a old programs, b old programs, a new waits", "new 0+2/2 "},
		{"it takes over", "a old ends, b old programs, a new takes", "new 0+1/2 a"},
		{"it has", "b old programs, a new programs", "new 1+1/2 a"},
		{"it dies", "b old programs, a new dies", "new 0+1/2 a"},
		{"the old one is not deleted yet", "a old dies, b old programs, a new programs", "new 1+1/2 a"},
		{"the last one", "a new programs, b new programs", "new 2+0/2 b"},
		{"it goes back", "b old programs, a new programs, b new ends, a old waits", "old 1+1/2 b"},
		{"a pod that only waited goes", "a old programs, b old programs, b new ends", "old 2+0/2 b"},
		{"nodes that are not ready, and one that is gone",
			"off old programs, gone old programs, a new programs, off new waits",
			"new 1+0/1 a"},
	} {
		got := "none"
		if r := rollOut(agentsFrom(t, tt.agents), nodes); r != nil {
			got = fmt.Sprintf("%s %d+%d/%d %s", r.Revision, r.Updated, r.Outdated, r.Nodes, r.LastNode)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	failing := agentsFrom(t, "a old takes, b old programs, a new takes, b new waits")
	failing[0].programmed, failing[0].message = v1alpha1.ReasonProgrammingFailed, "of before"
	failing[2].programmed, failing[2].message = v1alpha1.ReasonProgrammingFailed, "read-only"
	failing[3].failing = "ErrImagePull"
	if r := rollOut(failing, nodes); r.Failing != "pod p2 of node a: read-only; pod p3 of node b: ErrImagePull" {
		t.Errorf("failing: %s", r.Failing)
	}
	same := agentsFrom(t, "a old programs, a new waits")
	same[1].created = same[0].created
	if r := rollOut(same, nodes); r.Revision != "new" {
		t.Errorf("of two pods of the same second %s counts", r.Revision)
	}
	if r := rollOut([]nodeAgent{{node: "a"}}, nodes); r != nil {
		t.Errorf("pods that are of no revision: %+v", r)
	}
}
