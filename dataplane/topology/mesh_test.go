// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
)

func meshNode(name, key, address string, pods ...string) v1alpha1.MeshNode {
	return v1alpha1.MeshNode{Name: name, PublicKey: key, Addresses: []string{address}, PodCIDRs: pods, MTU: 1420}
}

// meshed is the sound input with two nodes of c2, one of which is its gateway g0, and one of c3.
func meshed() topology.Input {
	in := input()
	c2, c3 := &in.Peering.Spec.RemoteClusters[0], &in.Peering.Spec.RemoteClusters[1]
	c2.Nodes = []v1alpha1.MeshNode{meshNode("g0", key(2), "172.31.2.2", "10.9.2.0/24"),
		meshNode("w1", key(6), "172.31.2.1", "10.9.1.0/24")}
	c3.Nodes = []v1alpha1.MeshNode{meshNode("w1", key(7), "172.31.2.1", "10.10.1.0/24")}
	return in
}

func TestMesh(t *testing.T) {
	got := topology.Build(meshed())
	node := func(name string, key byte, address, pods string) topology.MeshNode {
		return topology.MeshNode{Name: name, PublicKey: topology.Key{key}, MTU: 1420,
			Addresses: []netip.Addr{netip.MustParseAddr(address)}, Pods: prefixes(pods)}
	}
	want := [][]topology.MeshNode{{node("g0", 2, "172.31.2.2", "10.9.2.0/24"), node("w1", 6, "172.31.2.1", "10.9.1.0/24")},
		{node("w1", 7, "172.31.2.1", "10.10.1.0/24")}}
	if diff := cmp.Diff(want, [][]topology.MeshNode{got.Remotes[0].Nodes, got.Remotes[1].Nodes}, exact); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if len(got.Problems) > 0 {
		t.Error(got.Problems)
	}
}

// TestBadMeshNodes: what a node of c2 claims beside what is its own is left out, and nothing else is.
func TestBadMeshNodes(t *testing.T) {
	tests := []struct {
		name   string
		node   v1alpha1.MeshNode
		reason string
	}{
		{"name", meshNode("x y", key(9), "172.31.2.9", "10.9.9.0/24"), topology.ReasonInvalidName},
		{"a name twice", meshNode("w1", key(9), "172.31.2.9", "10.9.9.0/24"), topology.ReasonDuplicate},
		{"no key", meshNode("x", "", "172.31.2.9", "10.9.9.0/24"), topology.ReasonInvalidPublicKey},
		{"our gateway's key", meshNode("x", key(1), "172.31.2.9", "10.9.9.0/24"), topology.ReasonDuplicate},
		{"another gateway's key", meshNode("x", key(3), "172.31.2.9", "10.9.9.0/24"), topology.ReasonDuplicate},
		{"the key of a gateway of that name elsewhere", meshNode("g0", key(4), "172.31.2.9", "10.9.9.0/24"),
			topology.ReasonDuplicate},
		{"another node's key", meshNode("x", key(6), "172.31.2.9", "10.9.9.0/24"), topology.ReasonDuplicate},
		{"no pods", meshNode("x", key(9), "172.31.2.9"), topology.ReasonNoPods},
		{"another node's pods", meshNode("x", key(9), "172.31.2.9", "10.9.1.0/25"), topology.ReasonOverlap},
		{"all pods of its cluster", meshNode("x", key(9), "172.31.2.9", "10.9.0.0/16"), topology.ReasonOverlap},
		{"pods twice", meshNode("x", key(9), "172.31.2.9", "10.9.9.0/24", "10.9.9.0/25"), topology.ReasonOverlap},
		{"services of its cluster", meshNode("x", key(9), "172.31.2.9", "10.99.9.0/24"), topology.ReasonOverlap},
		{"another cluster's pods", meshNode("x", key(9), "172.31.2.9", "10.10.9.0/24"), topology.ReasonOverlap},
		{"our pods", meshNode("x", key(9), "172.31.2.9", "10.8.9.0/24"), topology.ReasonOverlap},
		{"more than its cluster's pods", meshNode("x", key(9), "172.31.2.9", "10.9.0.0/15"), topology.ReasonNotMasked},
		{"no network", meshNode("x", key(9), "172.31.2.9", "10.9.9.0"), topology.ReasonInvalidCIDR},
		{"a node of ours", meshNode("x", key(9), "172.31.1.11", "10.9.9.0/24"), topology.ReasonInvalidAddress},
		{"an address among our pods", meshNode("x", key(9), "10.8.1.7", "10.9.9.0/24"), topology.ReasonInvalidAddress},
		{"an address among its pods", meshNode("x", key(9), "10.9.9.7", "10.9.9.0/24"), topology.ReasonInvalidAddress},
		{"an address among others' pods", meshNode("x", key(9), "10.10.9.7", "10.9.9.0/24"), topology.ReasonInvalidAddress},
		{"another node's address", meshNode("x", key(9), "172.31.2.1", "10.9.9.0/24"), topology.ReasonDuplicate},
		{"no address of a host", meshNode("x", key(9), "127.0.0.1", "10.9.9.0/24"), topology.ReasonInvalidAddress},
		{"no address", v1alpha1.MeshNode{Name: "x", PublicKey: key(9), PodCIDRs: []string{"10.9.9.0/24"}},
			topology.ReasonNoAddress},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in := meshed()
			c2 := &in.Peering.Spec.RemoteClusters[0]
			c2.Nodes = append(c2.Nodes, test.node)
			got := topology.Build(in)
			if len(got.Problems) != 1 || got.Problems[0].Ref != "RemoteCluster/c2" || got.Problems[0].Reason != test.reason {
				t.Errorf("want one problem %s of c2, got %+v", test.reason, got.Problems)
			}
			got.Problems = nil
			if test.node.Name == "w1" {
				return // which of two namesakes stays is not said
			}
			if diff := cmp.Diff(topology.Build(meshed()), got, exact); diff != "" {
				t.Errorf("something else changed (-want +got)\n%s", diff)
			}
		})
	}
}

func TestMeshIsBounded(t *testing.T) {
	in := meshed()
	c2 := &in.Peering.Spec.RemoteClusters[0]
	for i := range 70 {
		c2.Nodes = append(c2.Nodes, meshNode(fmt.Sprintf("x%02d", i), key(byte(20+i)), fmt.Sprintf("172.31.3.%d", i+1),
			fmt.Sprintf("10.9.%d.0/24", 100+i)))
	}
	got := topology.Build(in)
	if n := len(got.Remotes[0].Nodes); n != v1alpha1.MaxMeshNodes {
		t.Errorf("%d nodes", n)
	}
	if len(got.Problems) != 1 || got.Problems[0].Reason != topology.ReasonTooManyNodes {
		t.Error(got.Problems)
	}
}

func TestMeshNeedsAPort(t *testing.T) {
	in := meshed()
	in.Peering.Spec.Cable.VXLANPort = 4532
	got := topology.Build(in)
	if len(got.Remotes[0].Nodes)+len(got.Remotes[1].Nodes) > 0 || len(got.Problems) != 2 ||
		got.Problems[0].Reason != topology.ReasonInvalidPort {
		t.Errorf("nodes %v, problems %v", got.Remotes[0].Nodes, got.Problems)
	}
}

// checkMesh holds what every consumer relies on: pods of a node are routed to its cluster and are no other node's, and
// no node is reached by way of a cluster's networks. A key is that of one node, which may be a gateway.
func checkMesh(t *testing.T, r topology.Remote, keys map[topology.Key]string, routed []netip.Prefix) {
	t.Helper()
	var taken []netip.Prefix
	for _, n := range r.Nodes {
		id := fmt.Sprintf("%s/%s", r.Name, n.Name)
		if other, dup := keys[n.PublicKey]; dup && other != id || n.PublicKey == (topology.Key{}) {
			t.Errorf("key of %s is that of %q or zero", id, other)
		}
		keys[n.PublicKey] = id
		if len(n.Addresses) == 0 || len(n.Addresses) > 2 || len(n.Pods) == 0 {
			t.Errorf("%s has addresses %v, pods %v", id, n.Addresses, n.Pods)
		}
		for _, a := range n.Addresses {
			for _, p := range routed {
				if p.Contains(a) {
					t.Errorf("address %s of %s is in %s", a, id, p)
				}
			}
		}
		for _, p := range n.Pods {
			inside := false
			for _, q := range r.Routed {
				inside = inside || q.Bits() <= p.Bits() && q.Contains(p.Addr())
			}
			for _, q := range taken {
				if p.Overlaps(q) {
					t.Errorf("%s of %s overlaps %s", p, id, q)
				}
			}
			if !inside {
				t.Errorf("%s of %s is not routed to its cluster", p, id)
			}
			taken = append(taken, p)
		}
	}
}
