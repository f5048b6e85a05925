// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// withVXLAN adds to a topology the cables by VXLAN. Those that were there, and are to be no more while their gateways
// are, have nothing sent by them from now on, and for a while what comes is taken: the other end hears of it at another
// time, or finds that its probes are not answered.
func (a *Agent) withVXLAN(next topology.Topology, now time.Time) (topology.Topology, error) {
	with := next.WithVXLAN(a.node, nil)
	var err error
	if a.vxlanTaken, err = a.vxlanPortTaken(with); err != nil {
		return topology.Topology{}, err
	}
	if a.vxlanTaken {
		return next, nil
	}
	stays := map[cablePeer]bool{}
	for g := range byVXLAN(with) {
		stays[cableOf(g)] = true
	}
	before := a.leavingVXLAN
	a.leavingVXLAN = map[cablePeer]time.Time{}
	leaving := map[string][]topology.Gateway{}
	for g, cluster := range byVXLAN(a.top) {
		id := cableOf(g)
		since, known := before[id]
		if stays[id] || g.Leaving && !known {
			continue
		}
		if !known {
			since = now
			time.AfterFunc(lingering, a.Poke)
		}
		if now.Sub(since) < lingering {
			a.leavingVXLAN[id] = since
			leaving[cluster] = append(leaving[cluster], g)
		}
	}
	if len(leaving) == 0 {
		return with, nil
	}
	return next.WithVXLAN(a.node, leaving), nil
}

// cableOf is the cable to a gateway, to which there may be several: one by VXLAN leaves while one by IPsec comes.
func cableOf(g topology.Gateway) cablePeer { return cablePeer{plan.CableLink(g.Slot), plan.PeerOf(g)} }

// vxlanPortTaken says whether a topology's cables by VXLAN cannot be, for another program has their port.
func (a *Agent) vxlanPortTaken(top topology.Topology) (bool, error) {
	for g := range byVXLAN(top) {
		if !g.IPsec {
			return a.kernel.PortTaken(top.Cable.VXLANCablePort, plan.FamilyOf(g.VTEP))
		}
	}
	return false, nil
}

// byVXLAN are the gateways behind cables by VXLAN, with their clusters.
func byVXLAN(top topology.Topology) iter.Seq2[topology.Gateway, string] {
	return func(yield func(topology.Gateway, string) bool) {
		for _, r := range top.Remotes {
			for _, g := range r.Gateways {
				if g.VTEP.IsValid() && !yield(g, r.Name) {
					return
				}
			}
		}
	}
}

// uncounted says whether a link is a cable by VXLAN with several peers: its counters are of all of them.
func (a *Agent) uncounted(link string) bool {
	return !plan.OfIPsec(link) && slices.ContainsFunc(a.plan.VXLAN, func(t plan.Tunnel) bool {
		return t.Link == link && len(t.Peers) > 1
	})
}

// vxlanStates adds what is known of the peers of cables by VXLAN, which prove nothing and have one address each.
func (a *Agent) vxlanStates(ctx context.Context, states map[cablePeer]kernel.PeerState) {
	for _, t := range a.plan.VXLAN {
		if plan.OfIPsec(t.Link) {
			a.ipsecStates(t, states)
			continue
		}
		c, err := a.kernel.Counters(t.Link)
		if err != nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("cable not read", "link", t.Link, "why", err.Error())
			continue
		}
		for _, p := range t.Peers {
			s := kernel.PeerState{Link: t.Link, ID: p.ID, Endpoint: p.Candidates[0]}
			if !a.uncounted(t.Link) {
				// As a cable by WireGuard counts them.
				s.ReceivedBytes = c.ReceivedBytes + cableOverhead*c.ReceivedPackets
				s.SentBytes = c.SentBytes + cableOverhead*c.SentPackets
			}
			states[cablePeer{t.Link, p.ID}] = s
		}
	}
}

// noteSilent says of tunnels that work by WireGuard why they are not by VXLAN, where they are to be.
func (a *Agent) noteSilent(tunnels []Tunnel) []Tunnel {
	a.noteByOther(tunnels)
	for i := range tunnels {
		c := &tunnels[i].connection
		wanted := slices.ContainsFunc(a.top.Remotes, func(r topology.Remote) bool { return r.Name == c.Cluster && r.VXLAN })
		if !wanted || c.Cable == v1alpha1.CableVXLAN || c.Status != v1alpha1.ConnectionConnected || c.Reason != "" {
			continue
		}
		other := slices.IndexFunc(tunnels, func(t Tunnel) bool {
			return t.connection.Cluster == c.Cluster && t.connection.Slot == c.Slot &&
				t.connection.Cable == v1alpha1.CableVXLAN
		})
		const instead = "traffic goes by wireguard, encrypted: "
		switch {
		case a.vxlanTaken:
			c.Reason = v1alpha1.ReasonCableSilent
			c.Message = fmt.Sprintf("%sUDP port %d of this node, for vxlan, is another program's: see which by ss -lunp, and "+
				"end it or give it another port", instead, a.top.Cable.VXLANCablePort)
		case other < 0:
			c.Reason = v1alpha1.ReasonCableSilent
			c.Message = instead + "vxlan needs addresses of the two gateways' nodes of one family, that no other gateway has"
		case tunnels[other].connection.Status != v1alpha1.ConnectionConnected:
			c.Reason, c.Message = v1alpha1.ReasonCableSilent, instead+tunnels[other].connection.Message
		}
	}
	return tunnels
}
