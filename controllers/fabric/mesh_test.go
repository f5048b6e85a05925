// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func pairOf(a, b string) v1alpha1.TopologyPair {
	return v1alpha1.TopologyPair{Clusters: []string{a, b}, Mode: v1alpha1.TopologyMesh}
}

// nodesOf are n nodes of cluster c<i>.
func nodesOf(i, n int) []v1alpha1.MeshNode {
	var out []v1alpha1.MeshNode
	for k := range n {
		out = append(out, v1alpha1.MeshNode{Name: fmt.Sprintf("n%02d", k), PublicKey: key(byte(100*i + k)), MTU: 1420,
			Addresses: []string{fmt.Sprintf("172.31.%d.%d", i, k+1)}, PodCIDRs: []string{fmt.Sprintf("10.%d.%d.0/24", i, k)}})
	}
	return out
}

// told renders what a member is told of the nodes of the others.
func (w *walk) told(name string) string {
	var out []string
	for _, r := range w.member(name).Sent.RemoteClusters {
		var nodes []string
		for _, n := range r.Nodes {
			nodes = append(nodes, n.Name)
		}
		out = append(out, fmt.Sprintf("%s:%s:%s", r.Name, r.Topology, strings.Join(nodes, "+")))
	}
	return strings.Join(out, " ")
}

func TestMesh(t *testing.T) {
	w := newWalk(known(1), known(2), known(3))
	w.in.Set.Spec.Topology.Pairs = []v1alpha1.TopologyPair{pairOf("c2", "c1"), pairOf("c1", "gone")}
	for i, name := range []string{"c1", "c2", "c3"} {
		w.member(name).Report.Status.Nodes = nodesOf(i+1, 2)
	}
	w.step()
	w.expect(t, "c1", w.told("c1"), "c2:Mesh:n00+n01 c3::")
	w.expect(t, "c2", w.told("c2"), "c1:Mesh:n00+n01 c3::")
	w.expect(t, "c3, which is one of no pair", w.told("c3"), "c1:: c2::")
	if n := len(w.member("c3").Record.Status.Nodes); n != 0 {
		t.Errorf("%d nodes of c3 are kept", n)
	}
	w.expect(t, "again", w.step(), "")

	w.member("c2").Report.Status.Nodes = nodesOf(2, 1)
	w.expect(t, "a node leaves", w.step(), "c1")
	w.expect(t, "c1", w.told("c1"), "c2:Mesh:n00 c3::")
	w.silence("c2")
	w.expect(t, "c2 is unknown", w.step(), "")
	w.expect(t, "c1", w.told("c1"), "c2:Mesh:n00 c3::")

	w.in.Set.Spec.Topology.Pairs = nil
	w.in.Problems = []v1alpha1.Problem{{Reason: v1alpha1.ReasonInvalidSettings}}
	w.expect(t, "what is not valid changes nothing", w.step(), "")
	w.in.Problems = nil
	w.expect(t, "the pair is no more", w.step(), "c1,c2")
	w.expect(t, "c1", w.told("c1"), "c2:: c3::")
}

// TestHostileNodes: a member is believed of its own nodes alone.
func TestHostileNodes(t *testing.T) {
	node := func(change func(*v1alpha1.MeshNode)) v1alpha1.MeshNode {
		n := nodesOf(2, 8)[7]
		change(&n)
		return n
	}
	for name, c := range map[string]struct {
		node v1alpha1.MeshNode
		want string // part of the problem
	}{
		"sound": {node(func(*v1alpha1.MeshNode) {}), ""},
		"pods of another node": {node(func(n *v1alpha1.MeshNode) { n.PodCIDRs = []string{"10.2.0.0/25"} }),
			"overlaps 10.2.0.0/24 of node n00"},
		"pods of another cluster": {node(func(n *v1alpha1.MeshNode) { n.PodCIDRs = []string{"10.1.7.0/24"} }),
			"10.1.7.0/24 is in none of its cluster"},
		"all pods": {node(func(n *v1alpha1.MeshNode) { n.PodCIDRs = []string{"10.2.0.0/15"} }), "in none of its cluster"},
		"key of another cluster's node": {node(func(n *v1alpha1.MeshNode) { n.PublicKey = key(100) }),
			"its public key is that of a node of c1"},
		"key of another cluster's gateway": {node(func(n *v1alpha1.MeshNode) {
			n.PublicKey = reported(3).Endpoints[0].PublicKey
		}), "its public key is that of a node of c3"},
		"key of its own gateway": {node(func(n *v1alpha1.MeshNode) { n.PublicKey = reported(2).Endpoints[0].PublicKey }),
			"its public key is that of node"},
		"address among pods": {node(func(n *v1alpha1.MeshNode) { n.Addresses = []string{"10.3.0.1"} }),
			"address 10.3.0.1 is in network 10.3.0.0/16 of c3"},
		"address of nobody": {node(func(n *v1alpha1.MeshNode) { n.Addresses = []string{"127.0.0.1"} }), "127.0.0.1"},
		"many addresses": {node(func(n *v1alpha1.MeshNode) {
			n.Addresses = []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}
		}), "3 addresses, expected 1 to 2"},
		"no pods":          {node(func(n *v1alpha1.MeshNode) { n.PodCIDRs = nil }), "0 pod networks"},
		"a name":           {node(func(n *v1alpha1.MeshNode) { n.Name = "x y" }), "the name is not a node's"},
		"a name twice":     {node(func(n *v1alpha1.MeshNode) { n.Name = "n00" }), "there is another of that name"},
		"an MTU too small": {node(func(n *v1alpha1.MeshNode) { n.MTU = 68 }), "MTU 68"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWalk(known(1), known(2), known(3))
			w.in.Set.Spec.Topology.Pairs = []v1alpha1.TopologyPair{pairOf("c1", "c2")}
			w.member("c1").Report.Status.Nodes = nodesOf(1, 2)
			w.member("c2").Report.Status.Nodes = nodesOf(2, 2)
			w.step()
			w.member("c2").Report.Status.Nodes = append(nodesOf(2, 2), c.node)
			w.step()
			want, problems := "c2:Mesh:n00+n01+n07 c3::", w.in.Set.Status.Problems
			if c.want != "" {
				want = "c2:Mesh:n00+n01 c3::"
				if len(problems) != 1 || problems[0].Cluster != "c2" || problems[0].Reason != v1alpha1.ReasonInvalidNodes ||
					!strings.Contains(problems[0].Message, c.want) {
					t.Errorf("problems %v, want one with %q", problems, c.want)
				}
			} else if len(problems) > 0 {
				t.Error(problems)
			}
			w.expect(t, "c1 is told of", w.told("c1"), want)
			w.expect(t, "c2 is told of", w.told("c2"), "c1:Mesh:n00+n01 c3::")
		})
	}
}

// TestMeshIsBounded: what a member is told of stays small, in the same way at both ends of a pair.
func TestMeshIsBounded(t *testing.T) {
	const clusters = 11
	var members []Member
	for i := range clusters {
		m := known(i + 1)
		for k := range v1alpha1.MaxMeshNodes {
			n := v1alpha1.MeshNode{Name: fmt.Sprintf("n%02d", k), Addresses: []string{fmt.Sprintf("172.31.%d.%d", i, k+1)},
				PublicKey: wideKey(i, k), PodCIDRs: []string{fmt.Sprintf("10.%d.%d.0/24", i+1, k)}}
			m.Report.Status.Nodes = append(m.Report.Status.Nodes, n)
		}
		members = append(members, m)
	}
	w := newWalk(members...)
	for i := 2; i <= clusters; i++ {
		w.in.Set.Spec.Topology.Pairs = append(w.in.Set.Spec.Topology.Pairs, pairOf("c1", fmt.Sprintf("c%d", i)))
	}
	w.step()
	total, refused := 0, 0
	for _, r := range w.member("c1").Sent.RemoteClusters {
		total += len(r.Nodes)
		other := w.member(r.Name).Sent.RemoteClusters[0]
		if r.Topology != v1alpha1.TopologyMesh || (len(r.Nodes) == 0) != (len(other.Nodes) == 0) {
			t.Errorf("c1 has %d nodes of %s, which has %d of c1", len(r.Nodes), r.Name, len(other.Nodes))
		}
	}
	for _, p := range w.in.Set.Status.Problems {
		if p.Reason == v1alpha1.ReasonMeshTooLarge && strings.Contains(p.Message, "go on by gateways") {
			refused++
		}
	}
	if total != v1alpha1.MaxMeshRemoteNodes || refused != 2 {
		t.Errorf("c1 is told of %d nodes, and %d pairs are refused: %v", total, refused, w.in.Set.Status.Problems)
	}
	w.member("c2").Report = Report{}
	many := reported(2)
	many.Nodes = nodesOf(2, v1alpha1.MaxMeshNodes+1)
	if r := ParseReport("c2", raw(t, many), 0); r.Problem == nil || r.Problem.Reason != v1alpha1.ReasonStatusTooLarge {
		t.Errorf("a report with too many nodes is used: %v", r.Problem)
	}
}

func raw(t *testing.T, status v1alpha1.PeeringStatus) []byte {
	t.Helper()
	text, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// wideKey is the key of a node, of which there are more than key has.
func wideKey(cluster, node int) string {
	k := bytes.Repeat([]byte{0xee}, 32)
	k[0], k[1] = byte(cluster), byte(node)
	return base64.StdEncoding.EncodeToString(k)
}

func TestPairsOfNodes(t *testing.T) {
	for _, c := range []struct {
		pairs, straight int32
		want            string
	}{{4, 3, "4 3"}, {4, 5, "0 0"}, {4, -1, "0 0"}, {1 << 20, 1, "0 0"}, {0, 0, "0 0"}} {
		w := newWalk(known(1), known(2))
		w.member("c1").Report.Status.Connections = []v1alpha1.MemberConnection{{Cluster: "c2",
			Status: v1alpha1.ConnectionConnected, NodePairs: c.pairs, StraightNodePairs: c.straight}}
		w.step()
		got := w.member("c1").Record.Status.Connections[0]
		w.expect(t, "pairs", fmt.Sprint(got.NodePairs, " ", got.StraightNodePairs), c.want)
	}
}
