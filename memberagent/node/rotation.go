// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
)

const (
	// keySettle is for how long all peers have moved, at least, before the cables that they have left change: a peer may
	// see that probes pass a little later than this gateway does.
	keySettle = 5 * time.Second
	// keyPatience is how long a step waits for a peer that is connected and has not moved, since nobody has told it of the
	// key, and for others that replace theirs. It is longer than Karmada is away while somebody repairs it.
	keyPatience = 24 * time.Hour
	// keyAbsence is how long a step waits for a peer that is not connected by any cable, if others have moved.
	keyAbsence = 10 * time.Minute
)

// keyState is all that decides about the next step of a gateway that replaces its key, or should.
type keyState struct {
	now time.Time
	// replacement, and since when it stands there. madeAt is when the current key was made.
	replacement   topology.Replacement
	since, madeAt time.Time
	// asked for by the cluster's Peering.
	asked v1alpha1.PeeringKeys
	// due is since when the key has been due, as far as this process knows; settled since when all peers have moved. Both
	// may be zero.
	due, settled time.Time
	// settle is how long that has to hold.
	settle time.Duration
	// ports says why the UDP ports for the next key cannot be had; empty if they can.
	ports string
	// peers are the gateways of the other clusters, sorted by name.
	peers []keyPeer
}

// keyPeer is a gateway of another cluster.
type keyPeer struct {
	// name is "cluster/gateway".
	name string
	// replaces says that it replaces its own key.
	replaces bool
	// moved says that packets pass by the cable of this phase, and that this gateway's go there if they go to that peer.
	moved bool
	// absent is since when it is not connected by any cable; zero if it is.
	absent time.Time
}

// keyStep is what to do next.
type keyStep int

const (
	keyStay keyStep = iota
	keyOffer
	keyPromote
	keyFinish
)

// keyDecision is a step, and what to tell of the phase before it.
type keyDecision struct {
	step               keyStep
	phase              v1alpha1.KeyPhase
	reason, message    string
	waiting, abandoned []string
	peers, moved       int
	// allMoved says that no peer is waited for.
	allMoved bool
}

// notBefore is when a key must have been made.
func notBefore(asked v1alpha1.PeeringKeys) time.Time {
	if asked.NotBefore == nil {
		return time.Time{}
	}
	return asked.NotBefore.Time
}

// isDue says whether a key is to be replaced, by request or by its age.
func (s keyState) isDue() bool {
	const day = 24 * time.Hour
	maxAge := time.Duration(s.asked.MaxAgeDays) * day
	return s.madeAt.Before(notBefore(s.asked)) || maxAge > 0 && s.now.Sub(s.madeAt) > maxAge
}

// decideKey is pure. Nothing is waited for but what this gateway sees itself: that probes pass under the key.
func decideKey(s keyState) keyDecision {
	if s.replacement == topology.NoReplacement {
		return decideOffer(s)
	}
	d := keyDecision{phase: v1alpha1.KeyOffered, reason: v1alpha1.ReasonKeyOffered, peers: len(s.peers)}
	next := keyPromote
	if s.replacement == topology.Promoted {
		d.phase, d.reason, next = v1alpha1.KeyPromoted, v1alpha1.ReasonKeyPromoted, keyFinish
	}
	for _, p := range s.peers {
		if p.moved {
			d.moved++
		}
	}
	for _, p := range s.peers {
		switch {
		case p.moved:
		case s.gone(p, d.moved > 0):
			d.abandoned = append(d.abandoned, p.name)
		default:
			d.waiting = append(d.waiting, p.name)
		}
	}
	d.allMoved = len(d.waiting) == 0
	if d.allMoved && !s.settled.IsZero() && s.now.Sub(s.settled) >= s.settle {
		d.step = next
	}
	d.message = d.progress()
	return d
}

// gone says whether a peer is not waited for any longer. Where no peer has moved it may be this gateway that is cut
// off.
func (s keyState) gone(p keyPeer, othersMoved bool) bool {
	if s.now.Sub(s.since) >= keyPatience {
		return true
	}
	if p.absent.IsZero() || !othersMoved {
		return false
	}
	from := p.absent
	if s.since.After(from) {
		from = s.since
	}
	return s.now.Sub(from) >= keyAbsence
}

// decideOffer says whether to make the next key. While another cluster's gateway replaces its own, the cables with next
// keys may carry traffic under the key that this one has.
func decideOffer(s keyState) keyDecision {
	d := keyDecision{phase: v1alpha1.KeyCurrent, reason: v1alpha1.ReasonKeyCurrent, peers: len(s.peers),
		message: "there is one key, and it need not be replaced", allMoved: true}
	if !s.isDue() {
		return d
	}
	d.phase, d.step = v1alpha1.KeyDue, keyOffer
	d.reason, d.message = v1alpha1.ReasonKeyOffered, "the next key is being made"
	for _, p := range s.peers {
		if p.replaces {
			d.waiting = append(d.waiting, p.name)
		}
	}
	switch {
	case s.ports != "":
		d.step, d.reason, d.message = keyStay, v1alpha1.ReasonPortTaken, s.ports
	case len(d.waiting) > 0 && (s.due.IsZero() || s.now.Sub(s.due) < keyPatience):
		d.step, d.reason = keyStay, v1alpha1.ReasonKeyWaits
		d.message = "the key is to be replaced when these have replaced theirs: " + someKeyPeers(d.waiting)
	default:
		d.waiting = nil
	}
	return d
}

// progress says in words how far the peers are.
func (d keyDecision) progress() string {
	what := "have moved to the next key"
	if d.phase == v1alpha1.KeyPromoted {
		what = "use the new key on the usual cables; the former one is refused here"
	}
	text := fmt.Sprintf("%d of %d gateways of other clusters %s", d.moved, d.peers, what)
	if len(d.waiting) > 0 {
		text += "; waiting for " + someKeyPeers(d.waiting)
	}
	if len(d.abandoned) > 0 {
		text += "; not waited for any longer: " + someKeyPeers(d.abandoned)
	}
	return text
}

func someKeyPeers(names []string) string {
	const few = 5
	text := strings.Join(names[:min(few, len(names))], ", ")
	if len(names) > few {
		text += fmt.Sprintf(" and %d more", len(names)-few)
	}
	return text
}

// status is a decision as the Gateway tells it.
func (d keyDecision) status(s keyState) *v1alpha1.GatewayKeys {
	first := func(names []string) []string { return slices.Clone(names[:min(v1alpha1.MaxKeyPeers, len(names))]) }
	out := &v1alpha1.GatewayKeys{
		Phase: d.phase, MadeAt: metav1.NewTime(s.madeAt.Truncate(time.Second)), Waiting: first(d.waiting),
		Abandoned: first(d.abandoned), Peers: int32(d.peers), Moved: int32(d.moved),
	}
	if s.replacement != topology.NoReplacement {
		since := metav1.NewTime(s.since.Truncate(time.Second))
		out.Since = &since
	}
	return out
}

// condition is a decision as a condition of the Gateway.
func (d keyDecision) condition(generation int64, now time.Time) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.GatewayKeyCurrent, Status: metav1.ConditionFalse, Reason: d.reason,
		Message: d.message, ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now)}
	if d.phase == v1alpha1.KeyCurrent {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// keyPorts says why the UDP ports of the cables with next keys cannot be had; empty if they can.
func keyPorts(c topology.Cable) string {
	first, last := int(c.Port)+v1alpha1.NextKeySlots, int(c.Port)+v1alpha1.NextKeySlots+v1alpha1.MaxSlot
	if last > 65535 || int(c.VXLANPort) >= first && int(c.VXLANPort) <= last {
		return fmt.Sprintf("a key is replaced by cables on the UDP ports %d to %d, and these do not exist or the overlay "+
			"has one of them (vxlanPort %d): change spec.cable of the ClusterSet", first, last, c.VXLANPort)
	}
	return ""
}

// sortKeyPeers by name.
func sortKeyPeers(peers []keyPeer) {
	slices.SortFunc(peers, func(a, b keyPeer) int { return cmp.Compare(a.name, b.name) })
}
