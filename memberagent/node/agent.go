// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/ipsec"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/clip"
)

const (
	// burst is the wait after a round, in which events gather.
	burst = 100 * time.Millisecond
	// resyncEvery finds what no event tells, such as a firewall that was reloaded.
	resyncEvery = 30 * time.Second
	// measureEvery reads the tunnels' counters, and tries other addresses of peers that do not answer.
	measureEvery = time.Second
	// retryFirst and retryMost bound the wait after a failure.
	retryFirst = 250 * time.Millisecond
	retryMost  = 15 * time.Second
	// maxStateError and maxRefused bound, in bytes, what a condition says of a failure, and of what was left out.
	maxStateError = 256
	maxRefused    = 768
	// askTimeout bounds the question, after SIGTERM, whether the agent has been uninstalled, and cleanTimeout
	// the work if it has.
	askTimeout   = 5 * time.Second
	cleanTimeout = 15 * time.Second
)

// Agent of one node.
type Agent struct {
	node, version string
	revision      string // of the agent's DaemonSet
	deaths        int
	cluster       Cluster
	kernel        *kernel.Kernel
	keys          Keys
	ipsec         *ipsec.Daemon // nil where there is none
	ipsecDir      string
	newKey        string // until it is told
	prober        *Prober
	beacons       *beacons
	ipv6          bool // the prober has it
	metrics       *Metrics
	snapshot      snapshot
	proven        *proven
	poke          chan struct{}
	// turned says that a gateway that was alive is dead, or the other way round.
	turned chan struct{}
	// asked are those who want to know what is planned.
	asked chan chan<- Planned

	// What goroutines of their own write, which may wait for the API server, and for the disk.
	states    latest[NodeState]
	turns     latest[Turn]
	statuses  latest[gatewayReport]
	snapshots latest[Objects]
	endpoints latest[map[string]netip.AddrPort]
	public    *resolver

	// What the loop, and nobody else, carries from one round to the next.
	top     topology.Topology
	fixed   *plan.Fixed // of top; nil before it is needed
	plan    plan.Plan
	cable   kernel.Driver // of the plan; nil before there is one
	remotes []remote      // of the plan
	mesh    []plan.Peer   // of the plan: nodes of other clusters
	facts   plan.NodeFacts
	gateway *v1alpha1.Gateway // nil on a worker
	ha      v1alpha1.HAState
	// healthCheck of the Peering.
	healthCheck v1alpha1.HealthCheckSpec
	reported    v1alpha1.GatewayStatus
	transitions transitions
	syncErr     error
	dialler     dialler
	meshDialler dialler
	attempts    attempts
	traffic     traffic
	hearing     hearing
	rotation    rotation
	// inherited are the slots, by cluster, of the gateways that the node's routes went by when the agent began.
	inherited map[string][]int
	// steppedDown is when this gateway, which is to be none any more, has withdrawn; zero if it has not.
	steppedDown time.Time
	// leaving are the remote gateways that are none any more, and since when, and leavingMesh the nodes of a mesh.
	leaving, leavingMesh map[plan.PeerID]time.Time
	// leavingVXLAN are the cables by VXLAN, or by IPsec, by which remote gateways are reached no more, and since when.
	leavingVXLAN map[cablePeer]time.Time
	// vxlanTaken says that there are none by VXLAN, for another program has the port.
	vxlanTaken bool
	state      NodeState // as last handed over
	legs
	started time.Time
	// follows another agent, which has ended; before it did, this one has looked at the node and could have programmed it.
	follows bool

	ready  atomic.Bool
	lastOK atomic.Int64 // Unix seconds of the loop's last round
}

// Options of an agent.
type Options struct {
	// Node that the agent runs on.
	Node string
	// Keys of the node.
	Keys Keys
	// NewKey says why the node has another key than before; empty if it has not. People are told if it is a gateway.
	NewKey string
	// IPsecDir is the directory in common with the container that runs charon; empty if there is none.
	IPsecDir string
	// Version to report.
	Version string
	// StateDir keeps what must outlive the process.
	StateDir string
	// Revision of the agent's DaemonSet that the agent is of; empty if it is of none.
	Revision string
	// Deaths of former agents of the same supervisor, none of which lived for Calm.
	Deaths int
}

// New returns an agent. Its cluster is set by SetCluster before Run.
func New(o Options, k *kernel.Kernel, m *Metrics) (*Agent, error) {
	a := &Agent{
		node: o.Node, version: o.Version, revision: o.Revision, deaths: o.Deaths, keys: o.Keys, newKey: o.NewKey,
		kernel: k, metrics: m,
		snapshot: newSnapshot(o.StateDir), poke: make(chan struct{}, 1), turned: make(chan struct{}, 1),
		asked:  make(chan chan<- Planned),
		states: newLatest[NodeState](), turns: newLatest[Turn](), statuses: newLatest[gatewayReport](),
		snapshots: newLatest[Objects](),
		endpoints: newLatest[map[string]netip.AddrPort](), public: newResolver(), attempts: attempts{}, hearing: hearing{},
	}
	if a.ipsecDir = o.IPsecDir; o.IPsecDir != "" {
		a.ipsec = ipsec.Open(o.IPsecDir, o.Keys, a.Poke)
	}
	m.countsDrops(k.Drops)
	a.proven = newProven(o.StateDir)
	a.ipv6 = k.IPv6()
	var err error
	if a.beacons, err = newBeacons(a.ipv6); err != nil {
		return nil, err
	}
	if a.prober, err = NewProber(a.ipv6, func() { signal(a.turned) }); err != nil {
		return nil, errors.Join(err, a.beacons.close())
	}
	return a, nil
}

// SetCluster gives the agent its API server.
func (a *Agent) SetCluster(c Cluster) { a.cluster = c }

// Poke wakes the loop.
func (a *Agent) Poke() { signal(a.poke) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Ready says whether the node is as the cluster's objects ask.
func (a *Agent) Ready() bool { return a.ready.Load() }

// Alive says whether the loop goes round.
func (a *Agent) Alive() bool {
	const stuck = 2 * time.Minute
	return time.Since(time.Unix(a.lastOK.Load(), 0)) < stuck
}

// Run until the context ends. Then the node stays as it is, unless the agent has been uninstalled.
func (a *Agent) Run(ctx context.Context) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 5)
	go func() { failed <- a.kernel.Watch(inner, a.Poke) }()
	go func() { failed <- a.kernel.WatchFirewall(inner, a.Poke) }()
	go func() { failed <- a.prober.Run(inner) }()
	go func() { failed <- a.beacons.run(inner) }()
	background := a.background(inner)
	if a.ipsec != nil {
		background.Go(func() { failed <- a.ipsec.Run(inner) }) // what it asks for is to be behind it before leave
	} else if err := ipsec.Clean(""); err != nil { // it may have been installed with the container before
		logr.FromContextOrDiscard(ctx).Error(err, "what the kernel encrypts by ipsec stays")
	}
	a.started = time.Now()
	if err := a.proven.load(); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "where peers were last reached is not known")
	}
	// What another has closed stays closed, and each look at the kernel lengthens the gap between the two.
	if !a.follows {
		if err := a.failClosed(inner); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "remote networks are not closed before the first sync")
		}
	}
	a.loop(inner, failed)
	cancel()
	background.Wait()
	select {
	case err := <-failed:
		if err != nil {
			return err
		}
	default:
	}
	a.withdraw(context.WithoutCancel(ctx))
	return a.leave(context.WithoutCancel(ctx))
}

// background starts what may wait for others: for the API server, name servers and the disk. The loop hands
// values over and never waits.
func (a *Agent) background(ctx context.Context) *sync.WaitGroup {
	log := logr.FromContextOrDiscard(ctx)
	failed := func(what string) func(error) { return func(err error) { log.Error(err, what) } }
	group := &sync.WaitGroup{}
	group.Go(func() { a.states.each(ctx, a.cluster.SetNodeState, failed("the node's state was not written")) })
	group.Go(func() {
		a.statuses.each(ctx, func(ctx context.Context, r gatewayReport) error {
			return client.IgnoreNotFound(a.cluster.SetGatewayStatus(ctx, r.gateway, r.status))
		}, failed("the gateway's status was not written"))
	})
	group.Go(func() {
		a.snapshots.each(ctx, func(_ context.Context, o Objects) error { return a.snapshot.save(o) },
			failed("the objects were not kept for a restart"))
	})
	group.Go(func() {
		a.endpoints.each(ctx, func(_ context.Context, e map[string]netip.AddrPort) error { return a.proven.save(e) },
			failed("where peers are reached was not kept for a restart"))
	})
	group.Go(func() { a.public.run(ctx, a.cluster, failed("a public address is not known")) })
	return group
}

// failClosed acts before anything is known but what was kept for a restart: packets to other clusters do not
// leave in clear, and none from them come in, while the API server and the cables are yet to come. It only
// adds: what a former process left is newer than what it kept.
func (a *Agent) failClosed(ctx context.Context) error {
	o, ok, err := a.snapshot.load()
	if err != nil || !ok || o.Peering.Spec.Phase == v1alpha1.MemberLeaving {
		return err
	}
	top, facts, err := a.know(o)
	if err != nil {
		return err
	}
	have, err := a.kernel.Observe(ctx)
	if err != nil {
		return err
	}
	return a.kernel.Do(ctx, slices.DeleteFunc(plan.Diff(plan.FailClosed(top, facts), have), func(c plan.Change) bool {
		return c.Op != plan.Add
	}))
}

// know returns the network that the objects describe, and what the node knows of itself.
func (a *Agent) know(o Objects) (topology.Topology, plan.NodeFacts, error) {
	addresses, err := a.kernel.Addresses()
	if err != nil {
		return topology.Topology{}, plan.NodeFacts{}, err
	}
	around, err := a.surroundings(o, addresses)
	if err != nil {
		return topology.Topology{}, plan.NodeFacts{}, err
	}
	top := topology.Build(topology.Input{
		Peering: o.Peering, Gateways: o.Gateways, Nodes: o.Nodes, NodeNetworks: o.NodeNetworks,
		GlobalAllocations: o.GlobalAllocations, ClusterGlobalEgressIP: o.ClusterGlobalEgressIP,
		Protected: around.protected(),
	})
	f := facts(top, a.node, a.keys.Current(), addresses, a.ipv6 && a.kernel.IPv6())
	return a.withKeys(top, f)
}

// loop ends with the context, or when something that it needs fails.
func (a *Agent) loop(ctx context.Context, failed chan error) {
	log := logr.FromContextOrDiscard(ctx)
	resync, measure := time.NewTicker(resyncEvery), time.NewTicker(measureEvery)
	defer resync.Stop()
	defer measure.Stop()
	retry := time.NewTimer(0) // the first round
	defer retry.Stop()
	wait := retryFirst
	for {
		a.lastOK.Store(time.Now().Unix())
		select {
		case <-ctx.Done():
			return
		case err := <-failed:
			failed <- err
			return
		case <-measure.C:
			a.measure(ctx)
			measure.Reset(a.dialler.due(time.Now(), measureEvery))
			continue
		case <-a.turned:
			a.failOver(ctx)
			continue
		case answer := <-a.asked:
			answer <- a.planned(ctx)
			continue
		case <-a.poke:
		case <-resync.C:
		case <-retry.C:
		}
		err := a.round(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !errors.Is(err, errNotLoaded) && (a.syncErr == nil || err.Error() != a.syncErr.Error()) {
				log.Error(err, "sync failed")
			}
			retry.Reset(wait)
			wait = min(2*wait, retryMost)
		default:
			wait = retryFirst
		}
		a.syncErr = err
		a.measure(ctx)
		measure.Reset(a.dialler.due(time.Now(), measureEvery))
		a.pause(ctx, burst)
	}
}

// pause waits, but not with what cannot wait.
func (a *Agent) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			return
		case <-a.turned:
			a.failOver(ctx)
		}
	}
}

// errNotLoaded is no failure: the node stays as it is until the objects are there.
var errNotLoaded = errors.New("the API server has not given all objects yet")

// round is one sync and what it says of the node.
func (a *Agent) round(ctx context.Context) error {
	objects, known, err := a.objects(ctx)
	if err != nil {
		return err
	}
	if !known {
		return errNotLoaded
	}
	start := time.Now()
	state, err := a.Sync(ctx, objects)
	a.metrics.synced(time.Since(start), err)
	a.ready.Store(err == nil)
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		state.Programmed, state.Message = v1alpha1.ReasonProgrammingFailed, clip.Text(first, maxStateError)
	}
	state.Unreached = a.unreached(time.Now())
	if ctx.Err() == nil && state.Programmed != "" && state != a.state {
		a.states.put(state)
		a.state = state
	}
	return err
}

// snapshotPatience is how long the API server is given before what it said last, before a restart, has
// to do.
const snapshotPatience = 3 * time.Second

// objects returns what the caches hold, or while they are not loaded what they last held. A Peering that
// is missing changes nothing, so the last one stands in for it, and the last nodes for those that nobody tells of then.
func (a *Agent) objects(ctx context.Context) (Objects, bool, error) {
	o, synced, err := a.cluster.Objects(ctx)
	if err != nil {
		return Objects{}, false, err
	}
	if synced {
		a.keep(ctx, &o)
		return o, true, nil
	}
	if time.Since(a.started) < snapshotPatience {
		return Objects{}, false, nil
	}
	return a.snapshot.load()
}

// keep hands the objects over to be kept for a restart, or completes them from the last ones.
func (a *Agent) keep(ctx context.Context, o *Objects) {
	if o.Peering != nil {
		a.snapshots.put(essence(*o)) // a copy: the loop goes on with its own
		return
	}
	last, ok, err := a.snapshot.load()
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "the objects kept for a restart are lost")
	}
	if !ok {
		return
	}
	if o.Peering = last.Peering; len(o.Nodes) == 0 {
		o.Nodes = last.Nodes
	}
}

// Sync makes the node as the objects ask, and returns the state that it is in then: the zero state while
// there is no Peering, which leaves the node as it is.
func (a *Agent) Sync(ctx context.Context, o Objects) (NodeState, error) {
	a.gateway = o.gateway(a.node)
	top, facts, err := a.know(o)
	if err != nil {
		return NodeState{}, err
	}
	a.logProblems(ctx, top)
	if o.Peering != nil && o.Peering.Spec.Phase == v1alpha1.MemberLeaving {
		a.top, a.fixed, a.plan, a.remotes, a.mesh = top, nil, plan.Plan{}, nil, nil
		a.expectBeacons(time.Now())
		a.probe()
		a.setIPsec()
		return NodeState{Programmed: v1alpha1.ReasonNodeCleaned}, a.clean(ctx)
	}
	a.facts = facts
	a.resolvePublic(o)
	if o.Peering == nil {
		a.top.Local, a.fixed = top.Local, nil
		return NodeState{}, nil
	}
	driver, err := a.kernel.Driver(top.Cable.Driver)
	if err != nil {
		return NodeState{}, fmt.Errorf("%w; the node's network stays as it is", err)
	}
	done := NodeState{Programmed: v1alpha1.ReasonNodeProgrammed, Refused: refused(top.Problems), Key: a.key(),
		NodesReached: nodesReached(a.mesh)}
	if later, err := a.stepsDown(ctx, top); later || err != nil {
		return done, err
	}
	have, err := a.kernel.Observe(ctx)
	if err != nil {
		return NodeState{Programmed: v1alpha1.ReasonNodeProgrammed}, err
	}
	a.linger(&top, time.Now())
	a.cable, a.top, a.fixed, a.healthCheck = driver, top, nil, o.Peering.Spec.HealthCheck
	a.rotation.asked = o.Peering.Spec.Keys
	a.choose(have)
	a.ha = a.haState(o.Gateways)
	if err = a.apply(ctx, have); err == nil {
		a.noteKeyed()
	}
	// A route by the carrier fails until that has its address, which it gets from there.
	if !errors.Is(err, kernel.ErrUnguarded) {
		a.setIPsec()
	}
	a.expectBeacons(time.Now())
	a.probe()
	done.Key, done.NodesReached = a.key(), nodesReached(a.mesh)
	return done, err
}

// apply changes what of the kernel differs from the plan.
func (a *Agent) apply(ctx context.Context, have plan.Plan) error {
	changes := plan.Diff(a.plan, have)
	if len(changes) == 0 {
		return nil
	}
	log := logr.FromContextOrDiscard(ctx)
	log.Info("changing the node's network", "changes", len(changes))
	for _, c := range changes {
		log.V(1).Info("change", "what", c.String())
		a.metrics.changed(c)
	}
	return a.kernel.Do(ctx, changes)
}
