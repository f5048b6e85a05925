// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// reporting parses "name=slot[+cluster…][+outdated][+old] …": a gateway that reports to be connected to clusters, whose
// report is older than counts, or that was made long ago.
func reporting(text string) []v1alpha1.Gateway {
	var out []v1alpha1.Gateway
	for _, word := range strings.Fields(text) {
		parts := strings.Split(word, "+")
		g := have(parts[0])[0]
		g.CreationTimestamp = metav1.NewTime(noon.Add(-time.Second))
		g.Status.ReportedAt = &metav1.Time{Time: noon.Add(-time.Second)}
		for _, p := range parts[1:] {
			switch p {
			case "outdated":
				g.Status.ReportedAt.Time = noon.Add(-2 * time.Minute)
			case "old":
				g.CreationTimestamp.Time = noon.Add(-2 * time.Minute)
			default:
				g.Status.Connections = append(g.Status.Connections, v1alpha1.Connection{Cluster: p,
					Status: v1alpha1.ConnectionConnected})
			}
		}
		out = append(out, g)
	}
	return out
}

func TestALabelMoves(t *testing.T) {
	for _, c := range []struct {
		name        string
		nodes, have string
		want        string
	}{
		{"the old gateway goes on until there is a new one", "a+ready b+gateway+ready", "a=0+c2", "a=0 b=1"},
		{"and until that is connected", "a+ready b+gateway+ready", "a=0+c2 b=1", "a=0 b=1"},
		{"to all clusters", "a+ready b+gateway+ready", "a=0+c2+c3 b=1+c2", "a=0 b=1"},
		{"then it goes", "a+ready b+gateway+ready", "a=0+c2+c3 b=1+c2+c3", "b=1"},
		{"it waits for any of several", "a+ready b+gateway d+gateway+ready", "a=0+c2 b=1+old d=2", "a=0 b=1 d=2"},
		{"it waits for a node that is not ready", "a+ready b+gateway", "a=0+c2 b=1", "a=0 b=1"},
		{"and as long as it takes", "a+ready b+gateway+ready", "a=0+c2 b=1+old", "a=0 b=1"},
		{"one whose Gateway was deleted is none again", "a+ready b+gateway+ready", "b=0+old", "b=0"},
		{"one that has not been heard of for long goes", "a+ready b+gateway+ready", "a=0+c2+outdated b=1", "b=1"},
		{"a new one that has not been heard of for long does not count", "a+ready b+gateway+ready",
			"a=0+c2 b=1+c2+outdated", "a=0 b=1"},
		{"one whose node is gone goes", "b+gateway+ready", "a=0+c2 b=1", "b=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := Input{Phase: Active, Nodes: nodes(c.nodes), Have: reporting(c.have), Remotes: 2, Now: noon}
			slots, again := new(History).Decide(in)
			var got []string
			for _, name := range slices.Sorted(maps.Keys(slots)) {
				got = append(got, fmt.Sprintf("%s=%d", name, slots[name]))
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if waits := len(got) > len(labelled(in.Nodes)); waits != (again > 0) {
				t.Errorf("decides again after %s", again)
			}
		})
	}
}

// TestAGatewayThatNobodyRelieves: while it stays the condition says so, once labelled ones have had their time.
func TestAGatewayThatNobodyRelieves(t *testing.T) {
	const stays = "not labelled, and gateways until a labelled one is connected to all clusters that they are connected " +
		"to: a; "
	for _, c := range []struct {
		name, nodes, have string
		want              string // part of the message of False; empty is True
		again             bool
	}{
		{"a new one", "a+ready b+gateway+ready", "a=0+c2+old b=1", "", true},
		{"one that is connected", "a+ready b+gateway+ready", "a=0+c2+old b=1+c2+old", "", false},
		{"one that does not connect", "a+ready b+gateway+ready", "a=0+c2+old b=1+old", stays, false},
		{"nor to all", "a+ready b+gateway+ready", "a=0+c2+c3+old b=1+c2+old", stays, false},
		{"one that is not ready", "a+ready b+gateway", "a=0+c2+old b=1+old", "b (the node is not ready)", false},
		{"nor that one relieves it", "a+ready b+gateway", "a=0+c2+old b=1+old", stays, false},
		{"no labels", "a+ready b+ready", "a=0+c2+old b=1+old", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, again := Condition(nodes(c.nodes), reporting(c.have), noon)
			if (got.Status == metav1.ConditionFalse) != (c.want != "") || !strings.Contains(got.Message, c.want) ||
				got.Status == metav1.ConditionFalse && got.Reason != v1alpha1.ReasonGatewaysNotReady {
				t.Errorf("%s %s %s", got.Status, got.Reason, got.Message)
			}
			if (again > 0) != c.again {
				t.Errorf("again after %s", again)
			}
		})
	}
}
