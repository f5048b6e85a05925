// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// target is a gateway that this node probes: on a gateway the remote ones and its siblings, on a worker those of
// its cluster.
type target struct {
	cluster string
	slot    int
	address netip.Addr
	// busy says that it has carried traffic lately, or may without anybody's knowing.
	busy bool
	// full and fits are sizes, as in Target.
	full, fits int
	// on is the cable, of a remote gateway.
	on cablePeer
	// own says that it is one of the own cluster.
	own bool
}

// targets of the present topology and plan.
func (a *Agent) targets() []target {
	var out []target
	if len(a.plan.Links) == 0 {
		return nil
	}
	for _, g := range a.top.Local.Gateways {
		if g.Node != a.node && g.PublicKey != (topology.Key{}) {
			out = append(out, target{cluster: a.top.Cluster, slot: g.Slot, busy: true, own: true,
				address: plan.LocalProbe(a.top, a.facts, g)})
		}
	}
	full := plan.CableMTU(a.top, a.facts.UnderlayMTU)
	for _, r := range a.remotes {
		t := target{cluster: r.cluster, slot: r.gateway.Slot, address: r.probe,
			on: cablePeer{r.link, r.id()}}
		t.busy = a.uncounted(r.link) && r.active || a.traffic.busy(t.on, time.Now())
		t.full = full
		if r.gateway.MTU > 0 {
			t.full = min(t.full, r.gateway.MTU)
		}
		t.fits = a.reportedMTU(r)
		out = append(out, t)
	}
	return out
}

// choose plans by which gateways traffic goes: those that are alive, and as long as they are those that it goes by
// now, in the kernel that have describes.
func (a *Agent) choose(have plan.Plan) {
	a.facts.Current = plan.Current(a.top, have)
	if a.inherited == nil {
		a.inherited = a.facts.Current
	}
	a.facts.Alive, a.facts.Held = a.alive(a.facts.Current)
	a.facts.Shaken = a.shaken()
	a.facts.Straight = a.straight(plan.CurrentStraight(a.top, have))
	a.facts.PathMTU = a.pathMTUs()
	if !a.fixed.Is(a.facts) {
		a.fixed = plan.Fix(a.top, a.facts)
	}
	a.plan = a.fixed.For(a.facts)
	for _, t := range a.plan.Tunnels {
		if t.Link == plan.MeshLink {
			continue // where a gateway is reached as such says nothing of it as a node
		}
		for i, p := range t.Peers {
			t.Peers[i].Candidates = a.proven.first(t.Link, p.ID, p.Candidates)
		}
	}
	a.remotes, a.mesh = a.staying(remotes(a.top, a.plan)), a.meshOf(a.plan)
}

// alive returns the slots of the gateways, by cluster, that are alive: they answer probes, or are current since before
// this agent began and have not been probed for long enough to tell. A new cable is not, which nobody may know at its
// other end yet: a sibling carries instead. What is known of a remote gateway under another key does not count: with
// the one that it has now it has to answer first. Those that are held are apart.
func (a *Agent) alive(current map[string][]int) (living, waiting map[string][]int) {
	present := map[cablePeer]bool{{}: true} // local ones have no cable
	for _, r := range a.top.Remotes {
		for _, g := range r.Gateways {
			present[cableOf(g)] = true
		}
	}
	living, waiting = map[string][]int{}, map[string][]int{}
	for _, t := range a.targets() {
		if !present[t.on] || !a.proves(t.on) {
			continue
		}
		inherited := slices.Contains(current[t.cluster], t.slot) && slices.Contains(a.inherited[t.cluster], t.slot)
		switch live := a.prober.live(t.address); {
		case live == alive, live == unknown && inherited:
			living[t.cluster] = append(living[t.cluster], t.slot)
		case live == held:
			waiting[t.cluster] = append(waiting[t.cluster], t.slot)
		}
	}
	return living, waiting
}

// reportedMTU is the size that this gateway has reported to pass through a tunnel, where larger ones did not; else 0.
func (a *Agent) reportedMTU(r remote) int {
	if a.gateway == nil {
		return 0
	}
	for _, c := range a.gateway.Status.Connections {
		if c.Cluster == r.cluster && c.Gateway == r.gateway.Node && c.Through == "" {
			return int(c.MTU)
		}
	}
	return 0
}

// pathMTUs returns what of larger packets does not pass through this node's tunnels. It is nil while nobody knows.
func (a *Agent) pathMTUs() map[plan.PeerID]int {
	sizes := a.prober.sizes()
	if sizes == nil {
		return nil
	}
	out := make(map[plan.PeerID]int, len(sizes))
	for _, r := range a.remotes {
		// Of two cables to a gateway the smaller size counts: their peers may be one.
		if size, ok := sizes[r.probe]; ok && (out[r.id()] == 0 || size < out[r.id()]) {
			out[r.id()] = size
		}
	}
	return out
}

// shaken returns the slots of the cables that are not probed, by cluster, that have had a handshake lately.
func (a *Agent) shaken() map[string][]int {
	out := map[string][]int{}
	for _, r := range a.remotes {
		if !r.probe.IsValid() && a.rotation.shaken[cablePeer{r.link, r.id()}] {
			out[r.cluster] = append(out[r.cluster], r.gateway.Slot)
		}
	}
	return out
}

// failOver moves the traffic to the gateways that are alive now. It asks nobody and looks at nothing, neither the API
// server nor the kernel: what the last round left there is what it starts from. The round that follows puts right
// what is otherwise.
func (a *Agent) failOver(ctx context.Context) {
	if len(a.plan.Links) > 0 {
		before := a.plan
		a.choose(before)
		if changes := plan.Diff(a.plan, before); len(changes) > 0 {
			log := logr.FromContextOrDiscard(ctx).WithValues("changes", len(changes))
			switch err := a.kernel.Do(ctx, changes); {
			case err != nil:
				log.Error(err, "the network was not changed to what probes have found")
			case moved(before.Active, a.plan.Active):
				log.Info("moved traffic to the gateways that are alive", "active", a.plan.Active.String())
			default:
				log.Info("changed the sizes of packets to what probes have found")
			}
		}
		a.probe()
	}
	a.Poke()
}

// moved says whether traffic goes by other gateways, or nodes of a mesh, than before. Probes also find sizes.
func moved(before, after plan.Active) bool { return !reflect.DeepEqual(before, after) }

const (
	// usualInterval and usualThreshold are what a Peering without health check gets.
	usualInterval  = 50 * time.Millisecond
	usualThreshold = 3
	// idleInterval is the longest time between probes of gateways that carry nothing, while there are no more of them
	// than probesPerSecond.
	idleInterval = time.Second
	// probesPerSecond is what all targets share, a tenth of a core: with more of them each is probed less often. Those
	// that carry traffic have at least half of it, the others no less than idlePerSecond.
	probesPerSecond = 500
	idlePerSecond   = 100
)

// probe sets whom to probe.
func (a *Agent) probe() {
	fast, threshold := a.patience()
	pace := paces(a.targets(), fast)
	a.probeMesh(pace, fast)
	a.prober.Set(pace, fast, threshold)
}

// paces returns how to probe each target, fast where there are few.
func paces(targets []target, fast time.Duration) map[netip.Addr]Target {
	targets = slices.DeleteFunc(slices.Clone(targets), func(t target) bool { return !t.address.IsValid() })
	busy := 0
	for _, t := range targets {
		if t.busy {
			busy++
		}
	}
	tick := fast // the prober has no others than multiples of it
	each := func(n, perSecond int) time.Duration {
		return (time.Duration(n)*time.Second/time.Duration(perSecond) + tick - 1).Truncate(tick)
	}
	idle := len(targets) - busy
	slow := max(fast, min(each(idle, idlePerSecond), max(idleInterval, each(idle, probesPerSecond))))
	left := probesPerSecond - int(time.Duration(idle)*time.Second/slow)
	fast = max(fast, each(busy, max(left, probesPerSecond/2)))
	slow = max(slow, fast)
	out := make(map[netip.Addr]Target, len(targets))
	for _, t := range targets {
		to := Target{Interval: slow, Full: t.full, Fits: t.fits, Beacon: t.own}
		if t.busy {
			to.Interval = fast
		}
		out[t.address] = to
	}
	return out
}

// patience is the time between two probes of a gateway that carries traffic, and after how many lost ones it is dead.
func (a *Agent) patience() (interval time.Duration, threshold int) {
	return cmp.Or(time.Duration(a.healthCheck.IntervalMilliseconds)*time.Millisecond, usualInterval),
		int(cmp.Or(a.healthCheck.FailureThreshold, usualThreshold))
}

// haState is Active on a gateway that carries its cluster's traffic. In a cluster of which one does, it is the one
// that says so already, as long as this node hears of it.
func (a *Agent) haState(gateways []v1alpha1.Gateway) v1alpha1.HAState {
	self := slices.IndexFunc(a.top.Local.Gateways, func(g topology.Gateway) bool { return g.Node == a.node })
	if self < 0 {
		return ""
	}
	var current, works []int
	for _, g := range gateways {
		if g.Status.HAState == v1alpha1.GatewayActive {
			current = append(current, int(g.Spec.Slot))
		}
	}
	slot := a.top.Local.Gateways[self].Slot
	works = append(works, slot)
	for _, t := range a.targets() {
		if t.cluster != a.top.Cluster {
			continue
		}
		live := a.prober.live(t.address)
		if live == alive || live == unknown && slices.Contains(current, t.slot) {
			works = append(works, t.slot)
		}
	}
	if slices.Contains(plan.Choose(a.top.Local.Gateways, works, current, plan.Carrying(a.top)), slot) {
		return v1alpha1.GatewayActive
	}
	return v1alpha1.GatewayStandby
}
