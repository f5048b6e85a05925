// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/reach"
)

const (
	// notReadyFor is how long a node has to be not ready until the gateway that was picked there is replaced. An agent
	// that is silent has been for longer.
	notReadyFor = 10 * time.Second
	// steadyAfter is how long a node has to be well until it may replace another, and a gateway that was not well until
	// it is preferred to its replacement: nodes that come and go do not take the part from each other.
	steadyAfter = time.Minute
	// connectWithin is how long a replacement has to connect until another is tried.
	connectWithin = time.Minute
	// movePace is how often a move that is under way, or has to wait for a node, is looked at.
	movePace = 2 * time.Second
)

// History is what was seen of the nodes, by this process's clock: a node's may be wrong. What it has forgotten, after a
// restart, delays a move and begins none.
type History struct {
	nodes map[string]*seen
	// turned is when it was last seen that a gateway had taken its turn.
	turned time.Time
}

// seen is a node's past.
type seen struct {
	// first is when it was first seen, and gateway when it was first seen to be a gateway, zero if it is none.
	first, gateway time.Time
	// notReady is since when it is not ready, zero if it is; ailed when it was last seen not to be well.
	notReady, ailed time.Time
}

// picked decides about gateways that nobody has labelled. One is enough, and it stays for as long as it is well. One
// that is not, or whose node takes no pods any more, gets a second beside it, and goes when that is connected to
// what it was connected to itself.
type picked struct {
	*History
	in Input
	// now are the gateways that nobody has labelled, the oldest first; nodes are those that can be one, by name.
	now   []*v1alpha1.Gateway
	nodes map[string]*corev1.Node
}

// pick returns the nodes that should be gateways, and after what time to decide anew although nothing has changed.
func (h *History) pick(in Input) (want []string, again time.Duration) {
	p := picked{History: h, in: in, nodes: map[string]*corev1.Node{}}
	for i := range in.Nodes {
		if n := &in.Nodes[i]; usable(n) {
			p.nodes[n.Name] = n
		}
	}
	for i := range in.Have {
		if p.nodes[in.Have[i].Name] != nil {
			p.now = append(p.now, &in.Have[i])
		}
	}
	h.look(&p)
	switch {
	case len(p.now) > 0:
	case len(p.nodes) == 0:
		return nil, 0
	default:
		return []string{best(slices.Collect(maps.Values(p.nodes))).Name}, 0
	}
	for i, g := range p.now {
		// The oldest needs no proof: it has carried the traffic.
		if p.steady(g.Name) && (i == 0 || p.connected(g)) {
			return []string{g.Name}, 0
		}
	}
	return p.move()
}

// move keeps what there is, and adds a node where none of the gateways can be expected to serve.
func (p *picked) move() (want []string, again time.Duration) {
	again = movePace
	hopeful := false
	for i, g := range p.now {
		want = append(want, g.Name)
		left := p.leavesAfter(g.Name)
		if left > 0 {
			again = min(again, left)
		}
		trying := i == 0 || p.in.Now.Sub(p.seen(g.Name).gateway) < connectWithin || p.level(g)
		hopeful = hopeful || trying && left != 0
	}
	if hopeful {
		return want, again
	}
	var candidates []*corev1.Node
	for name, n := range p.nodes {
		if !slices.Contains(want, name) && p.in.Agents[name].Programmed && p.steady(name) {
			candidates = append(candidates, n)
		}
	}
	if len(candidates) == 0 {
		return want, again
	}
	// What was tried before makes room.
	return []string{p.now[0].Name, best(candidates).Name}, again
}

// look takes in how the nodes are.
func (h *History) look(p *picked) {
	if h.nodes == nil {
		h.nodes = map[string]*seen{}
	}
	maps.DeleteFunc(h.nodes, func(name string, _ *seen) bool { return p.nodes[name] == nil })
	for name, n := range p.nodes {
		s := h.nodes[name]
		if s == nil {
			s = &seen{first: p.in.Now}
			h.nodes[name] = s
		}
		switch {
		case Ready(n):
			s.notReady = time.Time{}
		case s.notReady.IsZero():
			s.notReady = p.in.Now
		}
		switch g := p.gateway(name); {
		case g == nil:
			s.gateway = time.Time{}
		case s.gateway.IsZero():
			s.gateway = p.in.Now
		}
		if p.ailing(name) {
			s.ailed = p.in.Now
		}
	}
}

func (p *picked) seen(node string) *seen { return p.History.nodes[node] }

func (p *picked) gateway(node string) *v1alpha1.Gateway {
	i := slices.IndexFunc(p.now, func(g *v1alpha1.Gateway) bool { return g.Name == node })
	if i < 0 {
		return nil
	}
	return p.now[i]
}

// ailing says that a node is not what a gateway should be on.
func (p *picked) ailing(node string) bool {
	n, g := p.nodes[node], p.gateway(node)
	return !Ready(n) || n.Spec.Unschedulable || g != nil && g.Status.SilentSince != nil
}

// leavesAfter is after what time a gateway has to be replaced unless its node recovers: 0 is now, below 0 is never.
func (p *picked) leavesAfter(node string) time.Duration {
	n, g, s := p.nodes[node], p.gateway(node), p.seen(node)
	switch {
	case n.Spec.Unschedulable || g.Status.SilentSince != nil:
		return 0
	case s.notReady.IsZero():
		return -1
	}
	return max(0, s.notReady.Add(notReadyFor).Sub(p.in.Now))
}

// steady says that a node has been well for long, as far as is known.
func (p *picked) steady(node string) bool {
	s := p.seen(node)
	if !s.ailed.IsZero() {
		return p.in.Now.Sub(s.ailed) >= steadyAfter
	}
	return p.in.Now.Sub(s.first) >= steadyAfter || p.in.Now.Sub(readySince(p.nodes[node])) >= steadyAfter
}

// connected says that a gateway does at least what the others do or did, and reaches somebody if there is anybody.
func (p *picked) connected(g *v1alpha1.Gateway) bool {
	return p.level(g) && (p.in.Remotes == 0 || len(connectedTo(g)) > 0)
}

// level says that a gateway reports to be connected to each cluster to which another reports to be, or did when it was
// last heard of.
func (p *picked) level(g *v1alpha1.Gateway) bool {
	if !reach.Fresh(g, p.in.Now) {
		return false
	}
	mine := connectedTo(g)
	for _, other := range p.now {
		for cluster := range connectedTo(other) {
			if !mine[cluster] {
				return false
			}
		}
	}
	return true
}

func connectedTo(g *v1alpha1.Gateway) map[string]bool {
	out := map[string]bool{}
	for _, c := range g.Status.Connections {
		if c.Status == v1alpha1.ConnectionConnected {
			out[c.Cluster] = true
		}
	}
	return out
}

// best returns the best of some nodes by readiness, by being free of the control plane, and by name.
func best(nodes []*corev1.Node) *corev1.Node {
	return slices.MinFunc(nodes, func(a, b *corev1.Node) int {
		return cmp.Or(cmp.Compare(demerits(a), demerits(b)), cmp.Compare(a.Name, b.Name))
	})
}

// usable says that a node can be a gateway.
func usable(n *corev1.Node) bool {
	os := n.Labels[corev1.LabelOSStable]
	return n.DeletionTimestamp == nil && (os == "" || os == string(corev1.Linux))
}

func demerits(n *corev1.Node) int {
	out := 0
	if !Ready(n) {
		out += 4
	}
	if n.Spec.Unschedulable {
		out += 2
	}
	if _, ok := n.Labels["node-role.kubernetes.io/control-plane"]; ok {
		out++
	}
	return out
}

// Ready says that a node is, as its kubelet or the control plane says.
func Ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// readySince is when a node that is ready began to be, by the clock of its kubelet or of the control plane.
func readySince(n *corev1.Node) time.Time {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
