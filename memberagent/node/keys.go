// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/ipsec"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// Keys are the private keys of the node, which never leave it. What a method changes is kept when it returns.
type Keys interface {
	// Current is the ID of this node's gateway to its peers; Next the one that follows, empty if none does and Current
	// once it has; Former the one before, from Promote to Finish.
	Current() plan.PeerID
	Next() plan.PeerID
	Former() plan.PeerID
	// MadeAt is when the current key was made, Since when the next one was, or was promoted.
	MadeAt() time.Time
	Since() time.Time
	// Offer makes the next key, Promote makes it the current one, and Finish ends the replacement.
	Offer(madeAt time.Time) error
	Promote() error
	Finish() error
	// Secret is the pre-shared key of the node, by the ID of one of its keys, and a peer.
	Secret(own, peer plan.PeerID) ([]byte, error)
	// IPsecPublic is the public key of P-256 that belongs to one of these IDs, as it is published; empty if the node has
	// none. FIPSSecret is the pre-shared key by it and that of a peer.
	IPsecPublic(own plan.PeerID) string
	FIPSSecret(own, peer plan.PeerID, key topology.IPsecKey) ([]byte, error)
}

// rotation is what the agent's loop knows of the replacement of its key, beside what its Keys keep.
type rotation struct {
	asked v1alpha1.PeeringKeys
	// due and settled as in keyState; absent is since when peers are, by name.
	due, settled time.Time
	absent       map[string]time.Time
	// keyed is when the usual cables were given the key that they have: what was shaken before may be of another.
	keyed time.Time
	keyID plan.PeerID
	// shaken are the cables to peers that have had a handshake since, and lately.
	shaken map[cablePeer]bool
	// offMesh is since when this node has been off the mesh, before its key is promoted; zero if it is not.
	offMesh  time.Time
	last     keyDecision
	status   *v1alpha1.GatewayKeys
	failed   string // why the last step was not made
	failedAt time.Time
}

// cablePeer is a peer of one cable: the same peer may be on another one as well.
type cablePeer struct {
	link string
	id   plan.PeerID
}

// replacement of this gateway's key.
func replacement(k Keys) topology.Replacement {
	return plan.NodeFacts{ID: k.Current(), NextID: k.Next()}.Replacement()
}

// withKeys completes what the node knows of itself, and what it knows of the others, by its keys.
func (a *Agent) withKeys(top topology.Topology, f plan.NodeFacts) (topology.Topology, plan.NodeFacts, error) {
	f.KernelCarrier = ipsec.Linked()
	if a.ipsec != nil {
		f.Carrier = a.ipsec.Carrier(f.ID)
	}
	f.NextID, f.FormerID, f.OffMesh = a.keys.Next(), a.keys.Former(), !a.rotation.offMesh.IsZero()
	top, err := a.withVXLAN(top.WithNextKeys(replacement(a.keys)), time.Now())
	return top, f, err
}

// noteKeyed notes that the kernel is as planned: from here on the usual cables have the key of the plan.
func (a *Agent) noteKeyed() {
	for _, t := range a.plan.Tunnels {
		if t.ID != a.facts.ID {
			continue
		}
		if a.rotation.keyID != t.ID {
			a.rotation.keyID, a.rotation.keyed = t.ID, time.Now()
		}
		return
	}
}

// noteShaken notes on which cables peers have lately proved who they are, under the keys that these have.
func (a *Agent) noteShaken(states map[cablePeer]kernel.PeerState, now time.Time) {
	shaken := map[cablePeer]bool{}
	for at, s := range states {
		if !s.LastHandshake.IsZero() && now.Sub(s.LastHandshake) < handshakeLife &&
			(!a.rekeyed(at) || a.rotation.keyID == a.keys.Current() && s.LastHandshake.After(a.rotation.keyed)) {
			shaken[at] = true
		}
	}
	for at := range shaken {
		if !a.rotation.shaken[at] {
			signal(a.turned) // routes may go there now
			break
		}
	}
	a.rotation.shaken = shaken
}

// rekeyed says whether a cable has had another key until lately: what is known of its peers may be of the time before.
func (a *Agent) rekeyed(at cablePeer) bool {
	return replacement(a.keys) == topology.Promoted && !plan.OfNextKeys(at.link) &&
		!plan.OfVXLAN(at.link)
}

// proves says whether a peer of a cable has proved who it is under the keys that the cable has now.
func (a *Agent) proves(at cablePeer) bool {
	return at == (cablePeer{}) || !a.rekeyed(at) || a.rotation.shaken[at]
}

// works says whether packets pass by the cable to a peer.
func (a *Agent) works(r remote) bool {
	at := cablePeer{r.link, r.id()}
	if !r.probe.IsValid() {
		return a.rotation.shaken[at]
	}
	return a.proves(at) && a.prober.live(r.probe) == alive
}

// keyPeers are the gateways of the other clusters, as far as they concern the replacement of this one's key.
func (a *Agent) keyPeers(now time.Time) []keyPeer {
	own := replacement(a.keys)
	byName, active := map[string]*keyPeer{}, map[string]bool{}
	connected := map[string]bool{}
	var names []string
	for _, r := range a.remotes {
		name := r.cluster + "/" + r.gateway.Node
		p, ok := byName[name]
		if !ok {
			p = &keyPeer{name: name}
			byName[name], names = p, append(names, name)
		}
		works := a.works(r)
		connected[name] = connected[name] || works
		p.replaces = p.replaces || r.gateway.Replacement() != topology.NoReplacement
		switch {
		case r.gateway.VTEP.IsValid(): // it has no key
		case r.gateway.Next == (own == topology.Offered):
			p.moved = works
		default:
			active[name] = r.active
		}
	}
	absent := map[string]time.Time{}
	out := make([]keyPeer, 0, len(names))
	for _, name := range names {
		p := *byName[name]
		p.moved = p.moved && !active[name]
		if !connected[name] {
			since, ok := a.rotation.absent[name]
			if !ok {
				since = now
			}
			absent[name], p.absent = since, since
		}
		out = append(out, p)
	}
	a.rotation.absent = absent
	sortKeyPeers(out)
	return out
}

// rotate makes the next step of replacing this gateway's key, if it is time for one. It is called about every second.
func (a *Agent) rotate(ctx context.Context, now time.Time) {
	if a.gateway == nil || a.cable == nil || len(a.plan.Links) == 0 && len(a.top.Remotes) > 0 {
		a.rotation.status = nil
		return
	}
	interval, _ := a.patience()
	s := keyState{
		now: now, replacement: replacement(a.keys), since: a.keys.Since(), madeAt: a.keys.MadeAt(), asked: a.rotation.asked,
		due: a.rotation.due, settled: a.rotation.settled, settle: max(keySettle, 3*interval), ports: keyPorts(a.top.Cable),
		peers: a.keyPeers(now),
	}
	d := decideKey(s)
	switch {
	case d.phase != v1alpha1.KeyDue:
		a.rotation.due = time.Time{}
	case a.rotation.due.IsZero():
		a.rotation.due = now
	}
	switch {
	case !d.allMoved || d.phase != a.rotation.last.phase:
		a.rotation.settled = time.Time{}
	case a.rotation.settled.IsZero():
		a.rotation.settled = now
	}
	a.keyStep(ctx, &d, now)
	a.announceRotation(ctx, d)
	a.rotation.last, a.rotation.status = d, d.status(s)
}

// keyStep makes a step. One that the disk does not allow is tried again with every retryMost.
func (a *Agent) keyStep(ctx context.Context, d *keyDecision, now time.Time) {
	if !a.leftMesh(d.step == keyPromote, now) {
		return
	}
	if d.step == keyStay {
		a.rotation.failed = ""
		return
	}
	if a.rotation.failed == "" || now.Sub(a.rotation.failedAt) >= retryMost {
		var err error
		switch d.step {
		case keyOffer:
			madeAt := now
			if asked := notBefore(a.rotation.asked); asked.After(madeAt) {
				madeAt = asked // by another clock, which is ahead: else there would be no end
			}
			err = a.keys.Offer(madeAt)
		case keyPromote:
			err = a.keys.Promote()
			a.rotation.shaken = nil // of the usual cables, until they have the new key
			a.rotation.offMesh = time.Time{}
		case keyFinish:
			err = a.keys.Finish()
		}
		a.rotation.failed, a.rotation.settled = "", time.Time{}
		if err != nil {
			a.rotation.failed, a.rotation.failedAt = err.Error(), now
			logr.FromContextOrDiscard(ctx).Error(err, "the key is not replaced", "phase", d.phase)
		}
		a.Poke() // the plan is another, unless nothing came of it
	}
	if a.rotation.failed != "" {
		d.reason = v1alpha1.ReasonKeyNotKept
		d.message = "the next step waits for the node's state directory to be readable and writable: " + a.rotation.failed
	}
}

// leftMesh says whether the key may be promoted, if it is to be. The link to nodes of other clusters has one key, and
// the next one they know only once it is promoted. So this node leaves the mesh first, as one whose agent ends, and
// takes what they send until they send it by gateways. It comes back for each that has heard of the new key.
func (a *Agent) leftMesh(promote bool, now time.Time) bool {
	switch off := a.rotation.offMesh; {
	case promote && off.IsZero() && len(a.mesh) > 0:
		a.rotation.offMesh = now
		a.Poke()
		return false
	case promote:
		return off.IsZero() || now.Sub(off) >= a.carryOn()
	case !off.IsZero():
		a.rotation.offMesh = time.Time{}
		a.Poke()
	}
	return true
}

// announceRotation logs transitions, and tells people by events.
func (a *Agent) announceRotation(ctx context.Context, d keyDecision) {
	last := a.rotation.last
	if d.reason == last.reason && d.phase == last.phase || last.phase == "" && d.phase == v1alpha1.KeyCurrent {
		return
	}
	logr.FromContextOrDiscard(ctx).Info("replacement of the key", "phase", d.phase, "reason", d.reason, "why", d.message)
	warning := d.reason == v1alpha1.ReasonKeyNotKept || d.reason == v1alpha1.ReasonPortTaken
	a.cluster.Event(a.gateway, warning, d.reason, d.message)
}

// withKey adds to conditions what is said of the key; before anything is known, what was said stays.
func (a *Agent) withKey(conditions []metav1.Condition, now time.Time) []metav1.Condition {
	if a.rotation.status != nil {
		meta.SetStatusCondition(&conditions, a.rotation.last.condition(a.gateway.Generation, now))
	}
	return conditions
}
