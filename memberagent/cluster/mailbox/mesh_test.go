// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func member(name string, pods []string, addresses ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: pods}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// meshInput is a cluster that c2 wants to connect to, with two nodes that have all that it takes.
func meshInput() Input {
	in := peeringInput()
	in.Peering.Spec.RemoteClusters[1].Topology = v1alpha1.TopologyMesh
	in.Members = []corev1.Node{member("b", []string{"10.8.2.0/24", "fd08:2::/64"}, "172.31.1.2", "172.31.1.3", "fd31::2"),
		member("a", []string{"10.8.1.0/24"}, "172.31.1.1")}
	in.Keys = map[string]v1alpha1.NodeKey{"a": {PublicKey: "key-of-a", MTU: 1420}, "b": {PublicKey: "key-of-b"}}
	return in
}

func names(nodes []v1alpha1.MeshNode) string {
	var out []string
	for _, n := range nodes {
		out = append(out, fmt.Sprintf("%s %s %s %s %d", n.Name, n.PublicKey, strings.Join(n.Addresses, "+"),
			strings.Join(n.PodCIDRs, "+"), n.MTU))
	}
	return strings.Join(out, "; ")
}

func TestMeshNodes(t *testing.T) {
	const both = "a key-of-a 172.31.1.1 10.8.1.0/24 1420; b key-of-b 172.31.1.2+fd31::2 10.8.2.0/24+fd08:2::/64 0"
	const onlyA = "a key-of-a 172.31.1.1 10.8.1.0/24 1420"
	for name, c := range map[string]struct {
		change func(*Input)
		want   string
		reason string // of NodesPublished; "" for none
		says   string
	}{
		"all":             {func(*Input) {}, both, v1alpha1.ReasonKeyPublished, "2 nodes are published"},
		"nobody wants it": {func(in *Input) { in.Peering.Spec.RemoteClusters[1].Topology = "" }, "", "", ""},
		"an agent that is away keeps the node's key": {func(in *Input) {
			in.Peering.Status.Nodes = []v1alpha1.MeshNode{{Name: "b", PublicKey: "key-of-b"}}
			delete(in.Keys, "b")
		}, both, v1alpha1.ReasonKeyPublished, "2 nodes"},
		"an agent that has not come yet": {func(in *Input) { delete(in.Keys, "b") }, onlyA, reasonPublishing, "b (no key)"},
		"a node that is gone": {func(in *Input) {
			in.Peering.Status.Nodes = []v1alpha1.MeshNode{{Name: "b", PublicKey: "key-of-b"}}
			in.Members = in.Members[1:]
		}, onlyA, v1alpha1.ReasonKeyPublished, "1 nodes"},
		"no pods": {func(in *Input) { in.Members[0].Spec.PodCIDRs = nil }, onlyA, reasonPublishing, "b (no spec.podCIDRs)"},
		"no address": {func(in *Input) { in.Members[0].Status.Addresses = nil }, onlyA, reasonPublishing,
			"b (no InternalIP)"},
		"too many": {func(in *Input) {
			for i := range 63 {
				name := fmt.Sprintf("n%02d", i)
				in.Members = append(in.Members, member(name, []string{fmt.Sprintf("10.8.%d.0/24", 100+i)}, "192.0.2.1"))
				in.Keys[name] = v1alpha1.NodeKey{PublicKey: name}
			}
		}, "", v1alpha1.ReasonTooManyNodes, "the cluster has 65 nodes, and one of a mesh at most 64"},
	} {
		t.Run(name, func(t *testing.T) {
			in := meshInput()
			c.change(&in)
			status := PeeringStatus(in)
			if got := names(status.Nodes); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			published := meta.FindStatusCondition(status.Conditions, v1alpha1.PeeringNodesPublished)
			if c.reason == "" && published != nil || c.reason != "" && (published == nil || published.Reason != c.reason ||
				!strings.Contains(published.Message, c.says)) {
				t.Errorf("condition %v", published)
			}
			in.Peering.Status = status
			if again := PeeringStatus(in); !equality.Semantic.DeepEqual(status, again) {
				t.Errorf("the same is reported in another way: %v, %v", status, again)
			}
		})
	}
}

func TestKeysOfAgents(t *testing.T) {
	pod := func(name, node, message string) nodeAgent {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}}
		p.Status.Conditions = []corev1.PodCondition{{Type: v1alpha1.PodNodeKey, Status: corev1.ConditionTrue,
			Message: message}}
		return agentOf(p)
	}
	keys := keysOf([]nodeAgent{pod("p1", "a", `{"publicKey":"k","mtu":1420}`), pod("p2", "b", `{"publicKey":`),
		pod("p3", "c", "")})
	if len(keys) != 1 || keys["a"] != (v1alpha1.NodeKey{PublicKey: "k", MTU: 1420}) {
		t.Errorf("keys %v", keys)
	}
}

func TestPairsOfNodes(t *testing.T) {
	agent := func(name, message string, unready bool) nodeAgent {
		return nodeAgent{pod: name, reached: message, unready: unready}
	}
	in := meshInput()
	in.Peering.Spec.RemoteClusters[1].Nodes = make([]v1alpha1.MeshNode, 3)
	for _, c := range []struct {
		agents []nodeAgent
		want   string
	}{
		{[]nodeAgent{agent("a", `{"c2":3}`, false), agent("b", `{"c2":2,"c9":1}`, false)}, "c2 6 5 c3 0 0"},
		{[]nodeAgent{agent("a", `{"c2":3}`, false), agent("b", `{"c2":2}`, true)}, "c2 6 3 c3 0 0"},
		{[]nodeAgent{agent("a", `{"c2":3}`, false), agent("b", `{"c2":-9}`, false)}, "c2 6 3 c3 0 0"},
		{[]nodeAgent{agent("a", `{"c2":30000,"c3":1}`, false), agent("b", "", false)}, "c2 6 6 c3 0 0"},
	} {
		in.Reached = reached(c.agents)
		status := PeeringStatus(in)
		var got []string
		for _, c := range status.Connections {
			got = append(got, fmt.Sprintf("%s %d %d", c.Cluster, c.NodePairs, c.StraightNodePairs))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%v: %s, want %s", c.agents, text, c.want)
		}
		other := *status.DeepCopy()
		other.Connections[0].StraightNodePairs++
		if paceOf(status, other) != nodesPace {
			t.Error("a pair of nodes that falls back is in a hurry")
		}
	}
}
