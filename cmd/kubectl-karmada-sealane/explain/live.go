// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/internal/clip"
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
	// Probe is how it went, as its sender has it: answered, refused, no answer, resolving, sending, denied, large lost,
	// or "not sent".
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
	j := &judge{target: t, sent: s, out: e, objects: e.Arrives,
		live: &Live{Probe: string(s.Result.Stage)}, spots: map[Spot]*sightings{}}
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
	// objects is the outcome by these alone.
	objects Arrival
	live    *Live
	spots   map[Spot]*sightings
	// strayed is the node that has sent the packet on to another of its cluster, and not by the overlay.
	strayed Spot
}

// unknown is the outcome unless the objects say that it is lost.
func (j *judge) unknown() {
	if j.out.Arrives != Lost {
		j.out.Arrives = Unknown
	}
}

func (j *judge) add(s Step) { j.out.Steps = append(j.out.Steps, s) }

// run judges what the sender has seen, and follows the packet if it needs to be.
func (j *judge) run() {
	k, src := &j.sent.Result, j.target.Source
	for _, spot := range j.target.Spots {
		s := j.spots[spot]
		if s == nil {
			continue
		}
		if s.Failed != "" {
			j.add(Step{At: spot.String(), Name: stepSeen, Verdict: Warn, Expected: "the agent of the node to watch the probe",
				Found:  "what passes here is not seen: " + s.Failed,
				Remedy: fmt.Sprintf("kubectl --context %s -n sealane-system get pods -o wide", spot.Cluster)})
		} else if why := s.missed(trace.Packets); why != "" {
			j.add(Step{At: spot.String(), Name: stepSeen, Verdict: Warn, Expected: "the trace of the node to tell all",
				Found: "what is not told of may have passed here all the same: " + why, Remedy: "run it again"})
		}
	}
	if n := len(j.target.Cut); n > 0 {
		texts := make([]string, n)
		for i, s := range j.target.Cut {
			texts[i] = s.String()
		}
		j.add(Step{At: src.String(), Name: stepSeen, Verdict: Warn, Expected: fmt.Sprintf("at most %d nodes on the way",
			maxWatched), Found: "not watched, for there are more: " + clip.List(texts, maxListed),
			Remedy: "ask for one of the backends by its address"})
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
	if k.Stage == probe.Denied {
		j.denied(src, what)
		return
	}
	j.ok(src, stepProbe, fmt.Sprintf("sent to %s at %s from port %d: %s", what, k.To, j.sent.Port, j.sayStage()))
	large := k.Stage == probe.LargeLost
	end, arrived := j.follow(src, false, large)
	if arrived {
		arrived = j.back(end, large)
	}
	switch {
	case k.Stage == probe.Answered:
		j.passed(end, arrived)
	case !arrived:
	case k.Stage == probe.Refused, j.unreachable(end) != "":
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

func (j *judge) sayStage() string {
	k := &j.sent.Result
	text := map[probe.Stage]string{probe.Answered: "all that was sent is acknowledged",
		probe.LargeLost: "a connection is made, and packets of full size are not acknowledged",
		probe.Refused:   "refused", probe.NoAnswer: "nothing comes back"}[k.Stage]
	if k.Stage == probe.Answered && j.target.Port.Protocol == corev1.ProtocolUDP {
		return "something comes back"
	}
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
	case len(j.target.Addresses) > 0 && src != nil && src.whole() && src.request.nothing():
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
	case j.objects == Sometimes:
		j.out.Arrives = Sometimes
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
