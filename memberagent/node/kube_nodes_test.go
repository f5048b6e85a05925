// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/nodeslice"
	"github.com/sealane-io/sealane/memberagent/node"
)

// tellNodes writes the NodeSlices as the cluster agent does, with nodes that have 10.7.0.0/24 and so on.
func tellNodes(t *testing.T, c client.Client, names ...string) {
	t.Helper()
	var nodes []corev1.Node
	for i, name := range names {
		nodes = append(nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.7.%d.0/24", i)}}})
	}
	specs, _ := nodeslice.Divide(nodes, nil)
	for name, spec := range specs {
		s := &v1alpha1.NodeSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
		err := c.Create(t.Context(), s)
		if apierrors.IsAlreadyExists(err) {
			patch := client.MergeFrom(&v1alpha1.NodeSlice{ObjectMeta: s.ObjectMeta,
				Spec: v1alpha1.NodeSliceSpec{Nodes: []v1alpha1.SliceNode{{Name: "whatever there is"}}}})
			err = c.Patch(t.Context(), s, patch)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// testNodes: the nodes are known while the cluster agent tells of all of them, this one among them; where the cluster
// leaves they need not be. A core Node says nothing.
func testNodes(t *testing.T, k *node.Kube, c client.Client) {
	know := func(known bool, nodes int) {
		t.Helper()
		got := ""
		eventually(t, 10*time.Second, fmt.Sprintf("known %v, %d nodes", known, nodes), func() bool {
			o, is, err := k.Objects(t.Context())
			got = fmt.Sprintf("known %v, %d nodes, %v", is, len(o.Nodes), err)
			return err == nil && is == known && len(o.Nodes) == nodes
		})
		t.Log(got)
	}
	phase := func(p v1alpha1.MemberPhase) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec": {"phase": %q}}`, p))
		if err := c.Patch(t.Context(), &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName}},
			patch); err != nil {
			t.Fatal(err)
		}
	}
	create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	tellNodes(t, c, "n1", "n3", "n4")
	know(true, 3)
	first := &v1alpha1.NodeSlice{ObjectMeta: metav1.ObjectMeta{Name: nodeslice.Names()[0]}}
	remove(t, c, first)
	know(false, 0)
	phase(v1alpha1.MemberLeaving)
	eventually(t, 10*time.Second, "a cluster that leaves is known without its nodes", func() bool {
		_, known, err := k.Objects(t.Context())
		return known && err == nil
	})
	phase(v1alpha1.MemberActive)
	know(false, 0)
	var p v1alpha1.Peering
	if err := c.Get(t.Context(), client.ObjectKey{Name: v1alpha1.PeeringName}, &p); err != nil {
		t.Fatal(err)
	}
	remove(t, c, &p)
	know(true, 0)
	create(t, c, &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName}, Spec: p.Spec})
	tellNodes(t, c, "n3", "n4") // not of this one
	know(false, 0)
	tellNodes(t, c, "n1")
	know(true, 1)
}
