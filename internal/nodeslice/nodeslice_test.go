// SPDX-License-Identifier: Apache-2.0

package nodeslice_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/nodeslice"
)

func node(i int) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d.example.org", i)},
		Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255), fmt.Sprintf("fd00:%x::/64", i)}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.16.%d.%d", i>>8, i&255)},
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("fd01::%x", i)}}}}
	if i%100 == 0 {
		n.Annotations = map[string]string{v1alpha1.AnnotationPublicIP: "dns:gw.example.org"}
	}
	return n
}

// divide is of nodes of which nothing was told before.
func divide(nodes []corev1.Node) map[string]v1alpha1.NodeSliceSpec {
	specs, _ := nodeslice.Divide(nodes, nil)
	return specs
}

func objects(specs map[string]v1alpha1.NodeSliceSpec) (out []v1alpha1.NodeSlice) {
	for name, spec := range specs {
		out = append(out, v1alpha1.NodeSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	}
	return out
}

// TestOfAThousandNodes nothing is lost, each slice is small, and one node that changes changes one slice.
func TestOfAThousandNodes(t *testing.T) {
	var nodes []corev1.Node
	for i := range 1000 {
		nodes = append(nodes, node(i))
	}
	want := slices.Clone(nodes)
	slices.Reverse(nodes)
	divided := divide(nodes)
	got, all := nodeslice.Join(objects(divided))
	if !all || !reflect.DeepEqual(got, want) {
		t.Errorf("all %v, %d nodes, expected those that were divided", all, len(got))
	}
	for name, s := range divided {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if limit := 16 << 10; len(text) > limit {
			t.Errorf("%s has %d bytes of JSON, limit %d", name, len(text), limit)
		}
	}
	nodes[500].Status.Addresses[0].Address = "192.0.2.1"
	changed := 0
	for name, s := range divide(nodes) {
		if !reflect.DeepEqual(s, divided[name]) {
			changed++
		}
	}
	if changed != 1 {
		t.Errorf("%d slices changed with one node", changed)
	}
}

// TestWhatIsMissingOrForeign: without one of the slices nothing is known, and a slice says nothing of nodes of others.
func TestWhatIsMissingOrForeign(t *testing.T) {
	have := objects(divide([]corev1.Node{node(1), node(2)}))
	if nodes, all := nodeslice.Join(have); !all || len(nodes) != 2 {
		t.Fatalf("all %v, %d nodes", all, len(nodes))
	}
	for i := range have {
		if _, all := nodeslice.Join(slices.Delete(slices.Clone(have), i, i+1)); all {
			t.Errorf("known without %s", have[i].Name)
		}
	}
	if _, all := nodeslice.Join(nil); all {
		t.Error("known without any")
	}
	foreign := v1alpha1.NodeSlice{ObjectMeta: metav1.ObjectMeta{Name: "nodes-99"},
		Spec: v1alpha1.NodeSliceSpec{Nodes: []v1alpha1.SliceNode{{Name: "node-0001.example.org"}, {Name: "x"}}}}
	for i := range have {
		if !slices.ContainsFunc(have[i].Spec.Nodes, func(n v1alpha1.SliceNode) bool { return n.Name == node(1).Name }) {
			have[i].Spec.Nodes = append(have[i].Spec.Nodes, v1alpha1.SliceNode{Name: node(1).Name,
				Addresses: []string{"192.0.2.9"}})
		}
	}
	nodes, all := nodeslice.Join(append(have, foreign))
	if !all || !reflect.DeepEqual(nodes, []corev1.Node{node(1), node(2)}) {
		t.Errorf("all %v, nodes %v", all, nodes)
	}
	if _, all := nodeslice.Join(append(slices.Delete(slices.Clone(have), 0, 1), foreign)); all {
		t.Error("a foreign slice stands in for one that is missing")
	}
}

// TestReleasesAgreeInWhichSliceANodeIs: whoever reads these slices may be older than who writes them, and takes a node
// for gone that is in another one than it expects.
func TestReleasesAgreeInWhichSliceANodeIs(t *testing.T) {
	if names := nodeslice.Names(); len(names) != 16 || names[0] != "nodes-00" || names[15] != "nodes-15" {
		t.Errorf("the slices are %v", names)
	}
	for node, want := range map[string]string{"n": "nodes-01", "node-a": "nodes-03", "node-b": "nodes-06",
		"ip-10-0-0-1.eu-west-1.compute.internal": "nodes-08"} {
		divided := divide([]corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: node}}})
		if got := divided[want].Nodes; len(got) != 1 || got[0].Name != node {
			t.Errorf("%s is not in %s: %v", node, want, divided)
		}
	}
}

// TestANodeSaysAnything: whatever a node claims of itself has room in its slice, and what was cut is no address.
func TestANodeSaysAnything(t *testing.T) {
	long := strings.Repeat("9", 1<<18)
	n := node(7)
	n.Annotations = map[string]string{v1alpha1.AnnotationPublicIP: strings.Repeat("ipv4:203.0.113.1,", 1<<14)}
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "1" + long},
		corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "\xff"})
	for range 100 {
		n.Status.Addresses = append(n.Status.Addresses, n.Status.Addresses[0])
	}
	n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, "10.0.0.0/"+long)
	for name, s := range divide([]corev1.Node{n}) {
		for _, n := range s.Nodes {
			if len(n.Addresses) != v1alpha1.MaxSliceNodeAddresses || len(n.PublicIP) > v1alpha1.MaxSliceNodePublicIP ||
				!strings.HasSuffix(n.PublicIP, "…") {
				t.Errorf("%s: %d addresses, %d bytes of public addresses", name, len(n.Addresses), len(n.PublicIP))
			}
			for i, a := range append(n.Addresses[2:4:4], n.PodCIDRs[2:]...) {
				_, err := netip.ParseAddr(a)
				_, also := netip.ParsePrefix(a)
				if len(a) > v1alpha1.MaxSliceNodeText || err == nil || also == nil {
					t.Errorf("%s: %d: %q", name, i, a)
				}
			}
		}
	}
	old := node(7)
	old.Spec = corev1.NodeSpec{PodCIDR: "10.0.7.0/24"}
	if nodes, _ := nodeslice.Join(objects(divide([]corev1.Node{old}))); len(nodes) != 1 ||
		!slices.Equal(nodes[0].Spec.PodCIDRs, []string{"10.0.7.0/24"}) {
		t.Errorf("of a node with spec.podCIDR alone: %v", nodes)
	}
}
