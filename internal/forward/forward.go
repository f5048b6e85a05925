// SPDX-License-Identifier: Apache-2.0

// Package forward says which UDP port has to be forwarded, and where, for two gateways behind NAT to reach each other.
// The node agent says it of its tunnels, and the broker of pairs of clusters. It is pure.
package forward

import (
	"fmt"
	"net/netip"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Gateway is one of two that have no handshake with each other.
type Gateway struct {
	// Cluster that it is of.
	Cluster string
	// Port at which the other one dials it.
	Port int32
	// Addresses that it publishes, and Observed where others see it.
	Addresses []v1alpha1.EndpointAddress
	Observed  []v1alpha1.ObservedAddress
}

// Advice says what to forward; "" where a gateway publishes an address that may be reached from elsewhere: then it is
// to be found out why that does not answer.
func Advice(a, b Gateway) string {
	in, ok := a.inside()
	far, also := b.inside()
	if !ok || !also {
		return ""
	}
	why := "neither gateway publishes an address that is reached from outside its own network"
	switch {
	case len(a.Observed) > 0 && len(b.Observed) > 0:
		why = "both gateways are behind NAT, which drops what it does not expect"
	case len(a.Observed) > 0:
		why = one(a, b)
	case len(b.Observed) > 0:
		why = one(b, a)
	}
	return fmt.Sprintf("%s: forward UDP %d to %s at %s, or UDP %d to %s at %s, and annotate that node with "+
		"%s=ipv4:ADDRESS, which is the router's%s", why, a.Port, in, a.Cluster, b.Port, far, b.Cluster,
		v1alpha1.AnnotationPublicIP, routers(a, b))
}

// one says that one gateway is seen behind NAT, and nothing is known of the other.
func one(seen, other Gateway) string {
	return fmt.Sprintf("the gateway of %s is behind NAT, and that of %s publishes private addresses alone", seen.Cluster,
		other.Cluster)
}

// inside returns the first address that a gateway has; false if it publishes one that is not private, or none.
func (g Gateway) inside() (netip.Addr, bool) {
	var first netip.Addr
	for _, a := range g.Addresses {
		ip, err := netip.ParseAddr(a.IP)
		if err != nil || a.Type != v1alpha1.AddressPrivate || !private(ip) {
			return netip.Addr{}, false
		}
		if !first.IsValid() {
			first = ip
		}
	}
	return first, first.IsValid()
}

// shared are the addresses between customers and the NAT of a carrier (RFC 6598).
var shared = netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64}), 10)

func private(a netip.Addr) bool { return a.IsPrivate() || shared.Contains(a) }

// routers names the addresses that routers are seen at.
func routers(gateways ...Gateway) string {
	text := ""
	for _, g := range gateways {
		if len(g.Observed) > 0 {
			text += fmt.Sprintf(", %s at %s", g.Observed[0].IP, g.Cluster)
		}
	}
	return text
}
