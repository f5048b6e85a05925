// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/internal/forward"
)

func equalStatus(a, b v1alpha1.GatewayStatus) bool { return equality.Semantic.DeepEqual(a, b) }

// measure reads the tunnels, dials on where nobody answers, and reports.
func (a *Agent) measure(ctx context.Context) {
	now := time.Now()
	tracked, err := a.kernel.Tracked()
	if err != nil {
		logr.FromContextOrDiscard(ctx).V(1).Info("connection tracking not read", "why", err.Error())
		tracked = kernel.Tracked{}
	}
	a.metrics.tracks(tracked)
	var tunnels []Tunnel
	states := a.peerStates(ctx)
	interval, _ := a.patience()
	a.noteShaken(states, now)
	reached := a.stillPeers(a.proven.endpoints)
	for _, r := range a.remotes {
		state := states[cablePeer{r.link, r.id()}]
		var health *Health
		if r.probe.IsValid() {
			health = a.prober.Health(r.probe)
		}
		counted := state.ID == r.id() && !a.uncounted(r.link)
		if counted {
			a.traffic.look(state, a.prober.Carried(r.probe), interval, now)
		}
		c := connection(r, state, health, a.advice(r, state), now)
		if counted {
			c.Traffic = a.traffic.rate(cablePeer{r.link, r.id()})
			a.hearing.look(state, now)
			if c.Status != v1alpha1.ConnectionConnected {
				c.Heard = a.hearing.says(cablePeer{r.link, r.id()}, now)
			}
		}
		tunnels = append(tunnels, Tunnel{c, state})
		if c.Status == v1alpha1.ConnectionConnected && state.Endpoint.IsValid() && !r.gateway.VTEP.IsValid() {
			reached[r.name()] = state.Endpoint
		}
		a.dial(ctx, r, state, c.Status == v1alpha1.ConnectionConnected, now)
	}
	present := func(at cablePeer) bool { _, ok := states[at]; return ok }
	a.dialler.forget(present)
	a.traffic.forget(present)
	a.hearing.forget(present)
	a.lookAtGateways(now)
	a.measureMesh(ctx, now)
	a.probe()
	tunnels = perGateway(a.noteSilent(tunnels))
	connections := make([]v1alpha1.Connection, 0, len(tunnels))
	for _, t := range tunnels {
		connections = append(connections, t.connection)
	}
	connections = throughRelays(connections, a.top.Remotes)
	a.rotate(ctx, now)
	a.metrics.measured(tunnels)
	a.metrics.associated(a.associations(tunnels))
	if !maps.Equal(reached, a.proven.endpoints) {
		a.proven.endpoints = reached
		a.endpoints.put(maps.Clone(reached))
	}
	if a.gateway == nil {
		a.reported = v1alpha1.GatewayStatus{}
		return
	}
	a.report(ctx, connections, tracked, now)
}

// perGateway leaves, of two tunnels to the same gateway, the one that carries traffic or else the one that is
// connected.
func perGateway(tunnels []Tunnel) []Tunnel {
	rank := func(c v1alpha1.Connection) int {
		switch {
		case c.Active:
			return 2
		case c.Status == v1alpha1.ConnectionConnected:
			return 1
		}
		return 0
	}
	var out []Tunnel
	slices.SortStableFunc(tunnels, func(x, y Tunnel) int {
		return cmp.Or(cmp.Compare(x.connection.Cluster, y.connection.Cluster), cmp.Compare(x.connection.Slot,
			y.connection.Slot))
	})
	for _, t := range tunnels {
		last := len(out) - 1
		switch {
		case last < 0 || out[last].connection.Cluster != t.connection.Cluster ||
			out[last].connection.Slot != t.connection.Slot:
			out = append(out, t)
		case rank(t.connection) > rank(out[last].connection):
			out[last] = t
		}
	}
	return out
}

// gatewayReport is a status of a gateway, to be written.
type gatewayReport struct {
	gateway string
	status  v1alpha1.GatewayStatus
}

// stillPeers returns a copy of the endpoints by peer, without those of peers that are no more. Before the
// first plan nobody knows who is.
func (a *Agent) stillPeers(endpoints map[string]netip.AddrPort) map[string]netip.AddrPort {
	if len(a.plan.Tunnels) == 0 {
		return maps.Clone(endpoints)
	}
	out := map[string]netip.AddrPort{}
	for _, r := range a.remotes {
		if e, ok := endpoints[r.name()]; ok && !r.gateway.VTEP.IsValid() {
			out[r.name()] = e
		}
	}
	return out
}

func (a *Agent) peerStates(ctx context.Context) map[cablePeer]kernel.PeerState {
	states := map[cablePeer]kernel.PeerState{}
	for _, t := range a.plan.Tunnels {
		if t.Link == plan.MeshLink {
			continue // whose peers may be gateways too
		}
		peers, err := a.cable.Peers(t.Link)
		if err != nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("cable not read", "link", t.Link, "why", err.Error())
		}
		for _, p := range peers {
			states[cablePeer{t.Link, p.ID}] = p
		}
	}
	a.vxlanStates(ctx, states)
	return states
}

// dial tries the next address of a peer that is there and does not answer. One that answers is reached, though it may
// have to for longer until it counts as connected: dialled elsewhere it would be lost just when traffic goes there.
func (a *Agent) dial(ctx context.Context, r remote, state kernel.PeerState, connected bool, now time.Time) {
	works := connected || a.prober.answers(r.probe)
	switch {
	case r.gateway.IPsec && a.ipsec != nil:
		a.ipsec.Hears(r.id(), works)
		return
	case state.Link != r.link || r.gateway.VTEP.IsValid():
		return // one by VXLAN has one address, and is told to nobody
	}
	heard := !state.LastHandshake.IsZero() || state.ReceivedBytes > 0
	address, ok := a.dialler.next(cablePeer{r.link, r.id()}, works, heard, state.Endpoint, r.candidates, now)
	if !ok {
		return
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("remoteCluster", r.cluster, "gateway", r.gateway.Node)
	if heard {
		log.Info("dialling another address", "address", address.String(), "before", state.Endpoint.String())
	} else {
		log.V(1).Info("dialling a gateway that has not been heard yet", "address", address.String())
	}
	a.redial(log, state, address)
}

func (a *Agent) redial(log logr.Logger, state kernel.PeerState, address netip.AddrPort) {
	if err := a.cable.Redial(state.Link, state.ID, address); err != nil {
		log.Error(err, "the address was not set")
	}
}

// report hands the gateway's status over to be written, if it says anything new.
func (a *Agent) report(ctx context.Context, connections []v1alpha1.Connection, tracked kernel.Tracked, now time.Time) {
	if a.facts.UnderlayMTU == 0 {
		return // the node is not known yet
	}
	defer a.cluster.Alive(a.gateway)
	if a.reported.ReportedAt == nil {
		a.transitions = newTransitions(a.gateway.Status, now)
	}
	a.transitions.stamp(connections, a.reported.Connections, now)
	next := v1alpha1.GatewayStatus{
		HAState:        cmp.Or(a.ha, v1alpha1.GatewayActive),
		Endpoint:       endpoint(a.gateway, a.top, a.facts, a.keys.IPsecPublic(a.facts.ID), a.candidates()),
		Implementation: a.implementation(),
		Version:        a.version,
		FlowHash:       a.flowHash(ctx),
		Connections:    connections,
		Summary:        summary(connections),
		Relays:         a.relaysInForce(),
		RelaysVersion:  a.version,
		Keys:           a.rotation.status,
		UnheardNodes:   a.unheardNodes(now),
		Conditions: a.withKey(withFullSize(withTracking(conditions(a.reported.Conditions, a.gateway.Generation, a.syncErr,
			refused(a.top.Problems), now.Truncate(time.Second)), tracked, a.gateway.Generation, now.Truncate(time.Second)),
			connections, a.gateway.Generation, now.Truncate(time.Second)), now.Truncate(time.Second)),
	}
	if !worthWriting(next, a.reported, now) && a.gateway.Status.Endpoint != nil {
		return
	}
	at := metav1.NewTime(now.Truncate(time.Second))
	next.ReportedAt = &at
	a.statuses.put(gatewayReport{a.gateway.Name, *next.DeepCopy()})
	a.gateway.Status = next
	a.announce(ctx, a.reported.Connections, connections)
	a.announceKey()
	a.announceCondition(ctx, v1alpha1.GatewayTrackingAvailable, a.reported.Conditions, next.Conditions)
	a.announceCondition(ctx, v1alpha1.GatewayFullSize, a.reported.Conditions, next.Conditions)
	a.reported = next
}

// flowHash of this node. Sealane leaves it as it is: it holds for every route of the node.
func (a *Agent) flowHash(ctx context.Context) v1alpha1.FlowHash {
	ports, err := a.kernel.HashesPorts()
	switch {
	case err != nil:
		logr.FromContextOrDiscard(ctx).V(1).Info("how flows are spread is not known", "why", err.Error())
		return ""
	case ports:
		return v1alpha1.FlowHashPorts
	}
	return v1alpha1.FlowHashAddresses
}

// implementation of the cables; empty before there is a plan.
func (a *Agent) implementation() v1alpha1.CableImplementation {
	if a.cable == nil {
		return ""
	}
	return a.cable.Implementation()
}

// candidates are the addresses to publish: the node's own first, for they are the shortest way.
func (a *Agent) candidates() []v1alpha1.EndpointAddress {
	var out []v1alpha1.EndpointAddress
	for _, address := range privateAddresses(a.top, a.node) {
		out = append(out, v1alpha1.EndpointAddress{Type: v1alpha1.AddressPrivate, IP: address.String()})
	}
	const most = 16
	for _, address := range a.publicAddresses() {
		if !slices.ContainsFunc(out, func(o v1alpha1.EndpointAddress) bool { return o.IP == address.IP }) && len(out) < most {
			out = append(out, address)
		}
	}
	return out
}

// advice says which port to forward where neither this gateway nor a remote one can be reached from outside.
func (a *Agent) advice(r remote, peer kernel.PeerState) string {
	if a.gateway == nil || !peer.LastHandshake.IsZero() {
		return ""
	}
	port := func(slot int32) int32 {
		if r.gateway.IPsec {
			return int32(a.top.Cable.IPsecPort)
		}
		return int32(a.top.Cable.Port) + slot%v1alpha1.NextKeySlots
	}
	near := forward.Gateway{Cluster: a.top.Cluster, Port: port(int32(r.gateway.Slot)), Addresses: a.candidates()}
	far := forward.Gateway{Cluster: r.cluster, Port: port(a.gateway.Spec.Slot)}
	for _, c := range r.gateway.Candidates {
		if c.Observed {
			far.Observed = append(far.Observed, v1alpha1.ObservedAddress{IP: c.Addr.String(), Port: int32(c.Port)})
			continue
		}
		at := v1alpha1.EndpointAddress{Type: v1alpha1.AddressPublic, IP: c.Addr.String()}
		if c.Private {
			at.Type = v1alpha1.AddressPrivate
		}
		far.Addresses = append(far.Addresses, at)
	}
	return forward.Advice(near, far)
}

// publicAddresses returns the newest answer of the resolver. Before the first, what is published stays: other
// clusters need not redial because this agent restarts.
func (a *Agent) publicAddresses() []v1alpha1.EndpointAddress {
	found, ok := a.public.addresses()
	if ok || a.gateway.Status.Endpoint == nil {
		return found
	}
	return slices.DeleteFunc(slices.Clone(a.gateway.Status.Endpoint.Addresses), func(e v1alpha1.EndpointAddress) bool {
		return e.Type == v1alpha1.AddressPrivate
	})
}

// resolvePublic tells the resolver what to ask for.
func (a *Agent) resolvePublic(o Objects) {
	if self := o.node(a.node); a.gateway != nil && self != nil {
		a.public.annotations.put(self.Annotations[v1alpha1.AnnotationPublicIP])
	}
}

// announce logs transitions, and tells people by events.
func (a *Agent) announce(ctx context.Context, before, after []v1alpha1.Connection) {
	log := logr.FromContextOrDiscard(ctx)
	for _, c := range after {
		b := sameConnection(before, c)
		if b != nil && b.Status == c.Status || b == nil && c.Status == v1alpha1.ConnectionConnecting {
			continue
		}
		log.Info("connection changed", "remoteCluster", c.Cluster, "gateway", c.Gateway, "status", c.Status,
			"address", c.Address)
		text := fmt.Sprintf("%s/%s at %s: %s", cmp.Or(c.Through, c.Cluster), c.Gateway, c.Address, c.Status)
		if c.Through != "" {
			text = c.Cluster + " through " + text
		}
		if c.Message != "" {
			text += ": " + c.Message
		}
		a.cluster.Event(a.gateway, c.Status == v1alpha1.ConnectionError, "Connection"+string(c.Status), text)
	}
}

// announceKey tells once that the gateway has another key than before.
func (a *Agent) announceKey() {
	if a.newKey != "" {
		a.cluster.Event(a.gateway, true, v1alpha1.EventKeyReplaced, a.newKey)
		a.newKey = ""
	}
}

// announceCondition logs that a condition of the gateway turns False, and that it no longer is, and tells people by
// events.
func (a *Agent) announceCondition(ctx context.Context, kind string, before, after []metav1.Condition) {
	was := meta.IsStatusConditionFalse(before, kind)
	c := meta.FindStatusCondition(after, kind)
	if c == nil || was == (c.Status == metav1.ConditionFalse) {
		return
	}
	logr.FromContextOrDiscard(ctx).Info("condition changed", "condition", kind, "reason", c.Reason, "message", c.Message)
	a.cluster.Event(a.gateway, !was, c.Reason, c.Message)
}

// summary counts the connections that are up, as kubectl shows them.
func summary(connections []v1alpha1.Connection) string {
	up := 0
	for i := range connections {
		if connections[i].Status == v1alpha1.ConnectionConnected {
			up++
		}
	}
	return fmt.Sprintf("%d of %d connected", up, len(connections))
}
