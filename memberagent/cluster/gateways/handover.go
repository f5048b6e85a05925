// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/internal/reach"
)

// handOver returns the gateways that are wanted no more, since other nodes are labelled, and go on until those are
// connected to all clusters that they are connected to, however long that takes: a label that is set on a node that is
// not ready, or that nobody reaches, cuts nobody off. Of want there may be none; then there is nobody to hand over to.
// Who wants such a gateway gone all the same deletes its Gateway, which is not made again.
func handOver(want []string, in Input) []string {
	if len(want) == 0 {
		return nil
	}
	reached := map[string]bool{}
	for i := range in.Have {
		if g := &in.Have[i]; slices.Contains(want, g.Name) && reach.Fresh(g, in.Now) {
			maps.Copy(reached, connectedTo(g))
		}
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

// overdue returns those of handOver for which a labelled node would be connected by now if it were well, and if there
// are none yet, after what time to ask again; 0 is never.
func overdue(in Input) (going []string, again time.Duration) {
	want := labelled(in.Nodes)
	if going = handOver(want, in); len(going) == 0 {
		return nil, 0
	}
	for i := range in.Have {
		g := &in.Have[i]
		if left := connectWithin - in.Now.Sub(g.CreationTimestamp.Time); slices.Contains(want, g.Name) && left > 0 {
			again = reach.Sooner(again, left)
		}
	}
	if again > 0 {
		return nil, again
	}
	return going, 0
}
