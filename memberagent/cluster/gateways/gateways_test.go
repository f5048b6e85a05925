// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// nodes parses "name[+gateway][+ready][+control][+windows] …".
func nodes(text string) []corev1.Node {
	var out []corev1.Node
	for _, word := range strings.Fields(text) {
		parts := strings.Split(word, "+")
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: parts[0], Labels: map[string]string{}}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.30.1.11"}}
		for _, p := range parts[1:] {
			if value, ok := strings.CutPrefix(p, "gateway="); ok {
				n.Labels[v1alpha1.LabelGateway] = value
			}
			switch p {
			case "cordoned":
				n.Spec.Unschedulable = true
			case "unaddressed":
				n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "192.0.2.7"}}
			case "gateway":
				n.Labels[v1alpha1.LabelGateway] = "true"
			case "ready":
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			case "control":
				n.Labels["node-role.kubernetes.io/control-plane"] = ""
			case "windows":
				n.Labels[corev1.LabelOSStable] = "windows"
			}
		}
		out = append(out, n)
	}
	return out
}

func have(text string) []v1alpha1.Gateway {
	var out []v1alpha1.Gateway
	for _, word := range strings.Fields(text) {
		g := v1alpha1.Gateway{}
		name, slot, _ := strings.Cut(word, "=")
		g.Name = name
		_, _ = fmt.Sscan(slot, &g.Spec.Slot)
		out = append(out, g)
	}
	return out
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name        string
		phase       Phase
		nodes, have string
		want        string
	}{
		{"none", Active, "", "", ""},
		{"one is picked: ready, free of the control plane, by name", Active, "a b+ready+control c+ready d+ready", "", "c=0"},
		{"the pick stays, ready or not", Active, "a+ready b", "b=0", "b=0"},
		{"the pick's node is gone", Active, "a+ready", "b=3", "a=0"},
		{"no Windows node is picked", Active, "a+windows+ready b", "", "b=0"},
		{"labelled nodes", Active, "b+gateway a+gateway c+ready", "", "a=0 b=1"},
		{"slots stay, a freed one is used again", Active, "a+gateway c+gateway d+gateway", "a=0 b=1 c=2", "a=0 c=2 d=1"},
		{"labelled and cordoned", Active, "a+gateway+cordoned c+ready", "", "a=0"},
		{"a label of another value makes none", Active, "a+gateway=True b+gateway=false c+gateway= d+ready", "", "d=0"},
		{"no labelled Windows node", Active, "a+gateway+windows+ready b+ready", "", "b=0"},
		{"labels replace the pick", Active, "a+ready b+gateway", "a=0", "b=0"},
		{"a label goes", Active, "a+ready b", "a=0 b=1", "a=0"},
		{"two with one slot", Active, "a+gateway b+gateway", "a=0 b=0", "a=0 b=1"},
		{"unknown adds nothing", Unknown, "a+gateway b", "b=0", "b=0"},
		{"unknown drops what has no node", Unknown, "a", "a=0 b=1", "a=0"},
		{"cleaning keeps them", Cleaning, "a+gateway b+gateway", "a=0", "a=0"},
		{"cleaned", Cleaned, "a+gateway", "a=0", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			slots, _ := new(History).Decide(Input{Phase: c.phase, Nodes: nodes(c.nodes), Have: have(c.have), Now: noon})
			var got []string
			for _, name := range slices.Sorted(maps.Keys(slots)) {
				got = append(got, fmt.Sprintf("%s=%d", name, slots[name]))
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestNoMoreGatewaysThanSlots(t *testing.T) {
	text := ""
	for i := range 20 {
		text += fmt.Sprintf("n%02d+gateway ", i)
	}
	got, _ := new(History).Decide(Input{Phase: Active, Nodes: nodes(text), Now: noon})
	if len(got) != v1alpha1.MaxSlot+1 {
		t.Errorf("%d gateways, want %d", len(got), v1alpha1.MaxSlot+1)
	}
}
