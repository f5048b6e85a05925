// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// unreachedAfter is how long a gateway of the cluster has to be dead until the node tells: failing over is quicker, and
// no business of the API server's.
const unreachedAfter = 10 * time.Second

// legs are the ways between this node and others of its cluster.
type legs struct {
	// deadGateways are those that do not answer, and since when.
	deadGateways map[string]time.Time
	// beaconsFrom are the addresses that beacons come from, by node; empty on a worker.
	beaconsFrom map[string]netip.Addr
}

// expectBeacons of the other nodes of the cluster, on a gateway.
func (a *Agent) expectBeacons(now time.Time) {
	a.beaconsFrom = map[string]netip.Addr{}
	var from []netip.Addr
	for name, address := range plan.NodeProbes(a.top, a.facts) {
		if a.gateway == nil || len(a.plan.Links) == 0 || name == a.node {
			continue
		}
		a.beaconsFrom[name] = address
		from = append(from, address)
	}
	a.beacons.expect(from, now)
}

// unheardNodes are the first of the nodes whose beacons do not arrive at this gateway.
func (a *Agent) unheardNodes(now time.Time) []string {
	unheard := a.beacons.unheard(now)
	var out []string
	for name, address := range a.beaconsFrom {
		if unheard[address] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), v1alpha1.MaxUnheardNodes)]
}

// lookAtGateways of the own cluster, and tell of those that have not answered for a while.
func (a *Agent) lookAtGateways(now time.Time) {
	silent := map[string]time.Time{}
	for _, g := range a.top.Local.Gateways {
		if len(a.plan.Links) == 0 || g.Node == a.node || g.PublicKey == (topology.Key{}) {
			continue
		}
		if a.prober.live(plan.LocalProbe(a.top, a.facts, g)) != dead {
			continue
		}
		silent[g.Node] = now
		if since, known := a.deadGateways[g.Node]; known {
			silent[g.Node] = since
		}
	}
	a.deadGateways = silent
	next := a.state
	next.Unreached = a.unreached(now)
	if next.Programmed != "" && next != a.state {
		a.states.put(next)
		a.state = next
	}
}

// unreached are the names of the gateways of the own cluster that have not answered for a while, separated by commas.
func (a *Agent) unreached(now time.Time) string {
	var out []string
	for name, since := range a.deadGateways {
		if now.Sub(since) >= unreachedAfter {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}
