// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// settle is for how long a gateway whose agent was replaced is watched until the next one's is: longer than it takes to
// notice that an agent is silent.
const settle = 15 * time.Second

// NodeAgent is what is known of the agents of a node. In a roll-out there are two.
type NodeAgent struct {
	// Programmed says that one of them has programmed the node.
	Programmed bool
	// Revision of the one that programs the node, and Next of the one that waits for it to end; empty without one.
	Revision, Next string
	// Queued says that the latter waits for v1alpha1.GatewaySpec.Turn.
	Queued bool
}

// turn returns the gateway whose agent may be replaced, and after what time to decide anew although nothing has
// changed. However many nodes the DaemonSet replaces at a time, of the gateways it is one: the next has its turn when
// those that were replaced before are as well connected as the rest. A gateway that does not come back ends the
// roll-out on the others. Workers go first, as far as the DaemonSet has brought new agents to some.
func (h *History) turn(in Input) (gateway string, again time.Duration) {
	var queued []*v1alpha1.Gateway
	for i := range in.Have {
		g := &in.Have[i]
		agent := in.Agents[g.Name]
		if agent.Next != "" {
			again = movePace
		}
		switch {
		case g.Spec.Turn && agent.Next != "" && isReady(in.Nodes, g.Name):
			return g.Name, again
		case g.Spec.Turn && agent.Next == "":
			h.turned = in.Now
		case agent.Queued && isReady(in.Nodes, g.Name):
			queued = append(queued, g)
		}
	}
	if left := h.turned.Add(settle).Sub(in.Now); left > 0 || len(queued) == 0 || in.workerWaits() {
		return "", again
	}
	slices.SortFunc(queued, func(a, b *v1alpha1.Gateway) int { return cmp.Compare(a.Spec.Slot, b.Spec.Slot) })
	for _, g := range queued {
		if in.cameBack(g, in.Agents[g.Name].Next) {
			return g.Name, again
		}
	}
	return "", again
}

// workerWaits says that on a node that is ready, and no gateway, an agent waits for another to end.
func (in *Input) workerWaits() bool {
	for node, agent := range in.Agents {
		if agent.Next != "" && agent.Revision != "" && isReady(in.Nodes, node) &&
			!slices.ContainsFunc(in.Have, func(g v1alpha1.Gateway) bool { return g.Name == node }) {
			return true
		}
	}
	return false
}

// cameBack says that the other gateways with an agent of a revision are well.
func (in *Input) cameBack(besides *v1alpha1.Gateway, revision string) bool {
	p := picked{in: *in}
	for i := range in.Have {
		p.now = append(p.now, &in.Have[i])
	}
	for _, g := range p.now {
		if g.Name != besides.Name && in.Agents[g.Name].Revision == revision && !p.level(g) {
			return false
		}
	}
	return true
}

func isReady(nodes []corev1.Node, name string) bool {
	return slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == name && Ready(&n) })
}
