// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/internal/probe"
	"github.com/sealane-io/sealane/internal/trace"
)

// Names of the steps of a packet that was sent.
const (
	stepProbe   = "probe"
	stepSeen    = "seen"
	stepBack    = "answer seen"
	stepDropped = "firewall"
)

// Watched is what the agent of a node tells of the probe.
type Watched struct {
	Spot
	Lines []trace.Line
	// Failed says why it does not, or not to the end.
	Failed string
}

// Live is what a packet that was sent met.
type Live struct {
	// Probe is how it went, as its sender has it: answered, refused, no answer, resolving, sending, large lost, or
	// "not sent".
	Probe string `json:"probe"`
	// Lost is what did not arrive: "request", "answer", or "large" for packets of full size alone.
	Lost string `json:"lost,omitempty"`
	// LastSeen is where that was seen last: the node, the device and the direction.
	LastSeen string `json:"lastSeen,omitempty"`
	// Dropped is the rule of nftables, or the policy of a chain, that dropped it.
	Dropped *Dropped `json:"dropped,omitempty"`
}

// Dropped names what drops a packet.
type Dropped struct {
	Family string `json:"family"`
	Table  string `json:"table"`
	Chain  string `json:"chain"`
	Rule   string `json:"rule"`
}

// Sent is a probe.
type Sent struct {
	// Port that it was sent from, and Mark what its datagrams began with.
	Port   uint16
	Mark   uint32
	Result probe.Knocked
	// Failed is set where it was not sent: what was expected, found, and is to do.
	Failed *Step
}

// Judge adds to the explanation of a packet's way what a probe on it met.
func Judge(e Explanation, t Target, s Sent, watched []Watched) Explanation {
	j := &judge{target: t, sent: s, out: e, live: &Live{Probe: string(s.Result.Stage)}, spots: map[Spot]*sightings{}}
	j.out.Live = j.live
	j.out.Steps = slices.Clone(e.Steps)
	for i := range watched {
		j.spots[watched[i].Spot] = &sightings{Watched: &watched[i]}
	}
	if s.Failed != nil {
		j.live.Probe = "not sent"
		j.out.Steps = append(j.out.Steps, *s.Failed)
		j.unknown()
		return j.out
	}
	j.recognise()
	j.run()
	return j.out
}

// judge follows the packet by where it was seen.
type judge struct {
	target Target
	sent   Sent
	out    Explanation
	live   *Live
	spots  map[Spot]*sightings
	// strayed is the node that has sent the packet on to another of its cluster, and not by the overlay.
	strayed Spot
}

// sightings of the probe on a node, in one direction each.
type sightings struct {
	*Watched
	request, answer oneWay
}

// whole says that the trace of a node was not cut off: what it has not seen was not there.
func (s *sightings) whole() bool {
	return s.Failed == "" && slices.ContainsFunc(s.Lines, func(l trace.Line) bool { return l.Ended })
}

// oneWay is what a node tells of one direction.
type oneWay struct {
	in, out []trace.Seen
	dropped []trace.Dropped
	refused []trace.Refused
	routes  []trace.Route
}

// unknown is the outcome unless the objects say that it is lost.
func (j *judge) unknown() {
	if j.out.Arrives != Lost {
		j.out.Arrives = Unknown
	}
}

// tuple is a way of packets.
type tuple struct{ from, to string }

func tupleOf(p *trace.Packet) tuple { return tuple{p.From.String(), p.To.String()} }

func (t tuple) turned() tuple { return tuple{t.to, t.from} }

// recognise keeps what is of the probe, and of nobody else on the same port.
func (j *judge) recognise() {
	flows := j.flows()
	for _, s := range j.spots {
		ours := map[tuple]bool{}
		for _, l := range s.Lines {
			for _, p := range []*trace.Packet{packetOf(l)} {
				if p == nil || !flows[p.Flow] || p.Kind == trace.UDP && p.Answer(j.sent.Port) || p.Kind == trace.TCP ||
					p.Kind == trace.RST && p.Flow == 0 {
					continue
				}
				ours[tupleOf(p)], ours[tupleOf(p).turned()] = true, true
			}
		}
		for _, l := range s.Lines {
			p := packetOf(l)
			if p == nil || !ours[tupleOf(p)] {
				continue
			}
			w := &s.request
			if p.Answer(j.sent.Port) {
				w = &s.answer
			}
			switch {
			case l.Seen != nil && l.Seen.Out:
				w.out = append(w.out, *l.Seen)
			case l.Seen != nil:
				w.in = append(w.in, *l.Seen)
			case l.Dropped != nil:
				w.dropped = append(w.dropped, *l.Dropped)
			case l.Refused != nil:
				w.refused = append(w.refused, *l.Refused)
			}
		}
		for _, l := range s.Lines {
			if r := l.LookedUp; r != nil {
				if slices.ContainsFunc(s.answer.in, func(in trace.Seen) bool { return in.From.Addr() == r.From }) {
					s.answer.routes = append(s.answer.routes, *r)
				} else {
					s.request.routes = append(s.request.routes, *r)
				}
			}
		}
	}
}

// flows are the numbers of the probe's packets, by what its own node saw of them.
func (j *judge) flows() map[uint32]bool {
	if j.target.Port.Protocol == "UDP" {
		return map[uint32]bool{j.sent.Mark: true}
	}
	out := map[uint32]bool{}
	if s := j.spots[j.target.Source]; s != nil {
		for _, l := range s.Lines {
			p := packetOf(l)
			if p == nil || p.Kind != trace.SYN || p.Answer(j.sent.Port) {
				continue
			}
			// Those of a pod come from its own address.
			if len(j.target.Addresses) == 0 || slices.Contains(j.target.Addresses, p.From.Addr()) {
				out[p.Flow] = true
			}
		}
	}
	return out
}

func packetOf(l trace.Line) *trace.Packet {
	switch {
	case l.Seen != nil:
		return &l.Seen.Packet
	case l.Dropped != nil:
		return &l.Dropped.Packet
	case l.Refused != nil:
		return &l.Refused.Packet
	}
	return nil
}

func (j *judge) add(s Step) { j.out.Steps = append(j.out.Steps, s) }

// run judges what the sender has seen, and follows the packet if it needs to be.
func (j *judge) run() {
	k, src := &j.sent.Result, j.target.Source
	for _, spot := range j.target.Spots {
		s := j.spots[spot]
		if s == nil || s.Failed == "" {
			continue
		}
		j.add(Step{At: spot.String(), Name: stepSeen, Verdict: Warn, Expected: "the agent of the node to watch the probe",
			Found:  "what passes here is not seen: " + s.Failed,
			Remedy: fmt.Sprintf("kubectl --context %s -n sealane-system get pods -o wide", spot.Cluster)})
	}
	what := fmt.Sprintf("%s port %s", j.target.Host, j.target.Port)
	switch k.Stage {
	case probe.Resolving:
		j.live.Lost = "request"
		j.add(Step{At: src.String(), Name: stepProbe, Verdict: Fail, Expected: "an answer to " + j.target.Host,
			Found: "the source's own resolver: " + k.Error, Remedy: j.elsewhere(
				"see the name servers of the source in its /etc/resolv.conf, and whether it reaches them: diagnose dns")})
		j.out.Arrives = Lost
		return
	case probe.Sending:
		j.add(Step{At: src.String(), Name: stepProbe, Verdict: Warn, Expected: "to send a packet to " + what,
			Found: k.Error, Remedy: "run it again"})
		j.unknown()
		return
	}
	j.ok(src, stepProbe, fmt.Sprintf("sent to %s at %s from port %d: %s", what, k.To, j.sent.Port, sayStage(k)))
	large := k.Stage == probe.LargeLost
	end, arrived := j.follow(src, false, large)
	if arrived {
		arrived = j.back(end, large)
	}
	switch {
	case k.Stage == probe.Answered:
		j.passed(end, arrived)
	case !arrived:
	case k.Stage == probe.Refused:
		j.refusedBy(end)
	case large:
		j.lose(end, stepMTU, "large", "packets of full size to be acknowledged", "they are delivered, and not acknowledged: "+
			"they are lost at the destination, or its answers at the source", "see the MTU, and what drops large packets, in "+
			"the network namespaces of the two pods: diagnose mtu")
	default:
		j.lose(src, stepWayBack, "answer", "the answer to reach the source", "its node has sent it on, and the source has "+
			"not got it", "see what drops packets in the source's own network namespace: a NetworkPolicy, a sidecar's rules")
	}
}

// elsewhere is what to do, unless a step before says that already.
func (j *judge) elsewhere(remedy string) string {
	if l := j.out.lost(); l != nil && l.Remedy != "" {
		return fmt.Sprintf("what step %q says: %s", l.Name, l.Remedy)
	}
	return remedy
}

func sayStage(k *probe.Knocked) string {
	text := map[probe.Stage]string{probe.Answered: "all that was sent is acknowledged",
		probe.LargeLost: "a connection is made, and packets of full size are not acknowledged",
		probe.Refused:   "refused", probe.NoAnswer: "nothing comes back"}[k.Stage]
	if k.Stage == probe.Refused && k.Error != "" {
		text += ": " + k.Error
	}
	return text
}

func (j *judge) ok(at Spot, name, found string) {
	j.add(Step{At: at.String(), Name: name, Verdict: OK, Found: found})
}

// passed is the outcome of a probe that was answered, by whoever that was: it was followed to a node, or it was not.
// What the objects say against the way is taken back where that node is one of the destination's cluster; that one
// connection gets through says nothing of those that go elsewhere.
func (j *judge) passed(end Spot, followed bool) {
	src := j.spots[j.target.Source]
	switch {
	case src != nil && src.whole() && src.request.nothing():
		j.add(Step{At: j.target.Source.String(), Name: stepProbe, Verdict: Warn,
			Expected: "to see the packet that was answered on the source's node",
			Found:    "it is not: something in the source's own network namespace answered, as a sidecar does",
			Remedy:   "ask without the sidecar, or see what that one says"})
		j.unsure()
	case followed && len(j.target.Clusters) > 0 && !slices.Contains(j.target.Clusters, end.Cluster):
		j.add(Step{At: end.String(), Name: stepProbe, Verdict: Warn,
			Expected: "an answer from " + strings.Join(j.target.Clusters, " or "),
			Found:    "it came from here, where the address is somebody else's", Remedy: "ask by name"})
		j.unsure()
	case j.out.Arrives == Sometimes:
	case !followed && j.out.Arrives == Lost:
		j.unsure()
	default:
		for i := range j.out.Steps {
			if s := &j.out.Steps[i]; s.Verdict == Fail {
				s.Verdict = Warn
				s.Found += "; yet the probe passed"
			}
		}
		j.out.Arrives = Arrives
	}
}

// unsure is the outcome where what was seen contradicts the objects.
func (j *judge) unsure() { j.out.Arrives = Unknown }

// lose ends the way.
func (j *judge) lose(at Spot, name, what, expected, found, remedy string) {
	if j.sent.Result.Stage == probe.Answered { // what is lost was sent again, or goes where nobody watches
		j.add(Step{At: at.String(), Name: name, Verdict: Warn, Expected: expected, Found: found, Remedy: remedy})
		return
	}
	j.live.Lost = what
	j.out.Arrives = Lost
	j.add(Step{At: at.String(), Name: name, Verdict: Fail, Expected: expected, Found: found, Remedy: remedy})
}

func (w *oneWay) nothing() bool { return len(w.in)+len(w.out)+len(w.dropped) == 0 }

// of keeps the packets of full size, or all.
func (w *oneWay) of(large bool) oneWay {
	if !large {
		return *w
	}
	out := oneWay{routes: w.routes}
	for _, s := range w.in {
		if s.Large() {
			out.in = append(out.in, s)
		}
	}
	for _, s := range w.out {
		if s.Large() {
			out.out = append(out.out, s)
		}
	}
	for _, d := range w.dropped {
		if d.Large() {
			out.dropped = append(out.dropped, d)
		}
	}
	for _, r := range w.refused {
		if r.Large() || strings.Contains(r.Why, "MTU") {
			out.refused = append(out.refused, r)
		}
	}
	return out
}

func (s *sightings) way(back, large bool) oneWay {
	if back {
		return s.answer.of(false)
	}
	return s.request.of(large)
}

func devices(seen []trace.Seen) []string {
	var out []string
	for _, s := range seen {
		if !slices.Contains(out, s.Device) {
			out = append(out, s.Device)
		}
	}
	return out
}

func (w *oneWay) String() string {
	var parts []string
	if d := devices(w.in); len(d) > 0 {
		parts = append(parts, "in by "+strings.Join(d, ", "))
	}
	if d := devices(w.out); len(d) > 0 {
		parts = append(parts, "out by "+strings.Join(d, ", "))
	}
	return joinOr(parts, "not seen")
}

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
	at, say := from, textsOf(back, large)
	var visited []Spot
	for range maxHops {
		visited = append(visited, at)
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
			j.stuck(at, s, &w, back, large, len(visited) == 1)
			return at, false
		}
		out := devices(w.out)
		next, gone := j.next(at, out, visited, back, large)
		switch {
		case gone:
			if !slices.ContainsFunc(out, ourLink) {
				j.strayed = at
			}
			at = next
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
	j.lose(at, stepRoute, say.what, "a way that ends", "it goes on and on between the same nodes",
		"see the routes of these nodes: show plan")
	return at, false
}

// astray says of a packet for a pod of another cluster that it left a node, which is not the pod's, by none of our
// links.
func (j *judge) astray(at Spot, w *oneWay, say wording) bool {
	p := w.out[len(w.out)-1]
	owner, known := j.target.owners[p.To.Addr()]
	if !known || owner == at || owner.Cluster == j.target.Source.Cluster {
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

func lastOf(w *oneWay) string {
	if len(w.out) > 0 {
		return "out by " + w.out[len(w.out)-1].Device
	}
	return "in by " + w.in[len(w.in)-1].Device
}

// next is the node at which a packet comes in that another has sent by its devices.
func (j *judge) next(at Spot, out []string, visited []Spot, back, large bool) (Spot, bool) {
	overlay, cable := slices.Contains(out, plan.OverlayLink), slices.ContainsFunc(out, isCable)
	for _, spot := range j.target.Spots {
		s := j.spots[spot]
		if s == nil || slices.Contains(visited, spot) {
			continue
		}
		w := s.way(back, large)
		for _, d := range devices(w.in) {
			switch {
			case cable && isCable(d) && spot.Cluster != at.Cluster,
				overlay && d == plan.OverlayLink && spot.Cluster == at.Cluster,
				!cable && !overlay && !isCable(d) && d != plan.OverlayLink && spot.Cluster == at.Cluster && j.foreign(s, d, back):
				return spot, true
			}
		}
	}
	return Spot{}, false
}

// foreign says that a packet came in to a node by a device from other nodes, and not from a pod of its own.
func (j *judge) foreign(s *sightings, device string, back bool) bool {
	other := s.answer.out
	if back {
		other = s.request.out
	}
	return !slices.Contains(devices(other), device)
}

// between says of a packet that left for another node and is not seen there.
func (j *judge) between(at Spot, device string, w *oneWay, back, large bool) {
	say := textsOf(back, large)
	to := "the node behind it"
	if n, known := j.target.next[at]; known && !back {
		to = n.String()
	}
	others := 0
	for _, spot := range j.target.Spots {
		same := spot.Cluster == at.Cluster
		if s := j.spots[spot]; s != nil && !s.whole() && same == (device == plan.OverlayLink) {
			j.add(Step{At: spot.String(), Name: say.step, Verdict: Warn, Expected: "to see " + say.packet + " on this node",
				Found:  "it left " + at.String() + " by " + device + "; nobody watches this node, and the trail ends",
				Remedy: "see that the node's agent runs"})
			j.unknown()
			return
		}
		if spot != at && same == (device == plan.OverlayLink) {
			others++
		}
	}
	if others == 0 {
		j.add(Step{At: at.String(), Name: say.step, Verdict: Warn, Expected: "to see " + say.packet + " behind " + device,
			Found:  "it left by " + device + "; no node behind that is watched, and the trail ends",
			Remedy: "see that the objects of all clusters on the way can be read: show clusters"})
		j.unknown()
		return
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
		if first && !back {
			note := ""
			for _, l := range s.Lines {
				if l.Note != "" {
					note = "; " + l.Note
				}
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
	for i, r := range w.refused {
		if slices.ContainsFunc(w.refused[:i], func(o trace.Refused) bool { return o.Why == r.Why && o.By == r.By }) {
			continue // on another device
		}
		why += fmt.Sprintf("; %s says by ICMP: %s", r.By, r.Why)
		if strings.Contains(r.Why, "MTU") {
			remedy = "raise the MTU behind this node, or let its ICMP errors reach the source: diagnose mtu"
		}
	}
	for _, r := range w.routes {
		if r.Problem == "" {
			continue
		}
		why += fmt.Sprintf("; the way to %s: %s", r.To, r.Problem)
		remedy = fmt.Sprintf("see why the node has no way: ip route get %s from %s iif %s; ip rule", r.To, r.From, r.By)
		if r.Device != "" {
			remedy = fmt.Sprintf("see whether the pod with %s still is there, and its device: kubectl --context %s get pods -A "+
				"-o wide", r.To, at.Cluster)
		}
		break
	}
	j.lose(at, stepRoute, say.what, fmt.Sprintf("%s to send %s on", at, say.packet), last+"; "+why, j.elsewhere(remedy))
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

// refusedBy says of a packet that came to its destination that the destination refuses it.
func (j *judge) refusedBy(at Spot) {
	w := j.spots[at].request
	j.lose(at, stepDelivery, "request", fmt.Sprintf("something to listen on port %s there", j.target.Port),
		fmt.Sprintf("it is delivered, %s, and refused from there: %s", lastOf(&w), j.sent.Result.Error),
		j.elsewhere("use a port that the destination listens on, or see the target port of its Service"))
}

// back follows the answer from where the packet came to.
func (j *judge) back(from Spot, large bool) bool {
	if s := j.spots[from]; s != nil && s.answer.nothing() {
		if large || j.sent.Result.Stage == probe.Answered {
			return true // connections are answered; that of UDP may come by another port
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
