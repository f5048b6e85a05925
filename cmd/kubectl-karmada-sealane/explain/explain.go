// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// leg is one way that packets of a request take: of several backends that they are spread over, one in each cluster.
type leg struct {
	// cluster that it leads to.
	cluster string
	dst     netip.Addr
	// backends are the addresses of the cluster among which connections are spread, dst one of them; nil of one alone.
	backends []netip.Addr
	port     Port
	// what is there, for people.
	what string
}

// Explain follows what a request asks for.
func Explain(f *Fleet, r Request) Explanation { return explained(f, r).out }

func explained(f *Fleet, r Request) *explainer {
	x := &explainer{fleet: f, request: r, nets: map[string]*network{}}
	x.out.From, x.out.To = r.From.String(), x.target()
	m := f.member(r.From.Cluster)
	if m == nil || m.Unread != "" {
		why := "there is no such member"
		if m != nil {
			why = m.Unread
		}
		x.fail(r.From.Cluster, stepSource, "to read the objects of "+r.From.Cluster, why,
			"see "+f.Plugin+" show clusters; add a kubeconfig context of the cluster's name")
		x.out.Arrives = Unknown
		return x
	}
	x.from = newNetwork(m, f.Now)
	x.nets[m.Name] = x.from
	if !x.source() {
		x.out.Arrives = Lost
		return x
	}
	legs := x.legs()
	x.out.Arrives = x.walk(legs)
	return x
}

// way that a packet of a leg takes, as far as it gets.
type way struct {
	leg leg
	// hops are nodes, as cluster/node, and links between them; targets what the destination becomes, or could.
	hops    []string
	targets []netip.Addr
}

type explainer struct {
	fleet   *Fleet
	request Request
	nets    map[string]*network
	from    *network
	// node that the packet starts on.
	node string
	out  Explanation
	ways []way
}

func (x *explainer) target() string {
	r := &x.request
	text := r.Address.String()
	switch {
	case r.Name != nil:
		text = r.Name.Name.FQDN
	case r.To != nil:
		text = r.To.String()
	}
	if r.Port.Number != 0 {
		text += " port " + r.Port.String()
	}
	return text
}

func (x *explainer) add(s ...Step) { x.out.Steps = append(x.out.Steps, s...) }

func (x *explainer) ok(at, name, format string, args ...any) {
	x.add(Step{At: at, Name: name, Verdict: OK, Found: fmt.Sprintf(format, args...)})
}

func (x *explainer) fail(at, name, expected, found, remedy string) {
	x.add(Step{At: at, Name: name, Verdict: Fail, Expected: expected, Found: found, Remedy: remedy})
}

// source finds the node that the packet starts on.
func (x *explainer) source() bool {
	e := &x.request.From
	x.node = e.Node
	for _, a := range e.Addresses {
		if x.node == "" {
			x.node = x.from.owner(a)
		}
	}
	if _, known := x.from.node(x.node); !known {
		nodes := make([]string, 0, len(x.from.top.Local.Nodes))
		for _, n := range x.from.top.Local.Nodes {
			nodes = append(nodes, n.Name)
		}
		x.fail(e.Cluster, stepSource, "a node of "+e.Cluster+" that "+e.What+" is on",
			fmt.Sprintf("%q is none; there are %s", x.node, joinOr(nodes, "none")), "check the source: "+Shapes)
		return false
	}
	where := ""
	if x.node != e.What && "node "+x.node != e.What {
		where = " on " + x.node
	}
	text := "with " + joined(e.Addresses)
	if e.Host {
		text = "on the host network: packets to other clusters get the node's address in its pod network as source"
	}
	x.ok(e.Cluster+"/"+x.node, stepSource, "%s%s, %s", e.What, where, text)
	return true
}

// sourceOf returns the source that packets to an address have; false where the sender has none of its family. That of
// a host is known only with its route.
func (x *explainer) sourceOf(dst netip.Addr) (netip.Addr, bool) {
	e := &x.request.From
	i := slices.IndexFunc(e.Addresses, func(a netip.Addr) bool { return plan.FamilyOf(a) == plan.FamilyOf(dst) })
	switch {
	case i >= 0:
		return e.Addresses[i], true
	case e.Host:
		return netip.Addr{}, true
	}
	return netip.Addr{}, false
}

// legs resolves the destination.
func (x *explainer) legs() []leg {
	r := &x.request
	switch {
	case r.Name != nil:
		return x.named()
	case r.To != nil:
		return x.toEndpoint()
	}
	return x.toAddress(r.Address)
}

// toEndpoint leads to a pod or a node by its own address or, where its cluster is known by a block, by its global one.
func (x *explainer) toEndpoint() []leg {
	to := x.request.To
	if to.Host && to.Cluster != x.from.Name {
		x.fail(to.Cluster, stepTarget, "a pod with an address of its own",
			to.What+" has the address of its node, and other clusters' packets to nodes are dropped by the guard",
			"reach it through an exported Service: then kube-proxy of "+to.Cluster+" takes packets to the node")
		return nil
	}
	for _, a := range to.Addresses {
		if _, has := x.sourceOf(a); !has {
			continue
		}
		remote, known := x.remoteNamed(to.Cluster)
		if !known || !remote.Block.IsValid() || within(remote.Routed, a) {
			return []leg{{cluster: to.Cluster, dst: a, port: x.request.Port, what: to.What}}
		}
		if other := x.network(to.Cluster); other != nil {
			for _, g := range other.top.Local.GlobalPods {
				if g.IP == a {
					x.ok(x.from.Name, stepTarget, "%s knows %s by the block %s: the pod's global address is %s", x.from.Name,
						to.Cluster, remote.Block, g.Global)
					return []leg{{cluster: to.Cluster, dst: g.Global, port: x.request.Port, what: to.What}}
				}
			}
		}
		x.fail(x.from.Name, stepTarget, "a global address of "+to.What,
			fmt.Sprintf("%s knows %s by the block %s, and the pod has no address of it", x.from.Name, to.Cluster, remote.Block),
			"export a headless service that the pod is behind: each of its pods then has one; or reach it through a service")
		return nil
	}
	x.fail(to.Cluster, stepTarget, "an address of a family that "+x.request.From.What+" has too",
		fmt.Sprintf("%s has %s", to.What, joined(to.Addresses)), "give both clusters' pods addresses of one family")
	return nil
}

// remoteNamed is how the packet's cluster knows another.
func (x *explainer) remoteNamed(cluster string) (topology.Remote, bool) {
	for _, r := range x.from.top.Remotes {
		if r.Name == cluster {
			return r, true
		}
	}
	return topology.Remote{}, false
}

func (x *explainer) network(cluster string) *network {
	w := &walk{fleet: x.fleet, nets: x.nets}
	return w.network(cluster)
}

// toAddress leads to an address, or to what is behind it where it is that of an import.
func (x *explainer) toAddress(a netip.Addr) []leg {
	if _, has := x.sourceOf(a); !has {
		x.fail(x.from.Name, stepTarget, "an address of a family that "+x.request.From.What+" has", a.String(),
			"ask for an address of the other family")
		return nil
	}
	if im := x.from.importAt(a); im != nil {
		x.ok(x.from.Name, stepTarget, "%s is the ClusterSetIP of %s/%s", a, im.Namespace, im.Name)
		return x.behindImport(im.Namespace, im.Name, a)
	}
	return []leg{{cluster: x.owner(a), dst: a, port: x.request.Port, what: a.String()}}
}

// owner is the cluster that an address is of, as the packet's cluster has it; "" if it is none's.
func (x *explainer) owner(a netip.Addr) string {
	if x.from.local(a) {
		return x.from.Name
	}
	r, _ := x.from.remote(a)
	return r.Name
}

// walk goes all ways and says whether packets arrive.
func (x *explainer) walk(legs []leg) Arrival {
	if len(legs) == 0 {
		return Lost
	}
	arrived, unknown, partly := 0, 0, false
	for _, l := range legs {
		src, has := x.sourceOf(l.dst)
		if !has {
			continue
		}
		if len(legs) > 1 {
			x.ok(x.from.Name, stepTarget, "those for %s: %s", l.cluster, l.what)
		}
		w := &walk{fleet: x.fleet, nets: x.nets, net: x.from, node: x.node, port: l.port,
			packet: packet{src: src, dst: l.dst}}
		there := w.start() && w.run() && w.answer()
		if there {
			arrived++
		} else if slices.ContainsFunc(w.steps, func(s Step) bool { return s.Name == stepReachable }) ||
			slices.ContainsFunc(w.steps, func(s Step) bool { return strings.HasSuffix(s.Name, ": "+stepReachable) }) {
			unknown++
		}
		partly = partly || w.partly
		gone := way{leg: l, hops: w.hops}
		for _, t := range w.targets {
			gone.targets = append(gone.targets, t.is)
		}
		for _, b := range w.backends {
			gone.targets = append(gone.targets, b.Addr())
		}
		x.ways = append(x.ways, gone)
		x.add(w.steps...)
	}
	switch {
	case arrived == len(legs) && !partly:
		return Arrives
	case arrived > 0:
		return Sometimes
	case unknown > 0:
		return Unknown
	}
	return Lost
}

// start gives a packet of the node's own the source that its route has.
func (w *walk) start() bool {
	if w.src.IsValid() {
		return true
	}
	r, _, found := lookUp(w.net.plan(w.node), w.packet)
	node, _ := w.net.node(w.node)
	for _, a := range node.Addresses {
		if !found && plan.FamilyOf(a) == plan.FamilyOf(w.dst) {
			w.src = a
		}
	}
	if found {
		w.src = r.Source
	}
	if !w.src.IsValid() && (!found || r.Type == plan.Unicast) {
		return w.lose(stepSource, fmt.Sprintf("an address of node %s in its pod network, of IPv%d", w.node,
			plan.FamilyOf(w.dst)), "it has none, and no other source gets an answer", "see docs/cni.md")
	}
	return true
}
