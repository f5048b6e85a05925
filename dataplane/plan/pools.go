// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/globalnet"
)

// pools returns, on a gateway, the map from pods to the chains of the ranges that their connections come from, and
// these chains. Whatever the number of pods and ranges, a packet meets one rule more, and a pod is one element.
func (v *view) pools(f Family) (chains []Chain, maps []Map) {
	if !v.translates(f) || len(v.slots) == 0 || !reaches(f, knowing(v.Remotes, true)) {
		return nil, nil
	}
	elements := v.egressPods(f)
	if len(elements) == 0 {
		return nil, nil
	}
	for _, p := range v.Local.Egress {
		if !slices.ContainsFunc(p.Pods, func(ip netip.Addr) bool { return FamilyOf(ip) == f }) {
			continue
		}
		chains = append(chains, Chain{Name: egressChain(p.EgressRange),
			Rules: []string{"snat to " + v.egressOf(f, p.EgressRange)}})
	}
	return chains, []Map{{Name: mapEgress, Key: addressType(f), Value: "verdict", Elements: elements}}
}

// egressPods leads from pods to the chain of their range. A pod that is known by an address of its own is in no pool
// of a namespace.
func (v *view) egressPods(f Family) []MapElement {
	if len(v.Local.Egress) == 0 {
		return nil
	}
	own := map[netip.Addr]bool{}
	if v.knowsPods(f) {
		for _, p := range v.globalPods(f) {
			own[p.IP] = true
		}
	}
	var out []MapElement
	for _, p := range v.Local.Egress {
		for _, ip := range p.Pods {
			if FamilyOf(ip) == f && (!p.Namespace || !own[ip]) {
				out = append(out, MapElement{Key: ip.String(), Value: "goto " + egressChain(p.EgressRange)})
			}
		}
	}
	slices.SortFunc(out, func(a, b MapElement) int { return strings.Compare(a.Key, b.Key) })
	return out
}

func egressChain(r topology.EgressRange) string { return fmt.Sprintf("from-%d-%d", r.First, r.Last) }

// egressOf is a range as the target of a translation by this gateway. The same client keeps the same address of it.
func (v *view) egressOf(f Family, r topology.EgressRange) string {
	first, last := globalnet.Egress(v.block(f), v.gateway.Slot, r.First, r.Last)
	if first == last {
		return first.String()
	}
	return fmt.Sprintf("%s-%s persistent", first, last)
}
