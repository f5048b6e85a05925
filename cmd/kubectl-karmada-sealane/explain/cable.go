// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/internal/reach"
)

// lossWarned is the percentage of lost probes that is worth a warning.
const lossWarned = 5

// cable judges a next hop by a cable, or by the link to nodes of other clusters, by what the gateway reports of it.
func (w *walk) cable(p plan.Plan, h plan.NextHop) candidate {
	c := candidate{hop: h, step: Step{At: w.at(), Name: stepCable, Verdict: OK}}
	var found bool
	if c.peer, found = peer(p, h.Link, w.dst); !found {
		c.step.Verdict = Fail
		c.step.Expected = "a peer of " + h.Link + " to whose allowed IPs " + w.dst.String() + " belongs"
		c.step.Found, c.step.Remedy = "there is none", w.fleet.Plugin+" diagnose networks"
		return c
	}
	c.to = c.peer.Node
	driver := w.net.top.Cable.Driver
	switch {
	case plan.OfVXLAN(h.Link):
		driver = string(v1alpha1.CableVXLAN) + ", NOT ENCRYPTED,"
	case plan.OfIPsec(h.Link):
		driver = string(v1alpha1.CableIPsec)
	}
	c.step.Found = fmt.Sprintf("%s by %s to %s of %s", driver, h.Link, c.to, c.peer.Cluster)
	if h.Link == plan.MeshLink {
		c.step.Found += ", without gateways: the two nodes answer each other's probes"
		return c
	}
	g := w.net.gateway(w.node)
	report, reported := connection(g, c.peer)
	bad := ""
	if other := w.network(c.peer.Cluster); other != nil {
		bad = other.notReady(c.to)
	}
	switch {
	case bad != "":
		c.step.Verdict = Fail
		c.step.Found += ", whose node is not Ready: " + bad
		c.step.Expected = "node " + c.to + " of " + c.peer.Cluster + " to be Ready"
		c.step.Remedy = w.network(c.peer.Cluster).Kubectl + " describe node " + c.to
	case !reported || !reach.Fresh(g, w.fleet.Now):
		c.step.Verdict = Warn
		c.step.Found += ": whether it works is not known, for " + w.node + " does not report it"
		c.step.Expected = "gateway " + w.node + " to report its connections"
		c.step.Remedy = fmt.Sprintf("%s -n %s get pods -o wide --field-selector spec.nodeName=%s", w.net.Kubectl,
			v1alpha1.Namespace, w.node)
	case report.Status != v1alpha1.ConnectionConnected:
		w.down(&c, report)
	default:
		c.step.Found += " at " + report.Address
		if report.RTT != nil {
			c.step.Found += fmt.Sprintf(", round trip %s",
				(time.Duration(report.RTT.Avg) * time.Microsecond).Round(time.Microsecond))
		}
		if report.LossPercent >= lossWarned {
			c.step.Verdict = Warn
			c.step.Found += fmt.Sprintf(", %d %% of probes were lost in the last minute", report.LossPercent)
			c.step.Expected = fmt.Sprintf("less than %d %% of probes to be lost", lossWarned)
			c.step.Remedy = "look for loss on the way to " + report.Address + ", and for load on both nodes"
		}
	}
	return c
}

// connection that a gateway reports with a peer.
func connection(g *v1alpha1.Gateway, p plan.Peer) (v1alpha1.Connection, bool) {
	for _, c := range g.Status.Connections {
		if c.Cluster == p.Cluster && c.Gateway == p.Node && c.Through == "" {
			return c, true
		}
	}
	return v1alpha1.Connection{}, false
}

// down says of a cable without answers which way is shut, as far as the two ends report what they hear.
func (w *walk) down(c *candidate, report v1alpha1.Connection) {
	c.step.Verdict = Fail
	c.step.Expected = fmt.Sprintf("an answer to probes of %s from %s", w.node, c.to)
	c.step.Found += ": " + strings.TrimSuffix(strings.TrimSpace(fmt.Sprintf("%s %s: %s", report.Status, report.Reason,
		report.Message)), ":")
	if at := report.LastTransitionTime; at != nil {
		c.step.Found += "\nsince " + at.UTC().Format(time.RFC3339)
	}
	hears := func(heard *bool) string {
		switch {
		case heard == nil:
			return "does not say what it hears"
		case *heard:
			return "hears the other"
		}
		return "hears nothing"
	}
	c.step.Found += fmt.Sprintf("\n%s %s", w.node, hears(report.Heard))
	if other := w.network(c.peer.Cluster); other != nil && other.Unread == "" {
		theirs, _ := connection(other.gateway(c.to), plan.Peer{Cluster: w.net.Name, Node: w.node})
		c.step.Found += fmt.Sprintf("; %s of %s %s", c.to, other.Name, hears(theirs.Heard))
	}
	candidates := make([]string, len(c.peer.Candidates))
	for i, a := range c.peer.Candidates {
		candidates[i] = a.String()
	}
	c.step.Remedy = fmt.Sprintf("open UDP to %s, both ways: %s diagnose firewall says which way is shut",
		cmp.Or(strings.Join(candidates, ", "), "the gateway, which has no address"), w.fleet.Plugin)
}

// overCable takes the packet to another cluster, translated as this gateway translates and as the other one receives.
func (w *walk) overCable(c candidate) bool {
	w.leave()
	from, fromNode := w.net, w.node
	next := w.network(c.peer.Cluster)
	if next == nil || next.Unread != "" {
		why := "it is no member here"
		if next != nil {
			why = next.Unread
		}
		w.say(Fail, stepReachable, "to read the objects of "+c.peer.Cluster+", which say what happens there",
			why, "add a kubeconfig context named "+c.peer.Cluster+", or see that Karmada's cluster proxy works")
		return false
	}
	w.net, w.node, w.mark = next, c.to, 0
	w.hops = append(w.hops, c.hop.Link)
	p := next.plan(c.to)
	link, allowed, found := arrival(p, c.hop.Link, from.Name, fromNode)
	if !found {
		return w.lose(stepCable, fmt.Sprintf("%s to know %s of %s as a peer", c.to, fromNode, from.Name),
			"its Peering does not have it, or its key was refused"+w.problems(from.Name),
			"see that Karmada brings "+next.Name+" its Peering: "+w.fleet.Plugin+" diagnose karmada")
	}
	w.iif = link
	if !within(allowed, w.src) {
		return w.lose(stepGuard, fmt.Sprintf("%s to be of the networks that %s has of %s", w.src, next.Name, from.Name),
			fmt.Sprintf("the receive filter of %s, its allowed IPs, has %s%s", link, prefixes(allowed),
				w.problems(from.Name)), w.fleet.Plugin+" diagnose networks")
	}
	return w.arrive(p)
}

// problems are those that a cluster's agents have with another, as the topology says.
func (w *walk) problems(remote string) string {
	var out []string
	for _, p := range w.net.top.Problems {
		if p.Ref == "RemoteCluster/"+remote {
			out = append(out, p.Reason+": "+p.Message)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "\n" + strings.Join(out, "\n")
}

// leave translates the source, where the gateway does.
func (w *walk) leave() {
	remote, _ := w.net.remote(w.dst)
	if _, passing := w.net.remote(w.src); w.back || !remote.Translated || passing {
		return
	}
	is, how := sentFrom(w.net.plan(w.node), w.packet)
	if !is.IsValid() || is == w.src {
		return
	}
	w.ok(stepNAT, "source %s becomes %s: %s knows %s by its block; %s", w.src, is, remote.Name, w.net.Name, how)
	w.sources = append(w.sources, translation{w.net.Name, w.node, w.src, is})
	w.src = is
}

// Names in the nftables table, of the chain, sets and maps by which gateways translate sources.
const (
	natChain       = "nullsnat"
	setGlobal      = "global"
	setKnowsBlock  = "globalremote"
	mapEgressPods  = "egresspods"
	mapPodsGlobals = "podglobals"
)

// sentFrom returns the source that a gateway gives a packet, by its own rules in their order, and why; invalid where
// it translates nothing.
func sentFrom(p plan.Plan, pk packet) (is netip.Addr, how string) {
	f := plan.FamilyOf(pk.dst)
	if !within(set(p, f, setKnowsBlock), pk.dst) {
		return netip.Addr{}, ""
	}
	if within(set(p, f, setGlobal), pk.src) {
		return pk.src, "it is of the block already"
	}
	for _, t := range p.Tables {
		if t.Family != f {
			continue
		}
		chain, _ := strings.CutPrefix(mapped(t, mapEgressPods, pk.src), "goto ")
		for _, c := range t.Chains {
			if chain != "" && c.Name == chain {
				return snat(c.Rules[0]), "a GlobalEgressIP has the pod: " + c.Rules[0]
			}
		}
		if own, err := netip.ParseAddr(mapped(t, mapPodsGlobals, pk.src)); err == nil {
			return own, "the pod's own global address"
		}
		for _, c := range t.Chains {
			for _, rule := range c.Rules {
				prefix := fmt.Sprintf(`oifname "%s*" %s daddr @%s snat to `, plan.CablePrefix, f, setKnowsBlock)
				if c.Name == natChain && strings.HasPrefix(rule, prefix) && snat(rule).IsValid() {
					return snat(rule), "the ClusterGlobalEgressIP: " + strings.TrimPrefix(rule, prefix)
				}
			}
		}
	}
	return netip.Addr{}, ""
}

// mapped is the value of an address in a map; "" if it is not there.
func mapped(t plan.Table, name string, a netip.Addr) string {
	for _, m := range t.Maps {
		for _, e := range m.Elements {
			if m.Name == name && e.Key == a.String() {
				return e.Value
			}
		}
	}
	return ""
}

// snat is the first address that a rule translates a source to; invalid where that depends on the packet.
func snat(rule string) netip.Addr {
	_, target, _ := strings.Cut(rule, "snat to ")
	first, _, _ := strings.Cut(strings.Fields(target + " -")[0], "-")
	a, err := netip.ParseAddr(first)
	if err != nil {
		return netip.Addr{}
	}
	return a
}

func prefixes(list []netip.Prefix) string {
	var out []string
	for _, p := range list {
		if !plan.ULAPrefix().Contains(p.Addr()) {
			out = append(out, p.String())
		}
	}
	return cmp.Or(strings.Join(out, ", "), "nothing")
}
