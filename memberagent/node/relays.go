// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// throughRelays adds to the connections of a gateway, in their order, those to the clusters behind relays: each is as
// the tunnel to the relay, or as the relay's own connection to that cluster, whichever is worse. What is measured of a
// tunnel stays its own.
func throughRelays(connections []v1alpha1.Connection, remotes []topology.Remote) []v1alpha1.Connection {
	direct := len(connections)
	for _, r := range remotes {
		if r.Behind == "" {
			continue
		}
		for _, tunnel := range connections[:direct] {
			if tunnel.Cluster == r.Behind {
				connections = append(connections, throughRelay(r, tunnel))
			}
		}
	}
	slices.SortStableFunc(connections, func(x, y v1alpha1.Connection) int {
		return cmp.Or(cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Slot, y.Slot))
	})
	return connections
}

// throughRelay is the connection to a cluster by a tunnel to its relay.
func throughRelay(r topology.Remote, tunnel v1alpha1.Connection) v1alpha1.Connection {
	c := v1alpha1.Connection{Cluster: r.Name, Through: r.Behind, Gateway: tunnel.Gateway, Slot: tunnel.Slot,
		Link: tunnel.Link, Cable: tunnel.Cable, Status: tunnel.Status, Address: tunnel.Address, Active: tunnel.Active}
	switch {
	case tunnel.Status != v1alpha1.ConnectionConnected:
		c.Reason = tunnel.Reason
		c.Message = fmt.Sprintf("the relay %s is not reached: %s", r.Behind, tunnel.Message)
	case r.BehindStatus != "":
		c.Status, c.Reason = r.BehindStatus, v1alpha1.ReasonRelayNotConnected
		c.Message = fmt.Sprintf("the relay %s reports of its own connection to %s: %s; look there", r.Behind, r.Name,
			r.BehindStatus)
	}
	return c
}

// relaysInForce is the digest of what this node passes on. While the node is not programmed it is what it was, unless
// an agent that did not know of relays came after that.
func (a *Agent) relaysInForce() string {
	if a.syncErr != nil {
		last := &a.gateway.Status
		if a.reported.ReportedAt != nil {
			last = &a.reported // which the cache may not have yet
		}
		return last.RelaysInForce()
	}
	out := make([]v1alpha1.RelayedClusters, len(a.top.Relayed))
	for i, r := range a.top.Relayed {
		out[i] = v1alpha1.RelayedClusters{Clusters: r.Clusters, With: r.With}
	}
	return v1alpha1.DigestOfRelays(out)
}
