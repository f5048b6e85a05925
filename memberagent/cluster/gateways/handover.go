// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/internal/reach"
)

// handOver returns the gateways that are wanted no more, since other nodes are labelled, and go on until those are
// connected to all clusters that they are connected to: a label that moves from one node to another cuts nobody off.
// They do not wait for a node that is not ready, nor longer than connectWithin.
func handOver(want []string, in Input) []string {
	reached, coming := map[string]bool{}, false
	for _, name := range want {
		young := true
		for i := range in.Have {
			if g := &in.Have[i]; g.Name == name {
				young = in.Now.Sub(g.CreationTimestamp.Time) < connectWithin
				if reach.Fresh(g, in.Now) {
					maps.Copy(reached, connectedTo(g))
				}
			}
		}
		coming = coming || young && slices.ContainsFunc(in.Nodes, func(n corev1.Node) bool {
			return n.Name == name && Ready(&n)
		})
	}
	if !coming {
		return nil
	}
	var going []string
	for i := range in.Have {
		g := &in.Have[i]
		exists := slices.ContainsFunc(in.Nodes, func(n corev1.Node) bool {
			return n.Name == g.Name && n.DeletionTimestamp == nil
		})
		if !exists || slices.Contains(want, g.Name) || !reach.Fresh(g, in.Now) {
			continue
		}
		for cluster := range connectedTo(g) {
			if !reached[cluster] {
				going = append(going, g.Name)
				break
			}
		}
	}
	return going
}
