// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// connected has as many clusters as counts, each with that many nodes, all connected by gateways.
func connected(counts ...int) *walk {
	var members []Member
	for i, n := range counts {
		m := known(i + 1)
		m.Report.Status.Nodes = nodesOf(i+1, n)
		for k := range n {
			m.Report.Status.Nodes[k].PublicKey = wideKey(i, k)
		}
		for other := range counts {
			if other != i {
				m.Report.Status.Connections = append(m.Report.Status.Connections, v1alpha1.MemberConnection{
					Cluster: fmt.Sprintf("c%d", other+1), Status: v1alpha1.ConnectionConnected})
			}
		}
		members = append(members, m)
	}
	return newWalk(members...)
}

// ways renders what a Member says of how the nodes of the others are reached.
func (w *walk) ways(name string) string {
	var out []string
	for _, c := range w.member(name).Record.Status.Connections {
		out = append(out, strings.TrimRight(fmt.Sprintf("%s:%s:%s", c.Cluster, c.Topology, c.TopologyReason), ":"))
	}
	return strings.Join(out, " ")
}

// nodesTold counts, by cluster, of how many nodes a member is told.
func (w *walk) nodesTold(name string) string {
	var out []string
	for _, r := range w.member(name).Sent.RemoteClusters {
		out = append(out, fmt.Sprintf("%s:%d", r.Name, len(r.Nodes)))
	}
	return strings.Join(out, " ")
}

func (w *walk) complaints() string {
	var out []string
	for _, p := range w.in.Set.Status.Problems {
		out = append(out, p.Reason+": "+p.Message)
	}
	return strings.Join(out, "; ")
}

func (w *walk) ready() bool {
	return meta.IsStatusConditionTrue(w.in.Set.Status.Conditions, v1alpha1.ClusterSetReady)
}

func TestAuto(t *testing.T) {
	w := connected(2, 2, 40, 2)
	w.in.Set.Spec.Topology = v1alpha1.TopologySpec{Mode: v1alpha1.TopologyAuto, Pairs: []v1alpha1.TopologyPair{
		{Clusters: []string{"c4", "c1"}, Mode: v1alpha1.TopologyGateways}, pairOf("c4", "c3")}}
	w.step()
	w.expect(t, "c1 is told of", w.nodesTold("c1"), "c2:2 c3:0 c4:0")
	w.expect(t, "c3 is told of", w.nodesTold("c3"), "c1:0 c2:0 c4:2")
	w.expect(t, "c1 says", w.ways("c1"), "c2:Auto c3:Auto:TooManyNodes c4")
	w.expect(t, "c4 says", w.ways("c4"), "c1 c2:Auto c3:Mesh")
	w.expect(t, "problems", w.complaints(), "")
	// What members are told is the same as of Mesh: agents need not know of Auto, and those that published do so on.
	if got := w.told("c1"); got != "c2:Mesh:n00+n01 c3:Mesh: c4::" {
		t.Errorf("c1 is told %s", got)
	}
	w.expect(t, "again", w.step(), "")

	w.in.Set.Spec.Topology.Pairs, w.in.Set.Spec.Topology.MaxNodes = nil, 3
	w.in.Problems = []v1alpha1.Problem{{Reason: v1alpha1.ReasonInvalidSettings}}
	w.expect(t, "what is not valid changes nothing", w.step(), "")
	w.in.Problems = nil
	w.in.Set.Spec.Topology.Mode = v1alpha1.TopologyGateways
	w.step()
	w.expect(t, "c4 says of gateways", w.ways("c4"), "c1 c2 c3")
	w.expect(t, "c4 is told of", w.nodesTold("c4"), "c1:0 c2:0 c3:0")
}

// TestAutoDoesNotSwingWithANode: a pair at the limit stays as it is while a few nodes come and go.
func TestAutoDoesNotSwingWithANode(t *testing.T) {
	w := connected(4, 5)
	w.in.Set.Spec.Topology = v1alpha1.TopologySpec{Mode: v1alpha1.TopologyAuto, MaxNodes: 8}
	for _, step := range []struct {
		nodes int // of c2
		want  string
	}{{5, "c2:0"}, {4, "c2:4"}, {5, "c2:5"}, {6, "c2:6"}, {7, "c2:0"}, {6, "c2:0"}, {5, "c2:0"}, {4, "c2:4"}} {
		w.member("c2").Report.Status.Nodes = nodesOf(2, step.nodes)
		w.step()
		w.expect(t, fmt.Sprintf("with %d nodes", step.nodes), w.nodesTold("c1"), step.want)
	}
}

// TestWhatCanBeNoMesh: of a pair with mode Mesh a person is told why it is none, and the network is ready all the same;
// of one with mode Auto nobody is.
func TestWhatCanBeNoMesh(t *testing.T) {
	publish := func(m *Member, change func(*v1alpha1.MeshNode)) {
		for i := range m.Report.Status.Nodes {
			change(&m.Report.Status.Nodes[i])
		}
	}
	for name, c := range map[string]struct {
		change func(w *walk)
		reason string // of the pair
		want   string // part of the problem
	}{
		"the same address at both sites": {func(w *walk) {
			w.member("c2").Report.Status.Nodes[1].Addresses = []string{"172.31.1.2"}
		}, v1alpha1.ReasonNodeAddressesShared, "both have a node with the address 172.31.1.2"},
		"the address of a node that is not published": {func(w *walk) {
			w.member("c2").Report.Status.NodeCIDRs = []string{"172.31.1.1/32"}
		}, v1alpha1.ReasonNodeAddressesShared, "both have a node with the address 172.31.1.1"},
		"no family in common": {func(w *walk) {
			publish(w.member("c2"), func(n *v1alpha1.MeshNode) { n.Addresses = []string{"fd31::" + n.Name[2:] + "1"} })
		}, v1alpha1.ReasonNodeFamiliesDiffer, "nodes of one have IPv4 and those of the other IPv6 addresses alone"},
		"no node": {func(w *walk) {
			s := &w.member("c2").Report.Status
			s.Nodes, s.Conditions = nil, []metav1.Condition{{Type: v1alpha1.PeeringNodesPublished, Status: metav1.ConditionFalse,
				Reason: "Publishing", Message: "0 nodes are published, reached by gateways alone: b (no spec.podCIDRs)"}}
		}, v1alpha1.ReasonNodesNotPublished, "c2 publishes no node that others could connect to: 0 nodes"},
		"an agent that knows of no mesh": {func(w *walk) { w.member("c2").Report.Status.Nodes = nil },
			v1alpha1.ReasonNodesNotPublished, "c2 publishes no node that others could connect to"},
		"too many nodes in a cluster": {func(w *walk) {
			s := &w.member("c2").Report.Status
			s.Nodes, s.Conditions = nil, []metav1.Condition{{Type: v1alpha1.PeeringNodesPublished, Status: metav1.ConditionFalse,
				Reason: v1alpha1.ReasonTooManyNodes, Message: "the cluster has 65 nodes"}}
		}, v1alpha1.ReasonTooManyNodes, "c2 reports: the cluster has 65 nodes"},
		"no two nodes reach each other": {func(w *walk) {
			w.member("c1").Report.Status.Connections[0].NodePairs, w.member("c2").Report.Status.Connections[0].NodePairs = 4, 4
		}, "", "no two of their nodes reach each other"},
	} {
		for _, mode := range []v1alpha1.TopologyMode{v1alpha1.TopologyMesh, v1alpha1.TopologyAuto} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				w := connected(2, 2)
				w.in.Set.Spec.Topology.Pairs = []v1alpha1.TopologyPair{{Clusters: []string{"c1", "c2"}, Mode: mode}}
				c.change(w)
				w.step()
				w.step() // it has answered that it was asked
				w.expect(t, "c1 says", w.ways("c1"), strings.TrimRight(fmt.Sprintf("c2:%s:%s", mode, c.reason), ":"))
				if (w.nodesTold("c1") == "c2:0") != (c.reason != "") || (w.nodesTold("c2") == "c1:0") != (c.reason != "") {
					t.Errorf("c1 is told of %s, c2 of %s", w.nodesTold("c1"), w.nodesTold("c2"))
				}
				got := w.complaints()
				if mode == v1alpha1.TopologyAuto && got != "" || mode == v1alpha1.TopologyMesh && !strings.Contains(got, c.want) {
					t.Errorf("problems %q, want %q", got, c.want)
				}
				if len(w.in.Set.Status.Problems) > 1 || !w.ready() {
					t.Errorf("problems %s; conditions %v", got, w.in.Set.Status.Conditions)
				}
			})
		}
	}
}

// TestMeshThatWorksInPart: one pair of nodes is enough for no problem, and so is a report that is not known.
func TestMeshThatWorksInPart(t *testing.T) {
	w := connected(2, 2)
	w.in.Set.Spec.Topology.Pairs = []v1alpha1.TopologyPair{pairOf("c1", "c2")}
	w.step()
	of := func(name string) *v1alpha1.MemberConnection { return &w.member(name).Report.Status.Connections[0] }
	of("c1").NodePairs, of("c2").NodePairs = 4, 4
	w.step()
	if !strings.HasPrefix(w.complaints(), v1alpha1.ReasonMeshNotConnected) {
		t.Fatalf("this could not fail: %q", w.complaints())
	}
	of("c2").StraightNodePairs = 1
	w.step()
	w.expect(t, "problems with one that is straight", w.complaints(), "")
	of("c2").StraightNodePairs = 0
	w.member("c2").Lost = true
	w.step()
	if strings.Contains(w.complaints(), v1alpha1.ReasonMeshNotConnected) {
		t.Error(w.complaints())
	}
}

// TestHostileNodesInAuto: what is not sound is left out, and bothers nobody.
func TestHostileNodesInAuto(t *testing.T) {
	w := connected(2, 2)
	w.in.Set.Spec.Topology.Mode = v1alpha1.TopologyAuto
	w.member("c2").Report.Status.Nodes[1].PodCIDRs = []string{"10.1.0.0/24"}
	w.step()
	w.expect(t, "c1 is told of", w.nodesTold("c1"), "c2:1")
	w.expect(t, "problems", w.complaints(), "")
}

// TestAutoTakesWhatIsLeft: of the nodes that a member may be told of, pairs with mode Mesh take theirs first, then
// those that are in force.
func TestAutoTakesWhatIsLeft(t *testing.T) {
	counts := make([]int, 10)
	for i := range counts {
		counts[i] = v1alpha1.MaxMeshNodes
	}
	w := connected(counts...)
	w.in.Set.Spec.Topology = v1alpha1.TopologySpec{MaxNodes: 128}
	auto := func(from, to int) {
		for i := from; i <= to; i++ {
			w.in.Set.Spec.Topology.Pairs = append(w.in.Set.Spec.Topology.Pairs, v1alpha1.TopologyPair{
				Clusters: []string{"c1", fmt.Sprintf("c%d", i)}, Mode: v1alpha1.TopologyAuto})
		}
	}
	auto(3, 10)
	w.step()
	w.expect(t, "eight", w.nodesTold("c1"), "c10:64 c2:0 c3:64 c4:64 c5:64 c6:64 c7:64 c8:64 c9:64")
	auto(2, 2)
	w.step()
	w.expect(t, "a ninth", w.nodesTold("c1"), "c10:64 c2:0 c3:64 c4:64 c5:64 c6:64 c7:64 c8:64 c9:64")
	w.expect(t, "c2 says", w.ways("c2"), "c1:Auto:MeshTooLarge c10 c3 c4 c5 c6 c7 c8 c9")
	w.expect(t, "problems", w.complaints(), "")
	last := len(w.in.Set.Spec.Topology.Pairs) - 1
	w.in.Set.Spec.Topology.Pairs[last].Mode = v1alpha1.TopologyMesh
	w.step()
	w.expect(t, "somebody chose it", w.nodesTold("c1"), "c10:64 c2:64 c3:64 c4:64 c5:64 c6:64 c7:64 c8:64 c9:0")
}

// BenchmarkAuto is one decision for many members with mode Auto for all pairs.
func BenchmarkAuto(b *testing.B) {
	var members []Member
	for i := range 200 {
		m := known(1)
		m.Record.Name = fmt.Sprintf("c%03d", i)
		s := &m.Report.Status
		s.Networks = v1alpha1.Networks{PodCIDRs: []string{fmt.Sprintf("10.%d.0.0/16", i)},
			ServiceCIDRs: []string{fmt.Sprintf("172.16.%d.0/24", i)}}
		s.NodeCIDRs, s.Endpoints = nil, nil
		for k := range 8 {
			address := fmt.Sprintf("192.168.%d.%d", i, k+1)
			s.NodeCIDRs = append(s.NodeCIDRs, address+"/32")
			s.Nodes = append(s.Nodes, v1alpha1.MeshNode{Name: fmt.Sprintf("n%d", k), PublicKey: wideKey(i, k),
				Addresses: []string{address}, PodCIDRs: []string{fmt.Sprintf("10.%d.%d.0/24", i, k)}})
		}
		members = append(members, m)
	}
	for _, mode := range []v1alpha1.TopologyMode{v1alpha1.TopologyGateways, v1alpha1.TopologyAuto} {
		b.Run(string(mode), func(b *testing.B) {
			w := newWalk(members...)
			w.in.Set.Spec.Topology.Mode = mode
			w.step()
			for b.Loop() {
				Decide(w.in)
			}
		})
	}
}
