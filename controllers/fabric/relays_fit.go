// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

// unfit says why a cluster, nil if it is no member, cannot be the relay of a pair, and what to do; it is empty if it
// can. It passes packets on as they are, so the addresses by which the two know each other have to be those by which it
// knows them; and no packet is to go by a cable that is weaker than the pair's.
func (d *deciding) unfit(by map[[2]string]string, relay, a, b *state) refusal {
	if relay == nil {
		return refusal{kind: "member", why: "it is no accepted member of the ClusterSet; correct the name, or make it one"}
	}
	for _, s := range []*state{a, b} {
		if other := by[pairName(relay.name(), s.name())]; other != "" {
			return refusal{kind: "chain", why: fmt.Sprintf("it would have to reach %s by its own gateways, and spec.relays has "+
				"%s as the relay of the two; take that out", s.name(), clip.Line(other))}
		}
	}
	for _, known := range [][2]*state{{a, b}, {b, a}} {
		if !d.sameAddresses(known[0], known[1], relay) {
			return refusal{kind: "addresses", why: fmt.Sprintf("%s knows %s by other addresses than the relay does, as their "+
				"networks overlap; set spec.globalnet.mode to On, so that all know each other by global addresses, or name "+
				"another relay", known[1].name(), known[0].name())}
		}
	}
	for _, family := range []string{"IPv4", "IPv6"} {
		if has(a, family) && has(b, family) && !has(relay, family) {
			return refusal{kind: family, why: fmt.Sprintf("it has no %s networks, which both have", family)}
		}
	}
	if invalidSettings(d.in) {
		return refusal{} // cables and meshes are as they were told, too
	}
	for _, p := range d.in.Set.Spec.Topology.Pairs {
		if p.Mode == v1alpha1.TopologyMesh && slices.Contains(p.Clusters, a.name()) && slices.Contains(p.Clusters, b.name()) {
			return refusal{kind: "mesh", why: "spec.topology has them as a pair with mode Mesh; take them out of one of the two"}
		}
	}
	return d.weaker(relay, a, b)
}

// weaker says that a packet of a pair would go by a weaker cable than the pair's.
func (d *deciding) weaker(relay, a, b *state) refusal {
	if invalidSettings(d.in) {
		return refusal{} // cables are as they were told, too
	}
	pair := cableOf(d.in, a, b)
	for _, s := range []*state{a, b} {
		leg := cableOf(d.in, relay, s)
		if pair != v1alpha1.CableVXLAN && leg == v1alpha1.CableVXLAN || pair == v1alpha1.CableIPsec && leg != pair {
			return refusal{kind: "cables", why: fmt.Sprintf("they are to be reached by %s, and its cable to %s is one by %s; "+
				"give both pairs with it the cable that the pair has, or the pair theirs, in spec.cables", cable(pair), s.name(),
				cable(leg))}
		}
	}
	return refusal{}
}

// unready says why two members do not go by a relay yet, which may have been told of them. It is empty if they do.
func unready(relay, a, b *state, told bool) refusal {
	for _, s := range []*state{relay, a, b} {
		// Of a relay that was told it may only be that an agent is not heard of.
		if !s.readsRelays() && (s != relay || !told) {
			return refusal{kind: "agents", why: fmt.Sprintf("agents of gateways of %s do not know of relays, or none is heard "+
				"of; upgrade them", s.name())}
		}
	}
	for _, s := range []*state{a, b} {
		if why := stale(s); why != "" {
			return refusal{kind: waits, why: fmt.Sprintf("%s, which would not hear of it, is not heard of itself (%s)", s.name(),
				why)}
		}
	}
	if !told || !relay.passesOn(a, b) {
		return refusal{kind: waits, why: "it has not said yet that it is connected to both and passes their packets on; if " +
			"that stays, see its gateways"}
	}
	return refusal{}
}

// withoutIPsecStill says that two members which are to be reached by IPsec would not be by a relay, as its cable to
// one of them, which is to be by IPsec too, carries by another one until IPsec answers. From then on it never does.
func withoutIPsecStill(relay, a, b *state) refusal {
	for _, s := range []*state{a, b} {
		for _, leg := range [][2]*state{{relay, s}, {s, relay}} {
			c := leg[0].heard[leg[1].name()].connection
			if c == nil || c.Reason == v1alpha1.ReasonCableSilent {
				return refusal{kind: waits, why: fmt.Sprintf("its cable by ipsec to %s does not answer yet; see the connection's "+
					"message", s.name())}
			}
		}
	}
	return refusal{}
}

// readsRelays says whether a member's agents know of relays, as it last reported.
func (s *state) readsRelays() bool {
	if s.Report.Known {
		return s.Report.Status.Relays != ""
	}
	return s.Record.Status.ReadsRelays
}

// has says whether a member has networks of a family.
func has(s *state, family string) bool {
	return slices.ContainsFunc(s.force.Routed(), func(p netip.Prefix) bool { return p.Addr().Is4() == (family == "IPv4") })
}

func cable(driver v1alpha1.CableDriver) v1alpha1.CableDriver {
	return cmp.Or(driver, v1alpha1.CableWireGuard)
}

// sameAddresses says whether two members know a third by the same addresses.
func (w *spaces) sameAddresses(s, x, y *state) bool {
	byX, ok := w.tell(x, s, v1alpha1.RemoteCluster{})
	byY, also := w.tell(y, s, v1alpha1.RemoteCluster{})
	return ok && also && byX.GlobalCIDR == byY.GlobalCIDR && byX.GlobalIPv6CIDR == byY.GlobalIPv6CIDR
}
