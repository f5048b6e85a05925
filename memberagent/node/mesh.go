// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// meshOf returns the nodes of other clusters that a plan connects this one to, but for those that leave, which are
// neither probed nor counted.
func (a *Agent) meshOf(p plan.Plan) []plan.Peer {
	for _, t := range p.Tunnels {
		if t.Link == plan.MeshLink {
			return slices.DeleteFunc(slices.Clone(t.Peers), func(p plan.Peer) bool {
				_, leaving := a.leavingMesh[p.ID]
				return leaving
			})
		}
	}
	return nil
}

// straight returns the nodes of other clusters that traffic may go to without gateways: they answer probes, or are
// current and have not been probed for long enough to tell, as after a restart. There are none for a node that has
// withdrawn, or is about to have another key.
func (a *Agent) straight(current map[plan.PeerID]bool) map[plan.PeerID]bool {
	out := map[plan.PeerID]bool{}
	if a.facts.Withdrawn || a.facts.OffMesh {
		return out
	}
	for _, r := range a.top.Remotes {
		for _, n := range r.Nodes {
			id := plan.PeerID(n.PublicKey[:])
			if live := a.prober.live(plan.MeshULA(id)); live == alive || live == unknown && current[id] {
				out[id] = true
			}
		}
	}
	return out
}

// meshInterval is the least time between probes of a node of another cluster that traffic goes to: there are many more
// of them than gateways, and each carries a node's share.
const meshInterval = 150 * time.Millisecond

// probeMesh adds the nodes of other clusters to whom to probe. They do not slow down the probes of gateways. What was
// known of them under a key that is replaced is forgotten.
func (a *Agent) probeMesh(targets map[netip.Addr]Target, interval time.Duration) {
	if a.facts.OffMesh {
		return
	}
	busy := 0
	for _, p := range a.mesh {
		if p.Active {
			busy++
		}
	}
	interval = max(interval, meshInterval, time.Duration(busy)*time.Second/probesPerSecond)
	for _, p := range a.mesh {
		if a.attempts.resting(p.ID) {
			continue
		}
		to := Target{Interval: interval}
		if !p.Active {
			to.Interval = max(interval, idleInterval)
		}
		targets[plan.MeshULA(p.ID)] = to
	}
}

// measureMesh dials on where a node of another cluster does not answer, or lets it rest.
func (a *Agent) measureMesh(ctx context.Context, now time.Time) {
	if len(a.mesh) == 0 {
		a.meshDialler, a.attempts = dialler{}, attempts{}
		return
	}
	states, err := a.cable.Peers(plan.MeshLink)
	if err != nil {
		logr.FromContextOrDiscard(ctx).V(1).Info("cable not read", "link", plan.MeshLink, "why", err.Error())
		return
	}
	peers := map[plan.PeerID]plan.Peer{}
	for _, p := range a.mesh {
		peers[p.ID] = p
	}
	for _, s := range states {
		p, ok := peers[s.ID]
		if !ok {
			continue
		}
		a.measureNode(ctx, p, s, now)
	}
	a.meshDialler.forget(func(at cablePeer) bool { _, ok := peers[at.id]; return ok })
	a.attempts.forget(func(id plan.PeerID) bool { _, ok := peers[id]; return ok })
}

// measureNode does so with one.
func (a *Agent) measureNode(ctx context.Context, p plan.Peer, s kernel.PeerState, now time.Time) {
	address := plan.MeshULA(s.ID)
	log := logr.FromContextOrDiscard(ctx).WithValues("remoteCluster", p.Cluster, "remoteNode", p.Node)
	rested := a.attempts.resting(s.ID)
	switch rest := a.attempts.look(s.ID, p.Cluster, p.Active || a.prober.answers(address), s.ReceivedBytes, now); {
	case rest:
		log.V(1).Info("node does not answer, and is left alone for a while", "until", a.attempts[s.ID].until)
		a.rest(log, p, s)
		return
	case a.attempts.resting(s.ID):
		return
	case rested:
		log.V(1).Info("trying a node that has not answered", "address", s.Endpoint.String())
	}
	works := a.prober.answers(address)
	// Nodes are many, and their attempts are rationed: none is dialled in haste.
	if next, other := a.meshDialler.next(cablePeer{plan.MeshLink, s.ID}, works, true, s.Endpoint, p.Candidates,
		now); other {
		log.V(1).Info("dialling another address", "address", next.String(), "before", s.Endpoint.String())
		a.redial(log, s, next)
	}
}

// rest makes a node a new peer of the cable: WireGuard forgets the handshake that it would try again for 90 s, and
// answers those of the other end. The next try begins at another address.
func (a *Agent) rest(log logr.Logger, p plan.Peer, s kernel.PeerState) {
	i := slices.Index(p.Candidates, s.Endpoint) + 1
	p.Candidates = slices.Concat(p.Candidates[i:], p.Candidates[:i])
	err := a.cable.RemovePeer(plan.MeshLink, p.ID)
	if err == nil {
		err = a.cable.SetPeer(plan.TunnelPeer{Link: plan.MeshLink, Peer: p}, true)
	}
	if err != nil {
		log.Error(err, "the peer was not made anew")
	}
}

// key is what this node publishes for other clusters' nodes.
func (a *Agent) key() v1alpha1.NodeKey {
	return v1alpha1.NodeKey{PublicKey: a.keys.Current().String(),
		MTU: int32(plan.CableMTU(a.top, a.facts.UnderlayMTU))}
}

// nodesReached counts, by cluster, the nodes to which this one sends without gateways, in JSON; empty without a mesh.
func nodesReached(mesh []plan.Peer) string {
	if len(mesh) == 0 {
		return ""
	}
	count := map[string]int{}
	for _, p := range mesh {
		if p.Active {
			count[p.Cluster]++
		} else {
			count[p.Cluster] += 0
		}
	}
	text, _ := json.Marshal(count) // of text and numbers, it cannot fail
	return string(text)
}

// lingerMesh does what linger does, for nodes of other clusters. They send no more to this node when it does not answer
// them.
func (a *Agent) lingerMesh(next *topology.Topology, now time.Time) {
	before := a.leavingMesh
	a.leavingMesh = map[plan.PeerID]time.Time{}
	var present []topology.MeshNode
	for _, r := range next.Remotes {
		present = append(present, r.Nodes...)
	}
	for i := range next.Remotes {
		r := &next.Remotes[i]
		was := slices.IndexFunc(a.top.Remotes, func(o topology.Remote) bool { return o.Name == r.Name })
		if was < 0 || next.Cable.MeshPort == 0 {
			continue
		}
		nodes := slices.Clone(r.Nodes)
		for _, n := range a.top.Remotes[was].Nodes {
			if replaced(n, present) || !behind(n, *r) {
				continue
			}
			id := plan.PeerID(n.PublicKey[:])
			since, known := before[id]
			if !known {
				since = now
				time.AfterFunc(lingering, a.Poke)
			}
			if now.Sub(since) < lingering {
				a.leavingMesh[id] = since
				n.Leaving = true
				nodes = append(nodes, n)
			}
		}
		slices.SortFunc(nodes, func(a, b topology.MeshNode) int { return strings.Compare(a.Name, b.Name) })
		r.Nodes = nodes
	}
}

// replaced says that another node, or the node itself under this or another key, is in the place of one that leaves.
func replaced(leaving topology.MeshNode, present []topology.MeshNode) bool {
	return slices.ContainsFunc(present, func(n topology.MeshNode) bool {
		return n.PublicKey == leaving.PublicKey || slices.ContainsFunc(n.Pods, func(p netip.Prefix) bool {
			return slices.ContainsFunc(leaving.Pods, p.Overlaps)
		})
	})
}

// behind says whether all pods of a node are still in the networks of its cluster.
func behind(n topology.MeshNode, r topology.Remote) bool {
	return !slices.ContainsFunc(n.Pods, func(p netip.Prefix) bool {
		return !slices.ContainsFunc(r.Routed, func(o netip.Prefix) bool {
			return o.Bits() <= p.Bits() && o.Contains(p.Addr())
		})
	})
}
