// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestGatewaysTakeNoKeyOfANode: who has published a key for a node of a mesh keeps it, also from gateways of another
// cluster, which has heard of it: else the node would be one of no mesh any more, with nobody.
func TestGatewaysTakeNoKeyOfANode(t *testing.T) {
	for name, steal := range map[string]func(e *v1alpha1.Endpoint, key string){
		"as its key":      func(e *v1alpha1.Endpoint, key string) { e.PublicKey = key },
		"as its next key": func(e *v1alpha1.Endpoint, key string) { e.NextPublicKey = key },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWalk(known(1), known(2), known(3))
			w.in.Set.Spec.Topology.Mode = v1alpha1.TopologyMesh
			for i, name := range []string{"c1", "c2", "c3"} {
				w.member(name).Report.Status.Nodes = nodesOf(i+1, 2)
			}
			w.step()
			was := w.told("c2")
			e := w.member("c3").Report.Status.Endpoints[0]
			e.Gateway, e.Slot, e.PublicKey = "thief", 1, key(77)
			steal(&e, nodesOf(1, 2)[1].PublicKey)
			w.member("c3").Report.Status.Endpoints = append(w.member("c3").Report.Status.Endpoints, e)
			w.step()
			w.expect(t, "c2 is told of", w.told("c2"), was)
			if want := "its public key is that of a gateway or node of c1"; !strings.Contains(w.complaints(), want) {
				t.Errorf("%q does not say %q", w.complaints(), want)
			}
		})
	}
	t.Run("that is a gateway no more", func(t *testing.T) {
		w := newWalk(known(1), known(2), known(3))
		w.in.Set.Spec.Topology.Mode = v1alpha1.TopologyMesh
		for i, name := range []string{"c1", "c2", "c3"} {
			w.member(name).Report.Status.Nodes = nodesOf(i+1, 2)
		}
		e := &w.member("c1").Report.Status.Endpoints[0]
		e.Gateway, e.PublicKey = "n00", nodesOf(1, 1)[0].PublicKey
		w.step()
		was, stolen := w.told("c2"), e.PublicKey
		w.member("c1").Report.Status.Endpoints = nil
		w.member("c3").Report.Status.Endpoints[0].PublicKey = stolen
		w.step()
		w.expect(t, "c2 is told of", w.told("c2"), was)
	})
	t.Run("its own node becomes a gateway", func(t *testing.T) {
		w := newWalk(known(1), known(2))
		w.in.Set.Spec.Topology.Mode = v1alpha1.TopologyMesh
		w.member("c1").Report.Status.Nodes, w.member("c2").Report.Status.Nodes = nodesOf(1, 2), nodesOf(2, 2)
		w.step()
		e := w.member("c1").Report.Status.Endpoints[0]
		e.Gateway, e.Slot, e.PublicKey = "n01", 1, nodesOf(1, 2)[1].PublicKey
		w.member("c1").Report.Status.Endpoints = append(w.member("c1").Report.Status.Endpoints, e)
		for range 2 {
			w.step()
			w.expect(t, "c2 knows", w.remotes("c2"), "c1:10.1.0.0/16:2")
			w.expect(t, "c2 is told of", w.told("c2"), "c1:Mesh:n00+n01")
			w.expect(t, "problems", w.complaints(), "")
		}
	})
}

// TestARefusedClaimTakesNoBlocks: the blocks that it would need of those that it overlaps are not taken from the pool,
// which would be empty for whoever comes after.
func TestARefusedClaimTakesNoBlocks(t *testing.T) {
	w := auto(newWalk(known(1), known(2), known(3), known(4), known(5)))
	w.in.Set.Spec.Globalnet.CIDRs = []string{"242.0.0.0/14"} // four blocks
	w.settle(t)
	greedy := known(6)
	greedy.Report.Status.Networks.PodCIDRs = []string{"10.0.0.0/10"} // overlaps all five
	w.join(t, greedy)
	if c := w.accepted(); !strings.Contains(c, "c6=False/GlobalPoolExhausted") {
		t.Error(c)
	}
	for _, m := range w.in.Members {
		if b := m.Record.Status.GlobalCIDR; b != "" {
			t.Errorf("%s has the block %s", m.Record.Name, b)
		}
	}
	w.join(t, twin(7))
	if c := w.accepted(); !strings.Contains(c, "c7=True") {
		t.Errorf("a member that needs two blocks: %s; %s", c, w.complaints())
	}
}

// TestARefusedClaimIsInNobodysWay: blocks may be in what somebody claims and does not get.
func TestARefusedClaimIsInNobodysWay(t *testing.T) {
	greedy := known(6)
	greedy.Report.Status.Networks.ServiceCIDRs = []string{"120.0.0.0/8"}
	w := auto(newWalk(known(1), greedy))
	w.in.Set.Spec.Globalnet.CIDRs = []string{"120.0.0.0/15"} // two blocks
	w.in.Set.Spec.AllowedCIDRs = []string{"0.0.0.0/0"}
	w.in.Set.Spec.Clusters = []v1alpha1.ClusterOverride{{Name: "c6", Globalnet: v1alpha1.GlobalnetOverride{
		Mode: v1alpha1.GlobalnetOn}}}
	w.settle(t)
	w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c6=False/GlobalPoolExhausted")
	w.join(t, func() Member { m := twin(2); m.Record.CreationTimestamp = metav1.Unix(99, 0); return m }())
	w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c6=False/CIDROverlap c2=True/Accepted")
}

// TestGatewaysOfOneWithoutABlock: they have no address in what another uses at home. Else that one would be refused, if
// its networks changed, for what came after it.
func TestGatewaysOfOneWithoutABlock(t *testing.T) {
	w := auto(newWalk(known(1), twin(2), known(3)))
	w.in.Set.Spec.Clusters = []v1alpha1.ClusterOverride{
		{Name: "c2", Globalnet: v1alpha1.GlobalnetOverride{Mode: v1alpha1.GlobalnetOn}},
		{Name: "c3", Globalnet: v1alpha1.GlobalnetOverride{Mode: v1alpha1.GlobalnetOff}}}
	grown := func(m *Member) {
		m.Report.Status.Networks.PodCIDRs = append(m.Report.Status.Networks.PodCIDRs[:1:1], "10.77.0.0/16")
	}
	grown(w.member("c2"))
	w.settle(t)
	e := &w.member("c3").Report.Status.Endpoints[0]
	e.Addresses = append(e.Addresses, v1alpha1.EndpointAddress{Type: v1alpha1.AddressPrivate, IP: "10.77.7.7"})
	w.settle(t)
	w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=True/Accepted c3=True/Accepted")
	for _, r := range w.member("c1").Sent.RemoteClusters {
		if r.Name == "c3" && (len(r.Endpoints) != 1 || len(r.Endpoints[0].Addresses) != 1) {
			t.Errorf("c1 is told of %v", r.Endpoints)
		}
	}
}

// TestOneMemberCrowdsOutNoFailure: each member's failed revisions are told to the others, whatever another reports.
func TestOneMemberCrowdsOutNoFailure(t *testing.T) {
	w := newWalk(known(1), known(2), known(3))
	for i := range 16 {
		w.member("c3").Report.Status.FailedRevisions = append(w.member("c3").Report.Status.FailedRevisions,
			fmt.Sprintf("00%02d", i))
	}
	w.member("c2").Report.Status.FailedRevisions = []string{"zz"}
	w.step()
	told := w.member("c1").Sent.FailedRevisions
	if len(told) != v1alpha1.MaxFailedRevisions || told[len(told)-1] != "zz" {
		t.Errorf("c1 is told of %v", told)
	}
}

// TestTextOfMembersIsOneLine: no member's text ends a line, or moves the cursor, where people read it.
func TestTextOfMembersIsOneLine(t *testing.T) {
	const evil = "x\n\x1b[2Jall is well\r\u202e"
	w := newWalk(known(1), known(2))
	r := &w.member("c2").Report.Status
	r.AgentVersion = evil
	r.RollOut = &v1alpha1.RollOutReport{Revision: "a", Nodes: 1, Outdated: 1, LastNode: evil, Failing: evil}
	r.Conditions = []metav1.Condition{
		{Type: v1alpha1.PeeringAgentsRunning, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAgentsFailing,
			Message: evil},
		{Type: v1alpha1.PeeringNodesPublished, Status: metav1.ConditionFalse, Reason: "X", Message: evil}}
	w.in.Set.Spec.Topology.Mode = v1alpha1.TopologyMesh
	w.member("c1").Report.Status.Nodes = nodesOf(1, 1)
	for range 40 {
		w.step()
		text := fmt.Sprint(w.d.Set, w.d.Statuses, w.d.Peerings, w.d.RollOut)
		if i := strings.IndexAny(text, "\n\r\x1b\u202e"); i >= 0 {
			t.Fatalf("%q", text[max(0, i-100):i+1])
		}
	}
	if c := meta.FindStatusCondition(w.member("c2").Record.Status.Conditions, v1alpha1.PeeringAgentsRunning); c == nil ||
		!strings.Contains(c.Message, "all is well") {
		t.Errorf("the message is lost: %v", c)
	}
}

// TestFailedRevisionsAreCounted: of a long list each member's Peering would be decided with all of it.
func TestFailedRevisionsAreCounted(t *testing.T) {
	list := `"a"` + strings.Repeat(`,"a"`, v1alpha1.MaxFailedRevisions-1)
	for report, known := range map[string]bool{list: true, list + `,"a"`: false} {
		r := ParseReport("c1", []byte(`{"observedRevision":1,"failedRevisions":[`+report+`]}`), 0)
		if r.Known != known || !known && (r.Problem == nil || r.Problem.Reason != v1alpha1.ReasonStatusTooLarge) {
			t.Errorf("%d bytes: %+v", len(report), r)
		}
	}
}

// BenchmarkHostileReport is a decision for 200 members, one of which reports as much as is read.
func BenchmarkHostileReport(b *testing.B) {
	var members []Member
	for i := range 200 {
		members = append(members, known(i%250+1))
		m := &members[i]
		m.Record.Name = fmt.Sprintf("c%d", i)
		m.Report.Status.Networks = v1alpha1.Networks{PodCIDRs: []string{fmt.Sprintf("10.%d.0.0/16", i)},
			ServiceCIDRs: []string{fmt.Sprintf("172.16.%d.0/24", i)}}
	}
	for i := range 190_000 {
		members[7].Report.Status.FailedRevisions = append(members[7].Report.Status.FailedRevisions,
			fmt.Sprintf("%04x", i))
	}
	in := Input{Now: time.Unix(1e9, 0), Members: members}
	in.Set.Spec.Shards = 4
	for b.Loop() {
		Decide(in)
	}
}
