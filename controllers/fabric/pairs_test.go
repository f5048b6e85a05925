// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// says makes a member report its connections, as "c2=Connected c3=Error/ProbesLost".
func (w *walk) says(name, connections string) {
	m := w.member(name)
	m.Report.Known, m.Report.Status.Connections = true, nil
	for text := range strings.FieldsSeq(connections) {
		cluster, rest, _ := strings.Cut(text, "=")
		status, reason, _ := strings.Cut(rest, "/")
		m.Report.Status.Connections = append(m.Report.Status.Connections, v1alpha1.MemberConnection{
			Cluster: cluster, Status: v1alpha1.ConnectionStatus(status), Reason: reason,
		})
	}
}

// pairs renders the status of the ClusterSet: how many are connected, and which are not.
func (w *walk) pairs() string {
	out := []string{fmt.Sprintf("%d/%d", w.d.Set.ConnectedPairs, w.d.Set.Pairs)}
	for _, p := range w.d.Set.UnconnectedPairs {
		out = append(out, fmt.Sprintf("%s-%s=%s/%s", p.Cluster, p.RemoteCluster, p.Status, p.Reason))
	}
	return strings.Join(out, " ")
}

// conditions renders Ready and Connected of the ClusterSet, and Connected of each member.
func (w *walk) conditions() string {
	var out []string
	for _, kind := range []string{v1alpha1.ClusterSetReady, v1alpha1.ClusterSetConnected} {
		c := meta.FindStatusCondition(w.d.Set.Conditions, kind)
		out = append(out, fmt.Sprintf("%s=%s/%s", kind, c.Status, c.Reason))
	}
	for _, m := range w.in.Members {
		c := meta.FindStatusCondition(w.d.Statuses[m.Record.Name].Conditions, v1alpha1.MemberConnected)
		out = append(out, fmt.Sprintf("%s=%s", m.Record.Name, c.Status))
	}
	return strings.Join(out, " ")
}

// TestAPairIsAsConnectedAsTheWorseOfTwoViews: neither side's word is taken for the other's.
func TestAPairIsAsConnectedAsTheWorseOfTwoViews(t *testing.T) {
	const up = "Connected"
	for _, x := range []struct {
		name, c1, c2 string
		change       func(c1 *Member)
		pairs        string
		conditions   string
	}{
		{"both see it", up, up, nil, "1/1",
			"Ready=True/Ready Connected=True/Connected c1=True c2=True"},
		{"one direction is dropped", up, "Error/ProbesLost", nil, "0/1 c1-c2=Error/ProbesLost",
			"Ready=False/NotConnected Connected=False/NotConnected c1=False c2=False"},
		{"the other one is", "Error/ProbesLost", up, nil, "0/1 c1-c2=Error/ProbesLost",
			"Ready=False/NotConnected Connected=False/NotConnected c1=False c2=False"},
		{"the agents of one side are silent", "Unknown/AgentSilent", up, nil, "0/1 c1-c2=Unknown/AgentSilent",
			"Ready=Unknown/ConnectionUnknown Connected=Unknown/ConnectionUnknown c1=Unknown c2=Unknown"},
		{"those of both sides are", "Unknown/AgentSilent", "Unknown/AgentSilent", nil, "0/1 c1-c2=Unknown/AgentSilent",
			"Ready=Unknown/ConnectionUnknown Connected=Unknown/ConnectionUnknown c1=Unknown c2=Unknown"},
		{"one side is silent, and the other gets no answers", "Unknown/AgentSilent", "Error/ProbesLost", nil,
			"0/1 c1-c2=Error/ProbesLost",
			"Ready=False/NotConnected Connected=False/NotConnected c1=False c2=False"},
		{"set up and not answered yet", "Connecting/NoHandshake", "Unknown/NoGateway", nil,
			"0/1 c1-c2=Connecting/NoHandshake",
			"Ready=False/NotConnected Connected=False/NotConnected c1=False c2=False"},
		{"Karmada does not reach one of them", up, up, func(c1 *Member) { c1.Lost = true },
			"0/1 c1-c2=Unknown/ClusterNotReady",
			"Ready=Unknown/ConnectionUnknown Connected=Unknown/ConnectionUnknown c1=Unknown c2=Unknown"},
		{"nor its tunnels", up, "Error/ProbesLost", func(c1 *Member) { c1.Lost = true }, "0/1 c1-c2=Error/ProbesLost",
			"Ready=False/NotConnected Connected=False/NotConnected c1=False c2=False"},
		{"one of them answers no more", up, up, func(c1 *Member) { c1.Unanswered = true }, "0/1 c1-c2=Unknown/Unanswered",
			"Ready=Unknown/ConnectionUnknown Connected=Unknown/ConnectionUnknown c1=Unknown c2=Unknown"},
		{"its Work was made anew", up, up, func(c1 *Member) { c1.Report = Report{} }, "0/1 c1-c2=Unknown/NoReport",
			"Ready=Unknown/ConnectionUnknown Connected=Unknown/ConnectionUnknown c1=Unknown c2=Unknown"},
		{"an agent that gives no reasons", "Error", up, nil, "0/1 c1-c2=Error/Error",
			"Ready=False/NotConnected Connected=False/NotConnected c1=False c2=False"},
		{"a reason that is none", "Connecting/<b>" + strings.Repeat("x", 99), up, nil, "0/1 c1-c2=Connecting/Connecting",
			"Ready=False/NotConnected Connected=False/NotConnected c1=False c2=False"},
		{"a status that is none", "Nonsense", up, nil, "0/1 c1-c2=Unknown/NotReported",
			"Ready=Unknown/ConnectionUnknown Connected=Unknown/ConnectionUnknown c1=Unknown c2=Unknown"},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWalk(known(1), known(2))
			w.step()
			w.says("c1", "c2="+x.c1)
			w.says("c2", "c1="+x.c2)
			if x.change != nil {
				w.step()
				x.change(w.member("c1"))
			}
			w.expect(t, "Works for it", w.step(), "")
			w.expect(t, "pairs", w.pairs(), x.pairs)
			w.expect(t, "conditions", w.conditions(), x.conditions)
			before := w.d.Set.DeepCopy()
			w.step()
			if !equality.Semantic.DeepEqual(*before, w.d.Set) {
				t.Errorf("time alone changes the status from %+v to %+v", *before, w.d.Set)
			}
		})
	}
}

func TestReadyMeansThatMembersReachEachOther(t *testing.T) {
	w := newWalk(known(1))
	w.step()
	w.expect(t, "alone", w.conditions(), "Ready=True/Ready Connected=True/Connected c1=True")

	w = newWalk(known(1), known(2), known(3))
	w.step()
	w.expect(t, "nothing is reported", w.pairs(),
		"0/3 c1-c2=Unknown/NotReported c1-c3=Unknown/NotReported c2-c3=Unknown/NotReported")
	w.says("c1", "c2=Connected c3=Unknown/AgentSilent")
	w.says("c2", "c1=Connected c3=Error/ProbesLost")
	w.says("c3", "c1=Connected c2=Connected")
	w.step()
	w.expect(t, "the worst first", w.pairs(), "1/3 c2-c3=Error/ProbesLost c1-c3=Unknown/AgentSilent")
	w.expect(t, "conditions", w.conditions(),
		"Ready=False/NotConnected Connected=False/NotConnected c1=Unknown c2=False c3=False")
	for kind, want := range map[string]string{
		"Ready":     "1 of 3 pairs of members do not reach each other: c2 and c3 (ProbesLost)",
		"Connected": "0 of 3 members are connected to every other, 1 of 3 pairs are connected",
	} {
		w.expect(t, kind, meta.FindStatusCondition(w.d.Set.Conditions, kind).Message, want)
	}
	w.expect(t, "c3", meta.FindStatusCondition(w.d.Statuses["c3"].Conditions, "Connected").Message,
		"not connected to: c2 (ProbesLost); not known of: c1 (AgentSilent)")
	w.expect(t, "the pair", w.d.Set.UnconnectedPairs[0].Message, "c2 reports Error (ProbesLost), c3 reports Connected")

	t.Run("one that leaves is no pair", func(t *testing.T) {
		w.member("c3").Record.Spec.Phase = v1alpha1.MemberLeaving
		w.step()
		w.expect(t, "pairs", w.pairs(), "1/1")
		w.expect(t, "Ready", w.conditions()[:len("Ready=True")], "Ready=True")
	})
	t.Run("nor is one that is refused", func(t *testing.T) {
		late := known(4)
		late.Report.Status.Networks.PodCIDRs = []string{"10.2.0.0/24"}
		w.in.Members = append(w.in.Members, late)
		w.step()
		w.expect(t, "pairs", w.pairs(), "1/1")
		w.expect(t, "conditions", w.conditions(), "Ready=False/Problems Connected=False/NotConnected c1=True c2=True "+
			"c3=False c4=False")
		w.expect(t, "Connected", meta.FindStatusCondition(w.d.Set.Conditions, "Connected").Message,
			"2 of 3 members are connected to every other, 1 of 1 pairs are connected")
	})
}

// TestThePairsOfALargeFleetAreBounded: 4950 pairs of 100 clusters, and none of them connected.
func TestThePairsOfALargeFleetAreBounded(t *testing.T) {
	var members []Member
	for n := 1; n <= 100; n++ {
		m := known(1)
		m.Record.Name = fmt.Sprintf("a-cluster-with-a-long-name-as-people-make-them-%015d", n)
		m.Report.Status.Networks = v1alpha1.Networks{PodCIDRs: []string{fmt.Sprintf("10.%d.0.0/17", n)},
			ServiceCIDRs: []string{fmt.Sprintf("10.%d.128.0/17", n)}}
		m.Report.Status.NodeCIDRs, m.Report.Status.Endpoints = nil, nil
		members = append(members, m)
	}
	w := newWalk(members...)
	w.step()
	s := w.d.Set
	if s.Pairs != 4950 || s.ConnectedPairs != 0 || len(s.UnconnectedPairs) != v1alpha1.MaxPairs ||
		s.UnlistedPairs != 4850 {
		t.Errorf("%d pairs, %d connected, %d listed, %d not", s.Pairs, s.ConnectedPairs, len(s.UnconnectedPairs),
			s.UnlistedPairs)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the status of a ClusterSet of 100 members that are all lost has %d bytes", len(text))
	if len(text) > 64<<10 {
		t.Errorf("the status has %d bytes", len(text))
	}
	if c := meta.FindStatusCondition(w.d.Statuses[members[0].Record.Name].Conditions, "Connected"); len(c.Message) > 1024 {
		t.Errorf("the message of one member has %d bytes", len(c.Message))
	}
}
