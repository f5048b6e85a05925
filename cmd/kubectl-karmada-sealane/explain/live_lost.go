// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/internal/trace"
)

// between says of a packet that left for another node and is not seen there.
func (j *judge) between(at Spot, device string, w *oneWay, back, large bool) {
	say := textsOf(back, large)
	sent := slices.IndexFunc(w.out, func(o trace.Seen) bool { return o.Device == device })
	behind := j.target.behind(at, device, w.out[sent].To.Addr(), back)
	for _, spot := range behind {
		if s := j.spots[spot]; s == nil || !s.whole() {
			j.add(Step{At: spot.String(), Name: say.step, Verdict: Warn, Expected: "to see " + say.packet + " on this node",
				Found:  "it left " + at.String() + " by " + device + "; nobody watches this node, and the trail ends",
				Remedy: "see that the node's agent runs"})
			j.unknown()
			return
		}
	}
	if len(behind) == 0 {
		j.add(Step{At: at.String(), Name: say.step, Verdict: Warn, Expected: "to see " + say.packet + " behind " + device,
			Found:  "it left by " + device + "; no node behind that is known and watched, and the trail ends",
			Remedy: "see that the objects of all clusters on the way can be read: show clusters"})
		j.unknown()
		return
	}
	to := behind[0].String()
	if n, known := j.target.next[at]; known && slices.Contains(behind, n) {
		to = n.String()
	}
	if s := j.spots[at]; !back && !large && slices.Contains(devices(s.answer.in), device) {
		j.add(Step{At: at.String(), Name: say.step, Verdict: Warn, Expected: "to see " + say.packet + " behind " + device,
			Found: "it left by " + device + ", and an answer came back there: it went to a node that is not watched, as of " +
				"another backend, and the trail ends",
			Remedy: "see what that node has: the endpoints of the service; diagnose all"})
		j.unknown()
		return
	}
	size := ""
	if large {
		size = fmt.Sprintf(" of %d bytes", w.out[0].Size)
	}
	if device == plan.OverlayLink {
		j.lose(at, stepOverlay, say.what, fmt.Sprintf("%s%s to come in by %s at %s", say.packet, size, device, to),
			fmt.Sprintf("it left by %s, last seen there, and came in at none that is watched: the overlay between the nodes "+
				"is blocked", device), j.elsewhere("open the overlay's UDP port, 4800 by default, between all nodes of "+
				at.Cluster+", both ways: diagnose firewall; for packets of full size, see its MTU"))
		return
	}
	j.lose(at, stepCable, say.what, fmt.Sprintf("%s%s to come in by a cable at %s", say.packet, size, to),
		fmt.Sprintf("it left by %s, last seen there, and came in at none that is watched: the cable is down, or packets of "+
			"it are blocked", device), j.elsewhere("open the cable's UDP port between the gateways, both ways: diagnose "+
			"firewall, show connections; for packets of full size, diagnose mtu"))
}

// stuck says why a packet that came to a node did not leave it.
func (j *judge) stuck(at Spot, s *sightings, w *oneWay, back, large, first bool) {
	say := textsOf(back, large)
	last := "last seen " + w.String()
	if len(w.dropped) > 0 {
		if d := w.dropped[0]; d.Table == plan.TableName && j.past(at, d, w, say) {
			return
		}
		j.drop(at, w.dropped[0], last, say)
		return
	}
	if len(w.in) == 0 {
		if first && !back && len(j.target.Addresses) == 0 {
			j.add(Step{At: at.String(), Name: stepSource, Verdict: Warn,
				Expected: "to see the node's own packet leave by its port",
				Found: "no device has it: masquerading replaces the source port as it leaves, as kube-proxy's does for a node's " +
					"connections to Services, or something else than nftables drops it; the trail ends",
				Remedy: "send from a pod on " + at.Node + ", or to the address of a pod"})
			j.unknown()
			return
		}
		if first && !back {
			note := ""
			if why := s.missed(trace.Rules); why != "" {
				note = "; rules that drop packets are not seen there: " + why
			}
			j.lose(at, stepSource, say.what, "the packet to come from the source's network namespace to its node",
				"it is not seen on any device of the node"+note, "see what drops it in the pod's own network namespace: a "+
					"NetworkPolicy, a sidecar's rules; and what the CNI has between pod and node")
			return
		}
		j.lose(at, stepRoute, say.what, say.packet+" to be seen here", "it is not", "see the node's devices")
		return
	}
	why, remedy := "no rule of nftables has dropped it", "see the node's routes and rules: ip rule; ip route get"
	if missed := s.missed(trace.Rules); missed != "" {
		why = "whether a rule of nftables has dropped it is not known: " + missed
		remedy = "see what drops packets there, nft list ruleset, and " + strings.TrimPrefix(remedy, "see ")
	}
	for i, r := range w.refused {
		if slices.ContainsFunc(w.refused[:i], func(o trace.Refused) bool { return o.Why == r.Why && o.By == r.By }) {
			continue // on another device
		}
		why += fmt.Sprintf("; %s says by ICMP: %s", r.By, r.Why)
		if strings.Contains(r.Why, "MTU") {
			remedy = "raise the MTU behind this node, or let its ICMP errors reach the source: diagnose mtu"
		}
	}
	r := j.noWay(at, w, back)
	if r == nil && len(w.refused) == 0 && !back {
		why += "; or it has left with another source port, as masquerading may give it"
	}
	if r != nil {
		why += fmt.Sprintf("; the way to %s: %s", r.To, r.Problem)
		remedy = fmt.Sprintf("see why the node has no way: ip route get %s from %s iif %s; ip rule", r.To, r.From, r.By)
		if r.Device != "" {
			remedy = fmt.Sprintf("see whether the pod with %s still is there, and its device: kubectl --context %s get pods -A "+
				"-o wide", r.To, at.Cluster)
		}
	}
	j.lose(at, stepRoute, say.what, fmt.Sprintf("%s to send %s on", at, say.packet), last+"; "+why, j.elsewhere(remedy))
}

// noWay is a route by which a packet that came in cannot go on: that to where it goes; or where the node translates
// that, to a backend, if it has a way to none of them. Of several the kernel does not say which the packet was for.
func (j *judge) noWay(at Spot, w *oneWay, back bool) *trace.Route {
	var own, backends []*trace.Route
	for i := range w.routes {
		r := &w.routes[i]
		switch {
		case slices.ContainsFunc(w.in, func(in trace.Seen) bool { return in.To.Addr() == r.To }):
			own = append(own, r)
		case !back && slices.Contains(j.target.LookUps(at), r.To):
			backends = append(backends, r)
		}
	}
	has := func(r *trace.Route) bool { return r.Problem == "" }
	for _, r := range own {
		if back || len(backends) == 0 || j.target.ends[view{at.Cluster, r.To}].Node != "" {
			if has(r) {
				return nil
			}
			return r
		}
	}
	if len(backends) == 0 || slices.ContainsFunc(backends, has) || len(j.target.lookUps[at.Cluster]) > trace.MaxLookUps {
		return nil
	}
	return backends[0]
}

// egressChain of our table drops what is for other clusters and leaves by none of our links.
const egressChain = "egress"

// past says of a packet that our own rules drop, as it went past the overlay, which node sent it there.
func (j *judge) past(at Spot, d trace.Dropped, w *oneWay, say wording) bool {
	routes := func(at Spot) string {
		return fmt.Sprintf("see the routes and rules for %s on %s: show plan %s --differing; ip rule; ip route get %s from "+
			"%s", d.To.Addr(), at.Node, at.Node, d.To.Addr(), d.From.Addr())
	}
	switch {
	case d.Chain == egressChain:
		step, expected, found := stepRoute, "%s to leave by one of Sealane's links", "its route leads past them"
		if say.step == stepBack {
			step, expected = stepWayBack, "%s to go back the way that the request came"
			found = "the return is asymmetric: its route leads past the overlay and the cables"
		}
		j.lose(at, step, say.what, fmt.Sprintf(expected, say.packet), fmt.Sprintf("last seen %s; %s, where %s drops it", w,
			found, j.ruleOf(d)), routes(at))
		return true
	case j.strayed.Node != "" && !slices.ContainsFunc(devices(w.in), ourLink):
		out := j.spots[j.strayed].request.out
		if say.step == stepBack {
			out = j.spots[j.strayed].answer.out
		}
		j.lose(j.strayed, stepRoute, say.what, fmt.Sprintf("%s to send %s on by %s", j.strayed, say.packet, plan.OverlayLink),
			fmt.Sprintf("it has no such route, and sends it out by %s, past the overlay; it was last seen at %s, %s, where %s "+
				"drops it", strings.Join(devices(out), ", "), at, w, j.ruleOf(d)), routes(j.strayed))
		return true
	}
	return false
}

// ruleOf names what has dropped a packet.
func (j *judge) ruleOf(d trace.Dropped) string {
	j.live.Dropped = &Dropped{Family: d.Family, Table: d.Table, Chain: d.Chain, Rule: d.Rule}
	if d.Rule == "" {
		j.live.Dropped.Rule = "policy drop"
		return fmt.Sprintf("the policy of chain %s, table %s %s", d.Chain, d.Family, d.Table)
	}
	return fmt.Sprintf("the rule \"%s\" of chain %s, table %s %s", d.Rule, d.Chain, d.Family, d.Table)
}

// drop says what has dropped a packet, and what to do.
func (j *judge) drop(at Spot, d trace.Dropped, last string, say wording) {
	remedy := fmt.Sprintf("change that rule, which is not Sealane's: nft -a list chain %s %s %s on %s; NetworkPolicies "+
		"of the CNI and host firewalls make such", d.Family, d.Table, d.Chain, at.Node)
	switch {
	case d.Table == plan.TableName:
		remedy = "packets from other clusters may come from their own networks only, and go to pods and services only, not " +
			"to nodes: diagnose networks; what the node has been told: show plan " + at.Node
	case d.Table == "kube-proxy" || strings.HasPrefix(d.Chain, "KUBE-"):
		remedy = "kube-proxy refuses what has no ready endpoint, and what a Service does not allow: see the endpoints of " +
			"the service"
	}
	size := ""
	if d.Large() {
		size = fmt.Sprintf(" of %d bytes", d.Size)
	}
	j.lose(at, stepDropped, say.what, fmt.Sprintf("no rule to drop %s from %s to %s", say.packet, d.From, d.To),
		fmt.Sprintf("%s; what drops %s%s is %s", last, say.packet, size, j.ruleOf(d)),
		j.elsewhereUnless(d, remedy))
}

// elsewhereUnless keeps what is to do about a foreign rule, which no object tells of.
func (j *judge) elsewhereUnless(d trace.Dropped, remedy string) string {
	if d.Table == plan.TableName {
		return j.elsewhere(remedy)
	}
	return remedy
}

// silent says of a packet that was delivered that nothing came back.
func (j *judge) silent(at Spot) {
	w := j.spots[at].request
	j.lose(at, stepDelivery, "answer", "an answer from the destination",
		fmt.Sprintf("it is delivered, %s, and nothing comes back from there", lastOf(&w)),
		"see whether the program listens on the pod's address, and what drops packets inside the pod: a NetworkPolicy, a "+
			"sidecar's rules")
}

// unanswered says of datagrams that were delivered that nothing came back, which programs may well leave out.
func (j *judge) unanswered(at Spot) {
	w := j.spots[at].request
	to := w.last().To.Addr()
	if j.target.ends[view{at.Cluster, to}] != at {
		j.add(Step{At: at.String(), Name: stepDelivery, Verdict: Warn, Expected: to.String() + " to be known to be here",
			Found:  "it left, " + lastOf(&w) + ", and nothing comes back: whether it is delivered is not known",
			Remedy: "see who has that address: ip neighbour on " + at.Node})
		j.unknown()
		return
	}
	j.add(Step{At: at.String(), Name: stepDelivery, Verdict: Warn, Expected: "an answer, which programs may leave out",
		Found: "it is delivered, " + lastOf(&w) + ", and nothing comes back from there: that is no fault of the way",
		Remedy: "if the program answers such, see whether it got this one, and what drops packets inside the pod: " +
			"a NetworkPolicy, a sidecar's rules"})
	if j.out.Arrives == Lost {
		j.unsure()
	}
}

// unreachable is what the destination on a node says by ICMP about datagrams; "" if it says nothing.
func (j *judge) unreachable(at Spot) string {
	s := j.spots[at]
	if s == nil || j.target.Port.Protocol != corev1.ProtocolUDP {
		return ""
	}
	for _, r := range s.request.refused {
		if r.By == r.To.Addr() && r.Why == trace.PortUnreachable {
			return r.Why
		}
	}
	return ""
}

// denied says that the source's kernel did not send the packet, and which rule of the node keeps it, if one does.
func (j *judge) denied(src Spot, what string) {
	if s := j.spots[src]; s != nil && len(s.request.dropped) > 0 {
		j.drop(src, s.request.dropped[0], "it is not sent: "+j.sent.Result.Error, textsOf(false, false))
		return
	}
	where := "the source's own network namespace"
	remedy := "a NetworkPolicy, a sidecar's rules, a program of the CNI: nft list ruleset in the pod's network"
	if len(j.target.Addresses) == 0 {
		where = "the node"
		remedy = "nft list ruleset on " + src.Node + ", its chains of the hook output; eBPF programs: bpftool cgroup tree"
	}
	j.lose(src, stepSource, "request", "the source's kernel to send a packet to "+what,
		fmt.Sprintf("it refuses to: %s: a rule of %s drops what is sent there", j.sent.Result.Error, where),
		"see what drops packets there: "+remedy)
}

// refusedBy says of a packet that came to its destination that the destination refuses it.
func (j *judge) refusedBy(at Spot) {
	w := j.spots[at].request
	j.lose(at, stepDelivery, "request", fmt.Sprintf("something to listen on port %s there", j.target.Port),
		fmt.Sprintf("it is delivered, %s, and refused from there: %s", lastOf(&w), cmp.Or(j.unreachable(at),
			j.sent.Result.Error)),
		j.elsewhere("use a port that the destination listens on, or see the target port of its Service"))
}
