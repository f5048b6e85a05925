// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/internal/reach"
)

// maxHops of a way: there, by siblings at both ends, it has seven.
const maxHops = 12

// walk is one packet on its way.
type walk struct {
	fleet *Fleet
	nets  map[string]*network
	steps []Step
	// net and node are where the packet is.
	net  *network
	node string
	packet
	port Port
	// sources and targets are what gateways have translated, in the order in which they did.
	sources, targets []translation
	// backends are those of which a node's translation takes one.
	backends []netip.AddrPort
	// hops that the packet has taken, for the summary of a way.
	hops []string
	// partly says that some of several gateways, over which flows are spread, lose the packet.
	partly bool
	// back says that the packet answers another.
	back bool
}

// translation of an address of a flow by a node.
type translation struct {
	cluster, node string
	was, is       netip.Addr
}

func (w *walk) network(cluster string) *network {
	n, known := w.nets[cluster]
	if m := w.fleet.member(cluster); !known && m != nil {
		n = newNetwork(m, w.fleet.Now)
		w.nets[cluster] = n
	}
	return n
}

func (w *walk) at() string { return strings.TrimSuffix(w.net.Name+"/"+w.node, "/") }

func (w *walk) ok(name, format string, args ...any) {
	w.steps = append(w.steps, Step{At: w.at(), Name: name, Verdict: OK, Found: fmt.Sprintf(format, args...)})
}

func (w *walk) say(v Verdict, name, expected, found, remedy string) {
	w.steps = append(w.steps, Step{At: w.at(), Name: name, Verdict: v, Found: found, Expected: expected, Remedy: remedy})
}

// lose ends the way.
func (w *walk) lose(name, expected, found, remedy string) bool {
	w.say(Fail, name, expected, found, remedy)
	return false
}

// run takes the packet from where it is to its destination, and says whether it gets there.
func (w *walk) run() bool {
	for range maxHops {
		w.hops = append(w.hops, w.at())
		if !w.nodeWorks() {
			return false
		}
		r, rule, found := lookUp(w.net.plan(w.node), w.packet)
		switch {
		case !found:
			return w.deliver()
		case r.Type != plan.Unicast:
			return w.noWay(r)
		}
		w.ok(stepRoute, "rule %d: %s", rule.Priority, r)
		w.tooBig(r)
		if !w.next(r) {
			return false
		}
	}
	return w.lose(stepRoute, "a way that ends", "it is handed on and on between the same nodes",
		"see which gateways report connections: "+w.fleet.Plugin+" show connections")
}

// nodeWorks judges the node that the packet is on.
func (w *walk) nodeWorks() bool {
	if bad := w.net.notReady(w.node); bad != "" {
		return w.lose(stepNode, "node "+w.node+" to be Ready", bad, w.net.Kubectl+" describe node "+w.node)
	}
	logs := fmt.Sprintf("%s -n %s get pods -o wide --field-selector spec.nodeName=%s", w.net.Kubectl, v1alpha1.Namespace,
		w.node)
	if c := w.net.agentSays(w.node, v1alpha1.PodNodeProgrammed); c != nil && c.Status == corev1.ConditionFalse {
		return w.lose(stepNode, "the node's network to be as the cluster's objects ask", c.Reason+": "+c.Message,
			"see the log of the node's agent: "+logs)
	}
	if c := w.net.agentSays(w.node, v1alpha1.PodNetworksAccepted); c != nil && c.Status == corev1.ConditionFalse {
		w.say(Warn, stepNode, "the node to have left out nothing of what the cluster's objects ask for", c.Message,
			"see docs/troubleshooting.md#networks-that-a-node-refuses")
	}
	return true
}

// noWay ends the way at a route that leads nowhere.
func (w *walk) noWay(r plan.Route) bool {
	remote, known := w.net.remote(w.dst)
	expected := fmt.Sprintf("a route to %s that leads somewhere", w.dst)
	see := w.fleet.Plugin + " show gateways; docs/high-availability.md"
	switch {
	case !known:
		return w.lose(stepRoute, expected, r.String()+": nobody has this global address", "check the address: "+
			w.fleet.Plugin+" show globalips")
	case remote.Behind != "" && !w.net.reached(remote.Behind):
		return w.lose(stepRoute, expected, fmt.Sprintf("%s: %s is behind the relay %s, of which %s knows no gateway", r,
			remote.Name, remote.Behind, w.net.Name), "make a node of "+remote.Behind+" a gateway: "+see)
	case remote.Behind == "" && len(remote.Gateways) == 0:
		return w.lose(stepRoute, expected, fmt.Sprintf("%s: %s announces no gateway to %s", r, remote.Name, w.net.Name),
			"make a node of "+remote.Name+" a gateway: "+see)
	case len(w.net.top.Local.Gateways) == 0:
		return w.lose(stepRoute, expected, fmt.Sprintf("%s: %s has no gateway", r, w.net.Name), "make a node of "+w.net.Name+
			" a gateway: "+see)
	}
	return w.lose(stepRoute, expected, fmt.Sprintf("%s: the agent on %s has no way to %s in this family", r, w.node,
		remote.Name), fmt.Sprintf("give the nodes of both clusters addresses of IPv%d: %s get nodes -o wide",
		plan.FamilyOf(w.dst), w.net.Kubectl))
}

// tooBig warns where packets of usual size are lost without a word on the way, as the gateways found out: routes
// carry less there, and what ignores that is lost.
func (w *walk) tooBig(r plan.Route) {
	remote, _ := w.net.remote(w.dst)
	for _, node := range sortedKeys(remote.PathMTU) {
		if w.back || !slices.ContainsFunc(r.NextHops, func(h plan.NextHop) bool { return h.Link != plan.OverlayLink }) {
			continue
		}
		if node == w.node {
			w.say(Warn, stepMTU, "packets of full size to pass between the gateways",
				fmt.Sprintf("those larger than %d bytes are lost on the way from %s to %s; the routes carry %d, so that TCP gets "+
					"through, and what sets the bit \"don't fragment\" and is larger gets an ICMP error", remote.PathMTU[node], node,
					remote.Name, r.MTU), "raise the MTU on the way, or let ICMP errors pass: "+w.fleet.Plugin+" diagnose mtu")
		}
	}
}

// candidate is one of the next hops of a route, judged.
type candidate struct {
	hop plan.NextHop
	// to is the node that it leads to, and peer whose that is on a cable.
	to   string
	peer plan.Peer
	step Step
}

// next takes the packet to the next hop: of several the first that works.
func (w *walk) next(r plan.Route) bool {
	p := w.net.plan(w.node)
	all := make([]candidate, 0, len(r.NextHops))
	for _, h := range r.NextHops {
		if h.Link == plan.OverlayLink {
			all = append(all, w.overlay(p, h))
		} else {
			all = append(all, w.cable(p, h))
		}
	}
	best := slices.MinFunc(all, func(a, b candidate) int {
		return cmp.Compare(rank(a.step.Verdict), rank(b.step.Verdict))
	})
	for _, c := range all {
		if c.step.Verdict == Fail && best.step.Verdict != Fail {
			c.step.Verdict = Warn
			c.step.Found += "; flows that the kernel's hash sends this way are lost until the routes move"
			w.steps, w.partly = append(w.steps, c.step), true
		}
	}
	w.steps = append(w.steps, best.step)
	if best.step.Verdict == Fail {
		return false
	}
	if best.hop.Link == plan.OverlayLink {
		return w.overOverlay(best)
	}
	return w.overCable(best)
}

func rank(v Verdict) int { return slices.Index([]Verdict{OK, Warn, Fail}, v) }

// overlay judges a next hop on the overlay.
func (w *walk) overlay(p plan.Plan, h plan.NextHop) candidate {
	c := candidate{hop: h, to: w.net.behind(p, h.Via)}
	to, found := w.net.node(c.to)
	port := w.net.top.Cable.VXLANPort
	c.step = Step{At: w.at(), Name: stepOverlay, Verdict: OK}
	if !found {
		c.step.Verdict, c.step.Found = Fail, fmt.Sprintf("%s is an address of none", h.Via)
		c.step.Expected, c.step.Remedy = "a node behind the next hop", w.net.Kubectl+" get nodes -o wide"
		return c
	}
	g := w.net.gateway(c.to)
	kind := "node"
	if g.Name != "" {
		kind = "gateway"
	}
	c.step.Found = fmt.Sprintf("VXLAN by %s to %s %s, UDP %d of %s", plan.OverlayLink, kind, c.to, port,
		joined(to.Addresses))
	open := fmt.Sprintf("open UDP %d between all nodes of %s, both ways: %s diagnose firewall", port, w.net.Name,
		w.fleet.Plugin)
	switch self := w.net.gateway(w.node); {
	case g.Name != "" && !w.net.hears(g, w.node), self.Name != "" && !w.net.hears(self, c.to):
		c.step.Verdict = Fail
		c.step.Found += fmt.Sprintf(": what %s sends does not get an answer from there", w.node)
		c.step.Expected, c.step.Remedy = fmt.Sprintf("%s and %s to hear each other over the overlay", w.node, c.to), open
	case g.Name != "" && !reach.Fresh(g, w.fleet.Now):
		c.step.Verdict = Warn
		c.step.Found += "; its agent is silent, and whether it carries is not known"
		c.step.Expected = "gateway " + g.Name + " to report within " + reach.ReportLifetime.String()
		c.step.Remedy = fmt.Sprintf("%s -n %s get pods -o wide --field-selector spec.nodeName=%s", w.net.Kubectl,
			v1alpha1.Namespace, g.Name)
	}
	if bad := w.net.notReady(c.to); bad != "" {
		c.step.Verdict, c.step.Expected = Fail, "node "+c.to+" to be Ready"
		c.step.Found += ", and it is not Ready: " + bad
		c.step.Remedy = w.net.Kubectl + " describe node " + c.to
		if g.Name != "" && len(w.net.top.Local.Gateways) == 1 {
			c.step.Remedy += "; label a second node as gateway, which then carries: docs/high-availability.md"
		}
	}
	return c
}

// overOverlay takes the packet to another node of the same cluster.
func (w *walk) overOverlay(c candidate) bool {
	handedOver := w.net.gateway(w.node).Name != "" && w.net.gateway(c.to).Name != ""
	if _, remote := w.net.remote(w.dst); handedOver && remote {
		w.ok(stepHandOver, "no cable of %s to there is alive: its sibling %s carries", w.node, c.to)
		w.mark |= plan.SiblingMark
	}
	w.node, w.iif = c.to, plan.OverlayLink
	return true
}

func joined(addresses []netip.Addr) string {
	out := make([]string, len(addresses))
	for i, a := range addresses {
		out[i] = a.String()
	}
	return strings.Join(out, ", ")
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
