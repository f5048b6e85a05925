// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

const (
	// withdrawLeast and withdrawMost bound the time that a gateway goes on carrying after it has withdrawn. A pod's
	// terminationGracePeriodSeconds are for the longest, and for what comes after it.
	withdrawLeast = 1500 * time.Millisecond
	withdrawMost  = 20 * time.Second
	// turning is what answers take, and then the change of routes by somebody who has found a gateway dead.
	turning = 300 * time.Millisecond
	// lingering is for how long the packets of a remote gateway that is none any more are still taken, and of a node of a
	// mesh: longer than nodes of its own cluster, or it itself, need to hear of it.
	lingering = 3 * time.Second
)

// withdraw, after SIGTERM, takes this node's addresses from its cables, so that its probes are answered no more, and
// goes on carrying what still comes until everybody has gone elsewhere: userspace cables end with its pod. What its own
// pods and processes send goes by siblings at once, and to nodes of a mesh by gateways. Only the sole gateway of a
// cluster does not withdraw, nor the last: nobody has anywhere to go.
func (a *Agent) withdraw(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	withdrawn, err := a.withdrawFor(ctx, a.top.Local.Gateways, true)
	if err != nil {
		log.Error(err, "this node was not withdrawn")
	}
	if withdrawn {
		time.Sleep(a.carryOn())
	}
}

// withdrawFor withdraws this node as a gateway, and if its agent ends as a node of a mesh and with what it sends
// itself, if one of the other gateways answers, though it may have to for longer until it counts as alive.
func (a *Agent) withdrawFor(ctx context.Context, others []topology.Gateway, ends bool) (bool, error) {
	if !slices.ContainsFunc(others, func(g topology.Gateway) bool {
		return g.Node != a.node && a.prober.answers(plan.LocalProbe(a.top, a.facts, g))
	}) {
		return false, nil
	}
	var changes []plan.Change
	for _, address := range a.plan.Addresses {
		if address.Link != plan.OverlayLink && (ends || address.Link != plan.MeshLink) &&
			plan.IsProbe(address.Prefix.Addr()) {
			changes = append(changes, plan.Change{Op: plan.Delete, Kind: plan.KindAddress, Element: address})
		}
	}
	if len(changes) == 0 {
		return false, nil // nothing of it is in the kernel yet
	}
	if ends {
		changes = slices.Concat(a.handOver(), changes)
	}
	if err := a.kernel.Do(ctx, changes); err != nil {
		return false, err
	}
	logr.FromContextOrDiscard(ctx).Info("withdrawn: carrying on until traffic has gone elsewhere", "for",
		a.carryOn().String())
	return true, nil
}

// handOver returns the changes of routes by which what this node's own pods and processes send takes none of its
// cables.
func (a *Agent) handOver() []plan.Change {
	before := a.plan
	a.facts.Withdrawn = true
	a.choose(before)
	return slices.DeleteFunc(plan.Diff(a.plan, before), func(c plan.Change) bool { return c.Kind != plan.KindRoute })
}

// carryOn is for how long this node carries on after it has withdrawn.
func (a *Agent) carryOn() time.Duration { return carryOnFor(a.patience()) }

// carryOnFor is how long it takes until everybody who probes a gateway, or a node of a mesh, that answers no more has
// gone elsewhere. The next probe of a path that is idle is due after idleInterval. After it threshold intervals must
// pass without an answer, and one more, as answers are given longer than an interval's end.
func carryOnFor(interval time.Duration, threshold int) time.Duration {
	dead := max(idleInterval, interval) + time.Duration(threshold+1)*interval
	return min(max(dead+turning, withdrawLeast), withdrawMost)
}

// stepsDown says that this node leaves its network as it is for now: it is a gateway no more, in a topology that has
// others, and has withdrawn. What others send to it, until they have gone to those, would find no cable.
func (a *Agent) stepsDown(ctx context.Context, next topology.Topology) (bool, error) {
	is := func(t topology.Topology) bool {
		return slices.ContainsFunc(t.Local.Gateways, func(g topology.Gateway) bool { return g.Node == a.node })
	}
	if is(next) || !is(a.top) || len(a.plan.Tunnels) == 0 {
		a.steppedDown = time.Time{}
		return false, nil
	}
	if a.steppedDown.IsZero() {
		withdrawn, err := a.withdrawFor(ctx, next.Local.Gateways, false)
		if err != nil || !withdrawn {
			return false, err
		}
		a.steppedDown = time.Now()
		time.AfterFunc(a.carryOn(), a.Poke)
	}
	return time.Since(a.steppedDown) < a.carryOn(), nil
}

// linger adds to a topology the remote gateways that were in the one before, while their clusters have others: for a
// while their packets are still taken, for they and their nodes hear of it at other times than this node. Nothing is
// sent to them where another is alive.
func (a *Agent) linger(next *topology.Topology, now time.Time) {
	before := a.leaving
	a.leaving = map[plan.PeerID]time.Time{}
	for i := range next.Remotes {
		r := &next.Remotes[i]
		was := slices.IndexFunc(a.top.Remotes, func(o topology.Remote) bool { return o.Name == r.Name })
		if was < 0 || len(r.Gateways) == 0 {
			continue
		}
		gateways := slices.Clone(r.Gateways)
		for _, g := range a.top.Remotes[was].Gateways {
			// Of a gateway that stays and has replaced its key, the cable with the next one is not kept.
			if slices.ContainsFunc(r.Gateways, func(o topology.Gateway) bool {
				return o.Slot == g.Slot%v1alpha1.NextKeySlots || plan.PeerOf(o) == plan.PeerOf(g)
			}) {
				continue
			}
			since, known := before[plan.PeerOf(g)]
			if !known {
				since = now
				time.AfterFunc(lingering, a.Poke)
			}
			if now.Sub(since) < lingering {
				a.leaving[plan.PeerOf(g)] = since
				g.Leaving = g.VTEP.IsValid()
				gateways = append(gateways, g)
			}
		}
		slices.SortFunc(gateways, func(a, b topology.Gateway) int { return a.Slot - b.Slot })
		r.Gateways = gateways
	}
	a.remotes = a.staying(a.remotes)
	a.lingerMesh(next, now)
}

// staying leaves out the gateways that linger, which are neither probed nor reported.
func (a *Agent) staying(remotes []remote) []remote {
	return slices.DeleteFunc(remotes, func(r remote) bool {
		_, leaving := a.leaving[r.id()]
		return leaving || r.gateway.Leaving
	})
}
