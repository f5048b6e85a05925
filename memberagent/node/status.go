// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/clip"
)

// A handshake lasts 180 s at most (WireGuard, REJECT_AFTER_TIME): a tunnel in use has a younger one.
const handshakeLife = 180 * time.Second

// remote is a gateway of another cluster, and this node's tunnel to it.
type remote struct {
	cluster string
	gateway topology.Gateway
	link    string
	// candidates to dial, most preferred first.
	candidates []netip.AddrPort
	active     bool // traffic to the cluster uses it
	// probe is the address at which it is probed; invalid if it is not.
	probe netip.Addr
}

func (r remote) id() plan.PeerID { return plan.PeerOf(r.gateway) }

// name of the tunnel in what is kept for a restart.
func (r remote) name() string { return provenName(r.link, r.id()) }

// remotes lists the tunnels that a plan has, sorted by cluster and slot.
func remotes(top topology.Topology, p plan.Plan) []remote {
	type place struct {
		cluster string
		gateway topology.Gateway
	}
	places := map[cablePeer]place{}
	for _, r := range top.Remotes {
		for _, g := range r.Gateways {
			places[cableOf(g)] = place{r.Name, g}
		}
	}
	var out []remote
	for _, t := range p.Cables() {
		if t.Link == plan.MeshLink {
			continue
		}
		for _, peer := range t.Peers {
			if at, ok := places[cablePeer{t.Link, peer.ID}]; ok {
				out = append(out, remote{at.cluster, at.gateway, t.Link, peer.Candidates, peer.Active, peer.Probe})
			}
		}
	}
	slices.SortFunc(out, func(a, b remote) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.gateway.Slot, b.gateway.Slot))
	})
	return out
}

// connection describes a tunnel. Without probes the handshake's age has to do.
// The advice is what helps where there is no handshake.
func connection(r remote, peer kernel.PeerState, health *Health, advice string, now time.Time) v1alpha1.Connection {
	c := v1alpha1.Connection{
		Cluster: r.cluster, Gateway: r.gateway.Node, Slot: int32(r.gateway.Slot) % v1alpha1.NextKeySlots, Link: r.link,
		Active: r.active, Cable: v1alpha1.CableWireGuard,
	}
	switch {
	case r.gateway.IPsec:
		c.Cable = v1alpha1.CableIPsec
	case r.gateway.VTEP.IsValid():
		c.Cable = v1alpha1.CableVXLAN
	}
	if peer.Endpoint.IsValid() {
		c.Address = peer.Endpoint.String()
		c.NAT = !slices.ContainsFunc(r.gateway.Candidates, func(k topology.Candidate) bool {
			return k.Private && k.Addr == peer.Endpoint.Addr()
		})
	}
	switch {
	case health != nil:
		c.Status, c.RTT, c.LossPercent = health.Status, health.RTT, health.LossPercent
		c.MTU = int32(health.MTU)
	case peer.LastHandshake.IsZero():
		c.Status = v1alpha1.ConnectionConnecting
	case now.Sub(peer.LastHandshake) < handshakeLife:
		c.Status = v1alpha1.ConnectionConnected
	default:
		c.Status = v1alpha1.ConnectionError
	}
	c.Reason, c.Message = explain(c, peer)
	if c.Reason == v1alpha1.ReasonNoHandshake && advice != "" {
		c.Message += "; " + advice
	}
	if c.Status == v1alpha1.ConnectionConnected && c.MTU > 0 {
		c.Reason, c.Message = v1alpha1.ReasonPathMTULow, lostSizes(int(c.MTU), health.LeastLost, c.Address)
	}
	return c
}

// explain says what to look at. It holds nothing that changes while the state does not.
func explain(c v1alpha1.Connection, peer kernel.PeerState) (reason, message string) {
	switch {
	case c.Status == v1alpha1.ConnectionConnected:
		return "", ""
	case c.Cable == v1alpha1.CableVXLAN:
		return v1alpha1.ReasonProbesLost, fmt.Sprintf("probes by vxlan to %s are not answered: check that UDP to that "+
			"address and port gets through both ways with no NAT between, and that the agents there know vxlan", c.Address)
	case c.Cable == v1alpha1.CableIPsec:
		return explainIPsec(c, peer)
	case !peer.Endpoint.IsValid():
		return v1alpha1.ReasonNoAddress, "the remote gateway publishes no address that can be dialled from here: waiting " +
			"for it to dial this one"
	case peer.LastHandshake.IsZero():
		return v1alpha1.ReasonNoHandshake,
			fmt.Sprintf("no handshake with %s yet: check that UDP to that address and port gets through; while this node's "+
				"clock is behind what it was, only the remote gateway can begin one, which takes it 15 s", c.Address)
	case c.Status == v1alpha1.ConnectionConnecting:
		return v1alpha1.ReasonNoProbeAnswered, fmt.Sprintf("handshake done with %s, no probe answered yet", c.Address)
	}
	return v1alpha1.ReasonProbesLost, fmt.Sprintf("probes through the tunnel are not answered any more: check the remote "+
		"gateway, and that UDP to %s gets through", c.Address)
}

// lostSizes says what to look at where packets larger than mtu are lost, or not even those of the least one pass.
func lostSizes(mtu int, least bool, address string) string {
	const look = "check the links between, and that firewalls let fragments and ICMP errors through"
	if least {
		return fmt.Sprintf("packets of %d bytes, which every path has to carry, are lost on the way to %s or back: %s", mtu,
			address, look)
	}
	return fmt.Sprintf("packets larger than %d bytes are lost on the way to %s or back, and traffic is kept as small: %s",
		mtu, address, look)
}

// endpoint describes this gateway to the other clusters.
func endpoint(gateway *v1alpha1.Gateway, top topology.Topology, f plan.NodeFacts, ipsecKey string,
	addresses []v1alpha1.EndpointAddress) *v1alpha1.Endpoint {
	var next string
	if f.NextID != "" {
		next = f.NextID.String()
	}
	return &v1alpha1.Endpoint{
		NextPublicKey:  next,
		IPsecPublicKey: ipsecKey,
		Gateway:        gateway.Name,
		Slot:           gateway.Spec.Slot,
		PublicKey:      f.ID.String(),
		Addresses:      addresses,
		MTU:            int32(plan.CableMTU(top, f.UnderlayMTU)),
		IPv4Probes:     !f.IPv6,
	}
}

// conditions of a gateway after a sync that ended with err and left out what refused says, if anything.
// Those of old that did not change keep their transition time.
func conditions(old []metav1.Condition, generation int64, err error, refused string, now time.Time) []metav1.Condition {
	const maxMessage = 1024
	ready := metav1.Condition{
		Type: v1alpha1.GatewayReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNodeProgrammed,
		Message: "the node's network is as planned",
	}
	if err != nil {
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonProgrammingFailed
		ready.Message = clip.Text(err.Error(), maxMessage)
	}
	accepted := metav1.Condition{
		Type: v1alpha1.GatewayNetworksAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNetworksAccepted,
		Message: "nothing was left out",
	}
	if refused != "" {
		accepted.Status, accepted.Reason = metav1.ConditionFalse, v1alpha1.ReasonNetworksRefused
		accepted.Message = refused
	}
	out := slices.Clone(old)
	for _, c := range []metav1.Condition{ready, accepted} {
		c.ObservedGeneration, c.LastTransitionTime = generation, metav1.NewTime(now)
		meta.SetStatusCondition(&out, c)
	}
	return out
}

// Of the connections that a node can track, the percentage that raises the alarm, and that below which it ends.
const (
	trackingAlarm = 80
	trackingClear = 70
)

// withTracking adds what the node's connection tracking is like to conditions, which hold what it was like before.
// Where nobody knows, with a limit of 0, it removes that.
func withTracking(conditions []metav1.Condition, t kernel.Tracked, generation int64, now time.Time) []metav1.Condition {
	if t.Limit == 0 {
		meta.RemoveStatusCondition(&conditions, v1alpha1.GatewayTrackingAvailable)
		return conditions
	}
	threshold := trackingAlarm
	if meta.IsStatusConditionFalse(conditions, v1alpha1.GatewayTrackingAvailable) {
		threshold = trackingClear
	}
	c := metav1.Condition{
		Type: v1alpha1.GatewayTrackingAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonTrackingAvailable,
		Message:            "the node can track many more connections than it does",
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
	}
	if 100*t.Connections >= threshold*t.Limit {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonTrackingNearLimit
		c.Message = fmt.Sprintf("the node tracks almost as many connections as it can, which are %d: it drops new ones at "+
			"that limit; find out whose they are with conntrack -L, or raise net.netfilter.nf_conntrack_max there", t.Limit)
	}
	meta.SetStatusCondition(&conditions, c)
	return conditions
}

// withFullSize adds to conditions whether packets of full size pass through all tunnels that are connected.
func withFullSize(conditions []metav1.Condition, connections []v1alpha1.Connection, generation int64,
	now time.Time) []metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.GatewayFullSize, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonFullSizePasses,
		Message:            "no tunnel that is connected loses packets for their size",
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
	}
	n := 0
	for i := range connections {
		k := &connections[i]
		if k.Reason != v1alpha1.ReasonPathMTULow {
			continue
		}
		if n++; n == 1 {
			c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonPathMTULow
			c.Message = fmt.Sprintf("%s of %s: %s", k.Gateway, k.Cluster, k.Message)
		}
	}
	if n > 1 {
		c.Message += fmt.Sprintf("; and %d more", n-1)
	}
	meta.SetStatusCondition(&conditions, c)
	return conditions
}

const (
	rttEvery    = 30 * time.Second
	reportEvery = 45 * time.Second // older than 90 s counts as unknown
)

// worthWriting says whether a status tells something new, or the last one grows old. A round-trip time
// alone is not news until a while has passed.
func worthWriting(next, last v1alpha1.GatewayStatus, now time.Time) bool {
	if last.ReportedAt == nil || now.Sub(last.ReportedAt.Time) >= reportEvery {
		return true
	}
	if !equalStatus(withoutMeasurements(next), withoutMeasurements(last)) {
		return true
	}
	return now.Sub(last.ReportedAt.Time) >= rttEvery && !equalStatus(next, last)
}

func withoutMeasurements(s v1alpha1.GatewayStatus) v1alpha1.GatewayStatus {
	s = *s.DeepCopy()
	s.ReportedAt = nil
	for i := range s.Connections {
		c := &s.Connections[i]
		c.RTT, c.LossPercent, c.Traffic = nil, 0, nil
	}
	return s
}

// privateAddresses are the node's own, as candidates.
func privateAddresses(top topology.Topology, node string) []netip.Addr {
	for _, n := range top.Local.Nodes {
		if n.Name == node {
			return n.Addresses
		}
	}
	return nil
}
