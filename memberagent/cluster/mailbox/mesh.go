// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// meshed says that other clusters want to connect to this one's nodes.
func meshed(p *v1alpha1.Peering) bool {
	return slices.ContainsFunc(p.Spec.RemoteClusters, func(r v1alpha1.RemoteCluster) bool {
		return r.Topology == v1alpha1.TopologyMesh
	})
}

// keysOf returns what agents publish, by node. Of two agents of one node, in a roll-out, both have the node's key.
func keysOf(agents []nodeAgent) map[string]v1alpha1.NodeKey {
	keys := map[string]v1alpha1.NodeKey{}
	for _, a := range agents {
		if a.key != (v1alpha1.NodeKey{}) && (keys[a.node] == v1alpha1.NodeKey{} || !a.ending) {
			keys[a.node] = a.key
		}
	}
	return keys
}

// meshNodes returns the nodes that have a key, an address and pods of their own, and the condition NodesPublished. A
// node whose agent is away for the moment keeps the key that was reported last: whether it answers is for probes to
// say. A cluster with too many nodes publishes none, so that its pods are not reached in two ways that nobody chose
// between; and one whose pods are not where the spec.podCIDRs of its nodes say cannot tell which node to send to.
func meshNodes(in Input) ([]v1alpha1.MeshNode, metav1.Condition) {
	if in.Elsewhere {
		return nil, condition(v1alpha1.PeeringNodesPublished, false, v1alpha1.ReasonNodesNotPublished, "pods have addresses "+
			"beyond the spec.podCIDRs of their nodes (kubectl get nodenetworks), which other clusters' nodes cannot know: they "+
			"are reached by gateways")
	}
	last := map[string]v1alpha1.NodeKey{}
	for _, n := range in.Peering.Status.Nodes {
		last[n.Name] = v1alpha1.NodeKey{PublicKey: n.PublicKey, MTU: n.MTU}
	}
	var out []v1alpha1.MeshNode
	var lacking []string
	for i := range in.Members {
		n := &in.Members[i]
		key, ok := in.Keys[n.Name]
		if !ok {
			key, ok = last[n.Name]
		}
		m := v1alpha1.MeshNode{Name: n.Name, PublicKey: key.PublicKey, MTU: key.MTU, Addresses: internalIPs(n),
			PodCIDRs: slices.Clone(n.Spec.PodCIDRs)}
		switch {
		case n.DeletionTimestamp != nil:
		case !ok:
			lacking = append(lacking, n.Name+" (no key)")
		case len(m.Addresses) == 0:
			lacking = append(lacking, n.Name+" (no InternalIP)")
		case len(m.PodCIDRs) == 0:
			lacking = append(lacking, n.Name+" (no spec.podCIDRs)")
		default:
			out = append(out, m)
		}
	}
	if n := len(out); n > v1alpha1.MaxMeshNodes {
		return nil, condition(v1alpha1.PeeringNodesPublished, false, v1alpha1.ReasonTooManyNodes,
			"the cluster has %d nodes, "+
				"and one of a mesh at most %d: its pods are reached by gateways; take it out of the pairs with mode Mesh", n,
			v1alpha1.MaxMeshNodes)
	}
	slices.SortFunc(out, func(a, b v1alpha1.MeshNode) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(lacking)
	if len(lacking) > 0 {
		return out, condition(v1alpha1.PeeringNodesPublished, false, reasonPublishing, "%d nodes are published, and reached "+
			"by gateways alone are %s", len(out), some(lacking))
	}
	return out, condition(v1alpha1.PeeringNodesPublished, true, v1alpha1.ReasonKeyPublished, "%s",
		fmt.Sprintf("%d nodes are published", len(out)))
}

// reasonPublishing of PeeringNodesPublished: a node has not all that it takes.
const reasonPublishing = "Publishing"

// internalIPs returns the first of each family.
func internalIPs(n *corev1.Node) []string {
	var out []string
	has := map[bool]bool{} // by whether it is IPv4
	for _, address := range n.Status.Addresses {
		a, err := netip.ParseAddr(address.Address)
		if address.Type != corev1.NodeInternalIP || err != nil || has[a.Is4()] {
			continue
		}
		has[a.Is4()] = true
		out = append(out, a.String())
	}
	return out
}

// reached sums up to how many nodes of each cluster those here send without gateways. What an agent says that is not
// heard of is of the past.
func reached(agents []nodeAgent) map[string]int32 {
	out := map[string]int32{}
	for _, a := range agents {
		var counts map[string]int32
		if a.unready || a.ending || json.Unmarshal([]byte(a.reached), &counts) != nil {
			continue
		}
		for cluster, n := range counts {
			out[cluster] += min(max(n, 0), v1alpha1.MaxMeshNodes)
		}
	}
	return out
}

// countPairs says of the connections to clusters of a mesh how many pairs of nodes there are, and use it. own is how
// many nodes are published here.
func countPairs(connections []v1alpha1.MemberConnection, in Input, own int) {
	for i := range connections {
		c := &connections[i]
		for _, r := range in.Peering.Spec.RemoteClusters {
			if r.Name == c.Cluster && r.Topology == v1alpha1.TopologyMesh {
				c.NodePairs = int32(own * len(r.Nodes))
				c.StraightNodePairs = min(in.Reached[c.Cluster], c.NodePairs)
			}
		}
	}
}

// uncounted is a copy of connections without the numbers of pairs.
func uncounted(connections []v1alpha1.MemberConnection) []v1alpha1.MemberConnection {
	out := slices.Clone(connections)
	for i := range out {
		out[i].NodePairs, out[i].StraightNodePairs = 0, 0
	}
	return out
}
