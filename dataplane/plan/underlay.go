// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/dataplane/topology"
)

// neighboursOfPods keeps, on a gateway whose own network has pods in it, what comes out of cables for an address there
// that no node's pod has: its hosts are reached by the overlay or not at all. Sent from here by the network itself it
// would come to a host that is none of the cluster's, or to a pod by another way than its answers take, through
// its node, where connection tracking has not seen what they answer. It is dropped silently, since the address may be
// that of a pod that is not told of yet. The gateway's own pods, and hosts outside that may be exported, are where
// its other tables say.
func (v *view) neighboursOfPods() []Route {
	if len(v.slots) == 0 {
		return nil
	}
	var out []Route
	for _, network := range v.facts.Underlays {
		if !slices.Contains(v.families, FamilyOf(network.Addr())) || !v.sharedWithPods(network) {
			continue
		}
		out = append(out, Route{Table: InboundTable, Dst: network, Metric: StandingMetric, Type: Blackhole})
		elsewhere := v.self.Pods
		if v.toExternal(FamilyOf(network.Addr())) {
			elsewhere = slices.Concat(elsewhere, v.Local.External)
		}
		for _, own := range elsewhere {
			if network.Overlaps(own) {
				out = append(out, Route{Table: InboundTable, Dst: own, Metric: ThrowMetric, Type: Throw})
			}
		}
	}
	return out
}

// sharedWithPods says whether some of the cluster's pods, but not all of a node's, are in a network.
func (v *view) sharedWithPods(network netip.Prefix) bool {
	return slices.ContainsFunc(v.Local.Pods, network.Overlaps) &&
		!slices.ContainsFunc(v.Local.Nodes, func(n topology.Node) bool {
			return slices.ContainsFunc(n.Pods, func(p netip.Prefix) bool {
				return p.Bits() <= network.Bits() && p.Overlaps(network)
			})
		})
}
