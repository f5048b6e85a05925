// SPDX-License-Identifier: Apache-2.0

// Package nodeslice divides what node agents read of Nodes among NodeSlices, and puts it together again. It is pure.
package nodeslice

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

// count is how many NodeSlices each member has. With 1,000 nodes one is of about 8 KB, which is what a node that comes
// has each node agent read. Agents of two releases read and write the same ones: another count, or another hash, needs
// other names, or nodes that are in another slice then are gone for the older agents.
const count = 16

// Names of all NodeSlices.
func Names() []string {
	out := make([]string, count)
	for i := range out {
		out[i] = name(i)
	}
	return out
}

func name(i int) string { return fmt.Sprintf("nodes-%02d", i) }

// of returns the name of the slice that a node is in.
func of(node string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node))
	return name(int(h.Sum32() % count))
}

// Divide returns all slices by their names, given those that there are, and the disputes of Settled. What of a node has
// no room is left out, and what is too long cut: it is no address then, and whoever reads it says so.
func Divide(nodes []corev1.Node, have []v1alpha1.NodeSlice) (map[string]v1alpha1.NodeSliceSpec, []Dispute) {
	out := make(map[string]v1alpha1.NodeSliceSpec, count)
	for _, n := range Names() {
		out[n] = v1alpha1.NodeSliceSpec{}
	}
	sorted, disputes := Settled(nodes, have)
	slices.SortFunc(sorted, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for i := range sorted {
		at := of(sorted[i].Name)
		if s := out[at]; len(s.Nodes) < v1alpha1.MaxSliceNodes {
			s.Nodes = append(s.Nodes, essence(&sorted[i]))
			out[at] = s
		}
	}
	return out, disputes
}

func essence(n *corev1.Node) v1alpha1.SliceNode {
	out := v1alpha1.SliceNode{Name: n.Name, PodCIDRs: texts(cidrs(n)),
		PublicIP: clip.Text(n.Annotations[v1alpha1.AnnotationPublicIP], v1alpha1.MaxSliceNodePublicIP)}
	out.Addresses = texts(internal(n))
	return out
}

func cidrs(n *corev1.Node) []string {
	if len(n.Spec.PodCIDRs) == 0 && n.Spec.PodCIDR != "" {
		return []string{n.Spec.PodCIDR}
	}
	return n.Spec.PodCIDRs
}

func texts(list []string) []string {
	var out []string
	for _, s := range list[:min(len(list), v1alpha1.MaxSliceNodeAddresses)] {
		out = append(out, clip.Text(s, v1alpha1.MaxSliceNodeText))
	}
	return out
}

// Join returns the nodes of slices, sorted by name, with what a slice says of each, and false if not all slices are
// there. A node counts in the slice that is its own alone.
func Join(have []v1alpha1.NodeSlice) ([]corev1.Node, bool) {
	found := 0
	var out []corev1.Node
	for i := range have {
		s := &have[i]
		if !slices.Contains(Names(), s.Name) {
			continue
		}
		found++
		for _, n := range s.Spec.Nodes {
			if of(n.Name) == s.Name {
				out = append(out, node(n))
			}
		}
	}
	slices.SortFunc(out, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return out, found == count
}

func node(n v1alpha1.SliceNode) corev1.Node {
	out := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Spec: corev1.NodeSpec{PodCIDRs: n.PodCIDRs}}
	if n.PublicIP != "" {
		out.Annotations = map[string]string{v1alpha1.AnnotationPublicIP: n.PublicIP}
	}
	for _, a := range n.Addresses {
		out.Status.Addresses = append(out.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return out
}
