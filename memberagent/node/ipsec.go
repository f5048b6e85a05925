// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/ipsec"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// setIPsec gives the daemon the peers of the plan.
func (a *Agent) setIPsec() {
	if a.ipsec == nil {
		return
	}
	c := ipsec.Config{Own: a.facts.ID, Port: a.top.Cable.IPsecPort, MTU: plan.CarrierMTU(a.facts.UnderlayMTU),
		FIPS: a.top.Cable.FIPS}
	for _, t := range a.plan.VXLAN {
		if !plan.OfIPsec(t.Link) {
			continue
		}
		for _, p := range t.Peers {
			c.Peers = append(c.Peers, ipsec.Peer{ID: p.ID, Candidates: a.likely(p), Key: a.ipsecKey(p.ID)})
		}
	}
	a.ipsec.Set(c)
}

// ipsecKey of a peer by IPsec, be it one whose cable leaves and by which packets come still; zero if it has none.
func (a *Agent) ipsecKey(id plan.PeerID) topology.IPsecKey {
	for g := range byVXLAN(a.top) {
		if g.IPsec && plan.PeerOf(g) == id {
			return g.IPsecKey
		}
	}
	return topology.IPsecKey{}
}

// likely are the addresses of a peer by IPsec: first the one at which it answers by WireGuard.
func (a *Agent) likely(p plan.Peer) []netip.AddrPort {
	var out []netip.AddrPort
	for _, r := range a.remotes {
		at, ok := a.proven.endpoints[r.name()]
		if ok && r.id() == p.ID && !r.gateway.VTEP.IsValid() && len(p.Candidates) > 0 {
			out = append(out, netip.AddrPortFrom(at.Addr().Unmap(), a.top.Cable.IPsecPort))
		}
	}
	for _, c := range p.Candidates {
		if !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// ipsecStates adds what the daemon knows of the peers of a cable by IPsec.
func (a *Agent) ipsecStates(t plan.Tunnel, states map[cablePeer]kernel.PeerState) {
	for _, p := range t.Peers {
		s := kernel.PeerState{Link: t.Link, ID: p.ID}
		if len(p.Candidates) > 0 {
			s.Endpoint = p.Candidates[0]
		}
		if a.ipsec != nil {
			have, _ := a.ipsec.State(p.ID)
			s.ReceivedBytes, s.SentBytes = have.Received, have.Sent
			if have.Remote.IsValid() {
				s.Endpoint = have.Remote
			}
			if have.Up {
				s.LastHandshake = have.Since
			}
		}
		states[cablePeer{t.Link, p.ID}] = s
	}
}

// associations with the remote gateways that are to be reached by IPsec, by which these tunnels go.
func (a *Agent) associations(tunnels []Tunnel) []associations {
	var out []associations
	for _, r := range a.remotes {
		if !r.gateway.IPsec {
			continue
		}
		next := associations{cluster: r.cluster, slot: r.gateway.Slot % v1alpha1.NextKeySlots}
		if a.ipsec != nil {
			next.state, _ = a.ipsec.State(r.id())
		}
		next.stays = slices.ContainsFunc(tunnels, func(t Tunnel) bool {
			return t.peer.ID == r.id() && t.connection.Reason == v1alpha1.ReasonKeysStay
		})
		out = append(out, next)
	}
	return out
}

// explainIPsec says what to look at where a cable by IPsec does not answer.
func explainIPsec(c v1alpha1.Connection, peer kernel.PeerState) (reason, message string) {
	if peer.LastHandshake.IsZero() {
		return v1alpha1.ReasonNoHandshake, fmt.Sprintf("no security association of ipsec with %s: check that UDP to that "+
			"address and port gets through, and that the agents there know ipsec and have its container", c.Address)
	}
	return v1alpha1.ReasonProbesLost, fmt.Sprintf("probes by ipsec to %s are not answered, though there is a security "+
		"association: check the remote gateway", c.Address)
}

// noteByOther says what is in the way of cables by IPsec, and of tunnels by another cable, to clusters that are to be
// reached by IPsec, that they carry nothing, or what they carried before.
func (a *Agent) noteByOther(tunnels []Tunnel) {
	for i := range tunnels {
		c := &tunnels[i].connection
		a.noteAlgorithms(c, tunnels[i].peer.ID)
		if !slices.ContainsFunc(a.top.Remotes, func(r topology.Remote) bool { return r.Name == c.Cluster && r.IPsec }) {
			continue
		}
		reason, why := a.ipsecTrouble(tunnels[i].peer.ID)
		switch {
		case c.Cable == v1alpha1.CableIPsec:
			switch {
			case why != "" && c.Status != v1alpha1.ConnectionConnected:
				c.Reason, c.Message = cmp.Or(reason, c.Reason), why
			case c.Active && c.Status == v1alpha1.ConnectionConnected && a.ipsec != nil:
				if stays := a.ipsec.Stays(tunnels[i].peer.ID); stays != "" {
					c.Reason = v1alpha1.ReasonKeysStay
					c.Message = "traffic goes on until the keys end, within 66 minutes of when they were made, for nothing " +
						"renews them: " + stays
				}
			}
			continue
		case c.Active && c.Status == v1alpha1.ConnectionConnected:
			c.Reason = v1alpha1.ReasonCableSilent
			c.Message = "traffic goes by " + string(c.Cable) + ", as before, until ipsec answers"
		case c.Active || c.Status != v1alpha1.ConnectionConnected && reason == "":
			continue // what is said of this cable is to be mended, or there is one by ipsec to tell of
		default:
			c.Status, c.Reason = v1alpha1.ConnectionError, cmp.Or(reason, v1alpha1.ReasonCableSilent)
			c.Message = "nothing is sent, for the pair is to be reached by ipsec alone"
		}
		if why != "" {
			c.Message += ": " + why
		}
	}
}

// byKernel ends the algorithms of a connection by IPsec where the kernel encrypts.
const byKernel = " by the kernel"

// noteAlgorithms says which ones a connection by IPsec has, and if these are not what it is to have.
func (a *Agent) noteAlgorithms(c *v1alpha1.Connection, id plan.PeerID) {
	if c.Cable != v1alpha1.CableIPsec {
		return
	}
	if a.ipsec != nil {
		state, _ := a.ipsec.State(id)
		if c.Algorithms = state.Algorithms; c.Algorithms != "" && state.Kernel {
			c.Algorithms += byKernel
		}
		if state.Other && c.Status == v1alpha1.ConnectionConnected {
			c.Reason = v1alpha1.ReasonAlgorithmsDiffer
			c.Message = "traffic goes by the algorithms that there were, until the other gateway takes those that " +
				"spec.cable.ipsecAlgorithms of the ClusterSet says"
		}
	}
	if a.top.Cable.FIPS && c.Reason == v1alpha1.ReasonNoHandshake {
		c.Message += ", and that they have been told of ipsecAlgorithms FIPS, too: this gateway takes no others"
	}
}

// ipsecTrouble says what is in the way of all cables by IPsec, then with a reason, or of that to a peer; empty if
// nothing is.
func (a *Agent) ipsecTrouble(id plan.PeerID) (reason, why string) {
	switch {
	case !a.facts.IPv6:
		return v1alpha1.ReasonNoIPv6, "this node's kernel has no IPv6, which ipsec needs: enable it, or have another node " +
			"be the gateway"
	case a.ipsec == nil:
		return v1alpha1.ReasonNoIPsecContainer, "this node has no container that runs ipsec: run kubectl karmada sealane " +
			"install again, with --ipsec beside the flags of the first time"
	}
	state, why := a.ipsec.State(id)
	return "", cmp.Or(why, state.Trouble)
}
