// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// observe says where gateways of other clusters are seen, of those that do not publish it themselves. What was
// said last holds as long as any gateway here sees it, and as long as none is connected with that one.
func observe(connections []v1alpha1.MemberConnection, in Input) {
	gateways := existing(in)
	slices.SortFunc(gateways, func(a, b v1alpha1.Gateway) int { return cmp.Compare(a.Spec.Slot, b.Spec.Slot) })
	for i := range connections {
		c := &connections[i]
		for _, r := range in.Peering.Spec.RemoteClusters {
			if r.Name != c.Cluster {
				continue
			}
			for _, e := range r.Endpoints {
				if seen, ok := seenAt(e, c.Cluster, gateways, in); ok {
					c.Observed = append(c.Observed, v1alpha1.ObservedGateway{Gateway: e.Gateway, ObservedAddress: seen})
				}
			}
		}
	}
}

// seenAt returns where gateways see one of another cluster; false if that is where it says itself that it is.
func seenAt(e v1alpha1.Endpoint, cluster string, gateways []v1alpha1.Gateway,
	in Input) (v1alpha1.ObservedAddress, bool) {
	last, had := lastSeen(e.Gateway, cluster, in.Peering.Status)
	var seen []v1alpha1.ObservedAddress
	connected := false
	for i := range gateways {
		g := &gateways[i]
		for _, c := range g.Status.Connections {
			if c.Cluster != cluster || c.Through != "" || c.Gateway != e.Gateway || c.Status != v1alpha1.ConnectionConnected ||
				c.Link != plan.CableLink(int(e.Slot)) {
				continue // by the cables with next keys other ports are seen
			}
			connected = true
			o, ok := unpublished(e, g, c, in.Peering.Spec.Cable.Port)
			// A node of this cluster has passed on what came for a load balancer: where the other one is does not show.
			if ok && !slices.Contains(in.Found.NodeCIDRs, hostCIDR(o.IP)) {
				seen = append(seen, o)
			}
		}
	}
	switch {
	case had && (!connected || slices.Contains(seen, last)):
		return last, true
	case len(seen) == 0:
		return v1alpha1.ObservedAddress{}, false
	}
	return seen[0], true
}

// hostCIDR is an address as prefix; "" if it is none.
func hostCIDR(ip string) string {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return ""
	}
	return netfacts.Host(a).String()
}

// unpublished is the address in use of a connection, unless the gateway at the other end publishes it.
func unpublished(e v1alpha1.Endpoint, g *v1alpha1.Gateway, c v1alpha1.Connection,
	port int32) (v1alpha1.ObservedAddress, bool) {
	at, err := netip.ParseAddrPort(c.Address)
	if err != nil {
		return v1alpha1.ObservedAddress{}, false
	}
	ip, err := netfacts.ParseAddr(at.Addr().String())
	if err != nil {
		return v1alpha1.ObservedAddress{}, false
	}
	out := v1alpha1.ObservedAddress{IP: ip.String()}
	if int32(at.Port()) != port+g.Spec.Slot && g.Spec.Slot == 0 {
		out.Port = int32(at.Port())
	}
	published := slices.ContainsFunc(e.Addresses, func(a v1alpha1.EndpointAddress) bool { return a.IP == out.IP })
	return out, !published || out.Port != 0
}

// lastSeen is where a gateway was said to be seen.
func lastSeen(gateway, cluster string, status v1alpha1.PeeringStatus) (v1alpha1.ObservedAddress, bool) {
	for _, c := range status.Connections {
		for _, o := range c.Observed {
			if c.Cluster == cluster && o.Gateway == gateway {
				return o.ObservedAddress, true
			}
		}
	}
	return v1alpha1.ObservedAddress{}, false
}

// moved says whether a gateway is seen at an address at which it was not before. Its port may change all the time.
func moved(before, after v1alpha1.PeeringStatus) bool {
	for _, c := range after.Connections {
		for _, o := range c.Observed {
			if last, had := lastSeen(o.Gateway, c.Cluster, before); !had || last.IP != o.IP {
				return true
			}
		}
	}
	return false
}
