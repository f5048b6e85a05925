// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// A cable by IPsec is one by VXLAN whose outer addresses are of no network: each of the two gateways derives them from
// the keys. They are routed to the carrier alone, a link within which strongSwan encrypts what goes from one such
// address to the other. So what its policies select does not change with the clusters' networks. Without the carrier
// such packets are dropped.

// setCarried holds the outer addresses of remote gateways by IPsec.
const setCarried = "carried"

// noCarrier stands in rules for a link that is not there.
const noCarrier = "sl-nocarrier"

// KernelCarrier is the link of cables by IPsec whose packets the kernel encrypts: an XFRM interface, which whoever runs
// charon makes and removes, and no plan.
const KernelCarrier = "sealane-esp"

// byIPsec says whether this gateway has cables by IPsec.
func (v *view) byIPsec() bool { return len(v.ipsecPeers) > 0 }

// ipsecVTEP is this gateway's own outer address.
func (v *view) ipsecVTEP() netip.Addr { return IPsecVTEP(v.facts.ID) }

// IPsecVTEP is the outer address of a gateway's cables by IPsec; invalid for an ID that is no public key.
func IPsecVTEP(id PeerID) netip.Addr {
	if len(id) != netfacts.PublicKeySize {
		return netip.Addr{}
	}
	return netfacts.IPsecVTEP([netfacts.PublicKeySize]byte([]byte(id)))
}

// possible is a topology in which clusters behind a relay have its gateways, and without cables by IPsec on a node
// whose kernel has no IPv6: their outer addresses are of that.
func possible(t topology.Topology, n NodeFacts) topology.Topology {
	if n.IPv6 {
		return viaRelays(t)
	}
	t.Remotes = slices.Clone(t.Remotes)
	for i, r := range t.Remotes {
		t.Remotes[i].Gateways = slices.DeleteFunc(slices.Clone(r.Gateways), func(g topology.Gateway) bool { return g.IPsec })
	}
	return viaRelays(t)
}

func (v *view) carrier() string { return cmp.Or(v.facts.Carrier, noCarrier) }

// carriers are the links by which nothing comes or goes but what is said before: the carrier, and that of the kernel,
// which may come up, or be left over, without being it.
func (v *view) carriers() []string {
	switch {
	case v.byIPsec() && v.carrier() != KernelCarrier:
		return []string{v.carrier(), KernelCarrier}
	case v.byIPsec() || v.facts.KernelCarrier:
		return []string{KernelCarrier}
	}
	return nil
}

// carrierRoutes lead to the outer addresses of remote gateways, or nowhere.
func (v *view) carrierRoutes() []Route {
	var out []Route
	for _, p := range v.ipsecPeers {
		route := Route{Table: OutboundTable, Dst: host(p.gateway.VTEP), Metric: StandingMetric, Type: Blackhole}
		out = append(out, route)
		if v.facts.Carrier != "" {
			route.Metric, route.Type, route.Source = RouteMetric, Unicast, v.ipsecVTEP()
			route.NextHops = []NextHop{{Link: v.facts.Carrier, Weight: 1}}
			out = append(out, route)
		}
	}
	return out
}

// carried are the outer addresses of a family of remote gateways by IPsec.
func (v *view) carried(f Family) []netip.Prefix {
	if f != IPv6 {
		return nil
	}
	var out []netip.Prefix
	for _, p := range v.ipsecPeers {
		out = append(out, host(p.gateway.VTEP))
	}
	return disjoint(out)
}

// guardIPsec lets in what comes by the carrier from the gateway that it says to be from, which strongSwan has proved,
// with inner sources of its own. Nothing else comes by that link, nor do such packets by another one.
func (v *view) guardIPsec(f Family, r *rules) {
	if v.byIPsec() {
		r.add(`udp dport %d fib daddr type local counter drop`, v.Cable.IPsecPort+netfacts.IPsecUnusedOffset-
			netfacts.IPsecOffset)
	}
	if v.byIPsec() && f == IPv6 {
		r.add(`iifname "%s" udp dport %d ip6 daddr %s ip6 saddr vmap @%s`, v.carrier(), v.Cable.IPsecVXLANPort, v.ipsecVTEP(),
			mapCarried)
	}
	for _, link := range v.carriers() {
		r.add(`iifname "%s" counter drop`, link)
	}
	if v.byIPsec() {
		r.add(`udp dport %d fib daddr type local counter drop`, v.Cable.IPsecVXLANPort)
	}
}

// last is behind whatever somebody else does at a hook.
const last = "2147483000"

// ownOnly drops what this gateway would send to the outer addresses by another link, as where a policy of somebody
// else's on this machine takes it before it gets to the carrier: encrypted by whatever that says, or not at all. Where
// somebody marks packets the route is looked up again, behind what oifname says; what the carrier takes has no policy
// yet.
func (v *view) ownOnly(f Family) Chain {
	var r rules
	if v.byIPsec() && f == IPv6 {
		r.add(`oifname != "%s" ip6 daddr @%s counter drop`, v.carrier(), setCarried)
		r.add(`ip6 daddr @%s rt ipsec exists counter drop`, setCarried)
	}
	return Chain{Name: "sent", Type: "filter", Hook: "output", Priority: last, Rules: r}
}

// carriedOnly drops what others than this gateway send by the carrier, and what goes to the outer addresses by another
// link.
func (v *view) carriedOnly(f Family) Chain {
	var r rules
	if v.byIPsec() {
		if f == IPv6 {
			// The kernel's ESP shows a packet here once more, with the link that it goes by when it is encrypted.
			inClear := ""
			if v.facts.Carrier == KernelCarrier {
				inClear = " rt ipsec missing"
			}
			r.add(`oifname != "%s" ip6 daddr @%s%s counter drop`, v.carrier(), setCarried, inClear)
			r.add(`oifname "%s" ip6 saddr %s udp dport %d ct state untracked accept`, v.carrier(), v.ipsecVTEP(),
				v.Cable.IPsecVXLANPort)
		}
	}
	for _, link := range v.carriers() {
		r.add(`oifname "%s" counter drop`, link)
	}
	return Chain{Name: "carried", Type: "filter", Hook: "postrouting", Priority: "mangle", Rules: r}
}

// forwardIPsec: nothing is forwarded by the carrier, nor to outer addresses. Masqueraded, it would have this gateway's.
func (v *view) forwardIPsec(f Family, r *rules) {
	for _, link := range v.carriers() {
		r.add(`iifname "%s" counter drop`, link)
		r.add(`oifname "%s" counter drop`, link)
	}
	if v.byIPsec() && f == IPv6 {
		r.add(`ip6 daddr @%s counter drop`, setCarried)
	}
}
