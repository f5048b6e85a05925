// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
)

// arrive is what the node does with a packet that a cable delivers, before it looks up the way: the guard, and what
// translates destinations.
func (w *walk) arrive(p plan.Plan) bool {
	rule, passes := guarded(p, w.packet)
	remote, passing := w.net.remote(w.dst)
	if !passes && passing {
		return w.lose(stepRelay,
			fmt.Sprintf("%s to be told to pass packets on from %s to %s", w.net.Name, w.src, remote.Name), rule,
			fmt.Sprintf("see spec.relays of the ClusterSet, and that Karmada brings %s its Peering: %s diagnose karmada",
				w.net.Name, w.fleet.Plugin))
	}
	if !passes {
		return w.lose(stepGuard, fmt.Sprintf("a rule of the guard that accepts %s to %s from %s", w.src, w.dst, w.iif),
			rule, "packets from other clusters may go to pods and services only, not to nodes; "+w.fleet.Plugin+
				" diagnose networks")
	}
	w.ok(stepGuard, "%s to %s: %s", w.src, w.dst, rule)
	if passing {
		if found := w.notInForce(); found != "" {
			return w.lose(stepRelay,
				fmt.Sprintf("the agent of %s to say that it has in force what %s is told to pass on", w.node, w.net.Name), found,
				fmt.Sprintf("upgrade the agents of %s, or see its log: %s diagnose karmada", w.net.Name, w.fleet.Plugin))
		}
		w.ok(stepRelay, "%s passes it on to %s, as it is: spec.relays of the ClusterSet", w.net.Name, remote.Name)
		return true
	}
	if w.back {
		return w.restore()
	}
	if within(set(p, plan.FamilyOf(w.dst), setGlobal), w.dst) {
		return w.fromGlobal()
	}
	if w.net.owner(w.dst) == "" && within(w.services(), w.dst) {
		return w.fromClusterIP()
	}
	return true
}

// notInForce says what the agent of a relay's gateway says instead of that it has in force what it was told to pass
// on; "" if it says that.
func (w *walk) notInForce() string {
	g := w.net.gateway(w.node)
	switch g.Status.RelaysInForce() {
	case v1alpha1.DigestOfRelays(w.net.Network.Peering.Spec.Relays):
		return ""
	case "":
		return fmt.Sprintf("nothing said of relays, by an agent of version %s", cmp.Or(g.Status.Version, "unknown"))
	}
	return "that it has something else in force"
}

// services are the networks of the cluster's ClusterIPs.
func (w *walk) services() []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(w.net.top.Local.Announced), func(p netip.Prefix) bool {
		return slices.Contains(w.net.top.Local.Pods, p)
	})
}

// restore gives an answer the destination back that its flow's source was translated from.
func (w *walk) restore() bool {
	for _, t := range w.sources {
		if t.is != w.dst || t.cluster != w.net.Name {
			continue
		}
		if t.node != w.node {
			return w.lose(stepNAT, "answers to come to "+t.node+", which has translated the flow and alone knows it",
				"they come to "+w.node, w.fleet.Plugin+" show connections")
		}
		w.dst = t.was
	}
	return true
}

// fromGlobal translates a global address as the gateway's ledger says.
func (w *walk) fromGlobal() bool {
	for _, g := range w.net.top.Local.GlobalPods {
		if g.Global == w.dst {
			w.ok(stepNAT, "destination %s becomes %s: the global address of a pod, or of a host outside, behind a headless "+
				"service", w.dst, g.IP)
			w.translate(g.IP)
			return true
		}
	}
	var ports []string
	for _, s := range w.net.top.Local.Services {
		if s.Address != w.dst {
			continue
		}
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
			if p.Protocol != strings.ToLower(string(w.port.Protocol)) || w.port.Number != 0 && p.Port != w.port.Number {
				continue
			}
			b := p.Backends[0]
			w.backends = p.Backends
			by := "address and port"
			if s.Affinity {
				by = "address"
			}
			w.ok(stepNAT, "destination %s:%d becomes %s, one of %d by a hash of the client's %s", w.dst, p.Port, b,
				len(p.Backends), by)
			w.translate(b.Addr())
			w.port.Number = b.Port()
			return true
		}
		return w.lose(stepNAT, fmt.Sprintf("port %s of the service behind %s, with a ready backend", w.port, w.dst),
			"it has "+joinOr(ports, "no port with a ready backend"), "use one of its ports, or see its pods: "+w.fleet.Plugin+
				" show globalips")
	}
	return w.lose(stepNAT, fmt.Sprintf("a service, or a pod, that has the global address %s", w.dst),
		"nobody has it: it was released, or the GlobalAllocation says another", w.fleet.Plugin+" show globalips")
}

// translate notes a destination that this node has translated.
func (w *walk) translate(to netip.Addr) {
	w.targets = append(w.targets, translation{w.net.Name, w.node, w.dst, to})
	w.dst = to
}

// fromClusterIP translates the ClusterIP of an exported service as kube-proxy of its cluster does, on the node where
// the packet arrives.
func (w *walk) fromClusterIP() bool {
	e := w.net.exportAt(w.dst)
	if e == nil {
		return w.lose(stepService, fmt.Sprintf("%s to be the ClusterIP of a service that %s exports", w.dst, w.net.Name),
			"no export of it has this ClusterIP", "the Service was perhaps made anew: "+w.fleet.Plugin+" show services")
	}
	name := "Service " + e.Namespace + "/" + e.Name
	port, listed := servicePort(e.Settings.Ports, w.port)
	if port == nil {
		return w.lose(stepService, fmt.Sprintf("port %s of %s", w.port, name), "it has "+joinOr(listed, "none"),
			"use one of its ports")
	}
	all := readyBackends(e.Backends, port.Name, plan.FamilyOf(w.dst))
	if len(all) == 0 {
		return w.lose(stepService, "a ready backend of "+name, "there is none",
			fmt.Sprintf("%s -n %s get endpointslices -l kubernetes.io/service-name=%s", w.net.Kubectl, e.Namespace, e.Name))
	}
	w.ok(stepService, "kube-proxy translates %s:%d, %s, to %s, one of %d", w.dst, port.Port, name, all[0], len(all))
	w.backends = all
	w.translate(all[0].Addr())
	w.port.Number = all[0].Port()
	return true
}

// servicePort finds the port that a packet is for, or where it is for none the first, and lists all.
func servicePort(ports []v1alpha1.ServicePort, want Port) (found *v1alpha1.ServicePort, listed []string) {
	for i := range ports {
		p := &ports[i]
		listed = append(listed, strings.TrimSpace(fmt.Sprintf("%s %d/%s", p.Name, p.Port,
			strings.ToLower(string(p.Protocol)))))
		if found == nil && (want.Number == 0 || int32(want.Number) == p.Port && want.Protocol == p.Protocol) {
			found = p
		}
	}
	return found, listed
}

// readyBackends of a port in one family, in their order.
func readyBackends(groups []v1alpha1.Backends, port string, f plan.Family) []netip.AddrPort {
	var out []netip.AddrPort
	for i := range groups {
		at := slices.IndexFunc(groups[i].Ports, func(p v1alpha1.BackendPort) bool { return p.Name == port })
		if at < 0 {
			continue
		}
		for _, b := range groups[i].Addresses {
			if a, err := netip.ParseAddr(b.IP); err == nil && b.Ready && plan.FamilyOf(a.Unmap()) == f {
				out = append(out, netip.AddrPortFrom(a.Unmap(), uint16(groups[i].Ports[at].Port)))
			}
		}
	}
	return out
}

func joinOr(list []string, none string) string {
	if len(list) == 0 {
		return none
	}
	return strings.Join(list, ", ")
}

// deliver ends the way on a node whose tables of ours say nothing of the destination.
func (w *walk) deliver() bool {
	owner := w.net.owner(w.dst)
	seen := ""
	if w.src.IsValid() {
		seen = ", which sees " + w.src.String()
	}
	what := w.dst.String()
	if w.port.Number != 0 && !w.back {
		what = netip.AddrPortFrom(w.dst, w.port.Number).String()
	}
	node, _ := w.net.node(owner)
	switch {
	case owner != "" && slices.Contains(node.Addresses, w.dst):
		w.ok(stepDelivery, "to the node's own network at %s%s", what, seen)
	case owner == w.node && owner != "":
		w.ok(stepDelivery, "to the pod at %s%s", what, seen)
	case owner != "" && w.iif == "":
		w.ok(stepDelivery, "the CNI of %s takes it to %s on %s%s: Sealane has no part in that", w.net.Name, what, owner,
			seen)
		w.node = owner
		return w.nodeWorks()
	case within(w.net.top.Local.External, w.dst):
		w.ok(stepDelivery, "leaves %s to %s, a host outside all clusters, with the node's own address as source", w.node,
			what)
	case within(w.net.top.Local.Pods, w.dst):
		w.say(Warn, stepDelivery, "a node in whose pod networks "+w.dst.String()+" is",
			"no node has it by what the objects say; the main routing table of "+w.node+" decides",
			"see the condition PodsRouted of the Peering, and docs/cni.md")
	case within(w.services(), w.dst):
		return w.lose(stepService, "a service with the ClusterIP "+w.dst.String(),
			"none that was exported or imported has it", fmt.Sprintf("%s get services -A | grep -F %s", w.net.Kubectl, w.dst))
	default:
		return w.lose(stepRoute, fmt.Sprintf("%s to be in a network of %s or of a cluster that it is connected to", w.dst,
			w.net.Name), "it is in none, so the packet leaves by the node's default route"+w.allProblems(),
			"see "+w.fleet.Plugin+" show networks")
	}
	return true
}

// allProblems are those that the topology has with anything.
func (w *walk) allProblems() string {
	out := ""
	for _, p := range w.net.top.Problems {
		out += fmt.Sprintf("\nleft out: %s %s: %s", p.Ref, p.Reason, p.Message)
	}
	return out
}

// answer explains the way back of a packet that has arrived, in one step as long as nothing is wrong.
func (w *walk) answer() bool {
	b := &walk{fleet: w.fleet, nets: w.nets, net: w.net, node: w.node, back: true, sources: w.sources,
		packet: packet{src: w.dst, dst: w.src}}
	pinned := ""
	if n := len(w.targets); n > 0 {
		last := w.targets[n-1]
		b.net, b.node, b.src = w.network(last.cluster), last.node, last.was
		if b.node != w.node {
			b.iif, pinned = plan.OverlayLink, fmt.Sprintf("by %s, which has translated the flow; ", last.node)
		}
	}
	arrived := b.run()
	at := b.at()
	for _, s := range b.steps {
		if s.Verdict != OK {
			s.Name = stepWayBack + ": " + s.Name
			w.steps = append(w.steps, s)
		}
	}
	w.partly = w.partly || b.partly
	if !arrived {
		return false
	}
	w.steps = append(w.steps, Step{At: at, Name: stepWayBack, Verdict: OK,
		Found: fmt.Sprintf("%s%s", pinned, strings.Join(b.hops, " > "))})
	return true
}
