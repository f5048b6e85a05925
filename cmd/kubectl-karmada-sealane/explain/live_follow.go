// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/internal/probe"
	"github.com/sealane-io/sealane/internal/trace"
)

// wording of a packet in one direction.
type wording struct{ step, what, packet string }

func textsOf(back, large bool) wording {
	switch {
	case back:
		return wording{stepBack, "answer", "the answer"}
	case large:
		return wording{stepSeen, "large", "packets of full size"}
	}
	return wording{stepSeen, "request", "the packet"}
}

// follow goes from node to node by where the packet was seen, and returns the one that it gets to. Where it is lost, it
// says so, and returns false.
func (j *judge) follow(from Spot, back, large bool) (end Spot, arrived bool) {
	at, by, say := from, "", textsOf(back, large)
	entered := map[Spot]string{}
	for range maxHops {
		entered[at] = by
		s := j.spots[at]
		var w oneWay
		if s != nil {
			w = s.way(back, large)
		}
		if s == nil || !s.whole() && w.nothing() {
			j.add(Step{At: at.String(), Name: say.step, Verdict: Warn, Expected: "to see " + say.packet + " on this node",
				Found: "nobody watches it there, and the trail ends", Remedy: "see that the node's agent runs"})
			j.unknown()
			return at, false
		}
		j.ok(at, say.step, say.packet+": "+w.String())
		if !w.nothing() {
			j.live.LastSeen = at.String() + ", " + lastOf(&w)
		}
		if len(w.out) == 0 {
			if back && at == j.target.Source && len(j.target.Addresses) == 0 && len(w.dropped) == 0 && len(w.in) > 0 {
				return at, true // a node's own program
			}
			if !back && len(w.in) > 0 && len(w.dropped) == 0 && len(s.answer.out) > 0 && len(s.answer.in) == 0 {
				return at, true // a program on the node's network answers
			}
			if !back && len(w.dropped) == 0 && w.ends() {
				return at, true
			}
			if len(w.dropped) == 0 && !s.whole() {
				j.add(Step{At: at.String(), Name: say.step, Verdict: Warn, Expected: "to see " + say.packet + " leave this node",
					Found: "not all was seen here, and the trail ends", Remedy: "run it again"})
				j.unknown()
				return at, false
			}
			j.stuck(at, s, &w, back, large, len(entered) == 1)
			return at, false
		}
		out := devices(w.out)
		next, device := j.next(at, out, entered, back, large)
		switch {
		case device != "":
			if !slices.ContainsFunc(out, ourLink) {
				j.strayed = at
			}
			at, by = next, device
		case slices.ContainsFunc(out, ourLink) && j.round(at, out, entered, back, large):
			return at, false
		case slices.Contains(out, plan.OverlayLink):
			j.between(at, plan.OverlayLink, &w, back, large)
			return at, false
		case slices.ContainsFunc(out, isCable):
			j.between(at, out[slices.IndexFunc(out, isCable)], &w, back, large)
			return at, false
		case !back && j.astray(at, &w, say):
			return at, false
		default:
			return at, true
		}
	}
	j.lose(at, stepRoute, say.what, "a way that ends", fmt.Sprintf("it has passed %d nodes", maxHops),
		"see the routes of these nodes: show plan")
	return at, false
}

// round says of a packet that it goes round: it came back by one of our links to a node that had it before by another
// device, or a node says by ICMP that it was sent on too often.
func (j *judge) round(at Spot, out []string, entered map[Spot]string, back, large bool) bool {
	say := textsOf(back, large)
	lose := func(found string) bool {
		var nodes []string
		for spot := range entered {
			nodes = append(nodes, spot.String())
		}
		slices.Sort(nodes)
		j.lose(at, stepRoute, say.what, "a way that ends", "it goes round between "+strings.Join(nodes, ", ")+": "+found,
			"see the routes of these nodes: show plan NODE --differing")
		return true
	}
	for _, spot := range j.target.Spots {
		by, visited := entered[spot]
		s := j.spots[spot]
		if !visited || spot == at || s == nil {
			continue
		}
		w := s.way(back, large)
		for _, d := range devices(w.in) {
			if d != by && passesOn(at, out, spot, d) && ourLink(d) {
				return lose(fmt.Sprintf("%s got it again, by %s", spot, d))
			}
		}
	}
	for _, spot := range j.target.Spots {
		s := j.spots[spot]
		if s == nil {
			continue
		}
		w := s.way(back, large)
		for _, r := range w.refused {
			if r.Why == trace.TimeExceeded {
				return lose(fmt.Sprintf("%s says by ICMP: %s", r.By, r.Why))
			}
		}
	}
	return false
}

// passesOn says whether what a node sends by its devices can come in by a device of another.
func passesOn(at Spot, out []string, to Spot, device string) bool {
	overlay, cable := slices.Contains(out, plan.OverlayLink), slices.ContainsFunc(out, isCable)
	switch {
	case isCable(device):
		return cable && to.Cluster != at.Cluster
	case device == plan.OverlayLink:
		return overlay && to.Cluster == at.Cluster
	}
	return !cable && !overlay && to.Cluster == at.Cluster
}

// astray says of a packet for a pod of another cluster that it left a node, which is not the pod's, by none of our
// links.
func (j *judge) astray(at Spot, w *oneWay, say wording) bool {
	p := w.out[len(w.out)-1]
	owner := j.target.ends[view{at.Cluster, p.To.Addr()}]
	if owner.Node == "" || owner == at || owner.Cluster == j.target.Source.Cluster {
		return false
	}
	found := fmt.Sprintf("it left by %s, last seen there: its route leads past them", p.Device)
	for _, r := range w.refused {
		found += fmt.Sprintf("; %s says by ICMP: %s", r.By, r.Why)
	}
	j.lose(at, stepRoute, say.what, fmt.Sprintf("%s to leave by one of Sealane's links, for %s", say.packet, owner), found,
		j.elsewhere(fmt.Sprintf("see the routes and rules for %s on %s: show plan %s --differing; ip rule; ip route get %s",
			p.To.Addr(), at.Node, at.Node, p.To.Addr())))
	return true
}

func ourLink(device string) bool { return strings.HasPrefix(device, plan.LinkPrefix) }

func isCable(device string) bool { return strings.HasPrefix(device, plan.CablePrefix) }

// next is the node at which a packet comes in that another has sent by its devices, and the device there; "" for none.
func (j *judge) next(at Spot, out []string, entered map[Spot]string, back, large bool) (next Spot, device string) {
	for _, spot := range j.target.Spots {
		s := j.spots[spot]
		if _, visited := entered[spot]; visited || s == nil {
			continue
		}
		w := s.way(back, large)
		for _, d := range devices(w.in) {
			if passesOn(at, out, spot, d) && (ourLink(d) || j.foreign(s, d, back)) {
				return spot, d
			}
		}
	}
	return Spot{}, ""
}

// foreign says that a packet came in to a node by a device from other nodes, and not from a pod of its own.
func (j *judge) foreign(s *sightings, device string, back bool) bool {
	other := s.answer.out
	if back {
		other = s.request.out
	}
	return !slices.Contains(devices(other), device)
}

// back follows the answer from where the packet came to.
func (j *judge) back(from Spot, large bool) bool {
	if s := j.spots[from]; s != nil && s.answer.nothing() {
		if large || j.sent.Result.Stage == probe.Answered {
			return true // connections are answered; that of UDP may come by another port
		}
		if j.target.Port.Protocol == corev1.ProtocolUDP {
			if j.sent.Result.Stage == probe.Refused || j.unreachable(from) != "" {
				return true // by ICMP
			}
			j.unanswered(from)
			return false
		}
		if !s.whole() {
			j.add(Step{At: from.String(), Name: stepBack, Verdict: Warn, Expected: "to see the answer come from the destination",
				Found: "not all was seen here, and the trail ends", Remedy: "run it again"})
			j.unknown()
			return false
		}
		j.silent(from)
		return false
	}
	end, arrived := j.follow(from, true, false)
	if arrived && end != j.target.Source {
		s := j.spots[end]
		if j.sent.Result.Stage == probe.Answered {
			return true // by a way that is not watched
		}
		j.lose(end, stepWayBack, "answer", "the answer to go back the way that the request came",
			fmt.Sprintf("the return is asymmetric: it leaves %s by %s, last seen there, and the request came by %s", end,
				strings.Join(devices(s.answer.out), ", "), strings.Join(devices(s.request.in), ", ")),
			fmt.Sprintf("see the routes and rules for %s on %s: ip rule; ip route get %s from %s; rp_filter and firewalls "+
				"on that way may drop it",
				s.answer.out[0].To.Addr(), end.Node, s.answer.out[0].To.Addr(), s.answer.out[0].From.Addr()))
		return false
	}
	return arrived
}
