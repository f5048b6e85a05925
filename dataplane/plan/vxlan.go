// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// A cable by VXLAN is a link like the overlay's, with one next hop for each remote gateway of its slot. VXLAN believes
// whoever sends, so the guard reads in the outer packet what WireGuard's allowed IPs would say: which gateway's address
// it comes from, and whether the inner source is one of that gateway's networks. Nothing else reaches the link.

// Names of what holds the outer addresses of remote gateways, and the chain of each by either cable: a gateway that is
// about to be reached by the other one has both.
const (
	setVTEPs      = "vteps"
	setOuters     = "outers"
	mapVTEPs      = "vtepchains"
	mapCarried    = "carriedchains"
	vtepPrefix    = "vtep"
	carriedPrefix = "carried"
)

// vxlanPeer is a remote gateway behind a cable by VXLAN, be it within IPsec.
type vxlanPeer struct {
	remote  topology.Remote
	gateway topology.Gateway
}

// chain of what may come from it.
func (p vxlanPeer) chain() string {
	prefix := vtepPrefix
	if p.gateway.IPsec {
		prefix = carriedPrefix
	}
	return prefix + RuleID(string(PeerOf(p.gateway)))
}

// vxlanPeersOf returns those of remote clusters, in the order of the topology. One that leaves gives way to one that
// has come in its place, on the same node.
func vxlanPeersOf(remotes []topology.Remote) []vxlanPeer {
	var out []vxlanPeer
	taken := map[string]bool{}
	for _, leaving := range []bool{false, true} {
		for _, r := range remotes {
			for _, g := range r.Gateways {
				if !g.VTEP.IsValid() || g.Leaving != leaving || taken[vxlanHop(g, IPv4).String()] {
					continue
				}
				taken[vxlanHop(g, IPv4).String()] = true
				out = append(out, vxlanPeer{r, g})
			}
		}
	}
	return out
}

// vxlanOuter is the outer address of the cables by VXLAN.
func (v *view) vxlanOuter() netip.Addr { return v.OuterVTEP(v.self.Name) }

// vni of the cable to a remote gateway, by the slot of the cable.
func (v *view) vni(slot int) int { return CableVNI + v.gateway.Slot + gatewaySlot(slot) }

// vxlanLink has the MTU of the usual cables, 10 bytes less than would pass: what is sent by one may go by the other.
func (v *view) vxlanLink(slot int) Link {
	at, port := v.vxlanOuter(), v.Cable.VXLANCablePort
	if isIPsec(slot) {
		at, port = v.ipsecVTEP(), v.Cable.IPsecVXLANPort
	}
	mac := vxlanMAC(topology.Gateway{VTEP: at, IPsec: isIPsec(slot)})
	return Link{Name: CableLink(slot), Kind: VXLAN, MTU: v.cableMTU(*v.gateway), VNI: v.vni(slot),
		Port: port, Local: at, MAC: mac, RPFilter: looseRPFilter, DisableIPv6: !v.facts.IPv6}
}

// vxlanMAC is the hardware address of a gateway's cables by VXLAN, or by IPsec.
func vxlanMAC(g topology.Gateway) string {
	if g.IPsec {
		return macText(netfacts.IPsecMAC(g.VTEP))
	}
	return vtepMAC(g.VTEP)
}

// vxlanHop is the next hop of a family to a gateway by VXLAN; invalid for one by another cable. Any address does that
// has a neighbour entry on the link. By IPsec it is one of IPv6 for both families, for IPv4 has none that are free and
// long enough that nobody can make two gateways have the same.
func vxlanHop(g topology.Gateway, f Family) netip.Addr {
	switch {
	case !g.VTEP.IsValid():
		return netip.Addr{}
	case g.IPsec:
		return linkLocal(netfacts.IPsecMAC(g.VTEP))
	case f == IPv6:
		return vtepLinkLocal(g.VTEP)
	}
	return netfacts.VTEPHop(g.VTEP)
}

func (v *view) vxlanNeighbours() []Neighbour {
	var out []Neighbour
	for _, p := range v.byVXLAN {
		for _, f := range []Family{IPv4, IPv6} {
			if f == IPv4 && !p.gateway.IPsec || f == IPv6 && v.facts.IPv6 {
				out = append(out, Neighbour{CableLink(p.gateway.Slot), vxlanHop(p.gateway, f), vxlanMAC(p.gateway)})
			}
		}
	}
	return out
}

func (v *view) vxlanFDB() []FDBEntry {
	var out []FDBEntry
	for _, p := range v.byVXLAN {
		out = append(out, FDBEntry{CableLink(p.gateway.Slot), vxlanMAC(p.gateway), p.gateway.VTEP})
	}
	return out
}

func (v *view) vxlanCables() []Tunnel {
	var out []Tunnel
	for _, p := range v.byVXLAN {
		link := CableLink(p.gateway.Slot)
		i := slices.IndexFunc(out, func(t Tunnel) bool { return t.Link == link })
		if i < 0 {
			i = len(out)
			out = append(out, Tunnel{Link: link, ListenPort: v.vxlanLink(p.gateway.Slot).Port, ID: v.facts.ID})
		}
		out[i].Peers = append(out[i].Peers, v.peer(p.remote, p.gateway))
	}
	slices.SortFunc(out, func(a, b Tunnel) int { return strings.Compare(a.Link, b.Link) })
	for _, t := range out {
		slices.SortFunc(t.Peers, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	}
	return out
}

// vxlanVTEPs are the outer addresses of a family.
func (v *view) vxlanVTEPs(f Family) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range v.openPeers {
		if FamilyOf(p.gateway.VTEP) == f {
			out = append(out, host(p.gateway.VTEP))
		}
	}
	return disjoint(out)
}

// outersOf are the addresses at which remote gateways may take VXLAN.
func outersOf(remotes []topology.Remote) map[Family][]netip.Prefix {
	out := map[Family][]netip.Prefix{}
	for _, r := range remotes {
		for _, g := range r.Gateways {
			for _, f := range []Family{IPv4, IPv6} {
				own := func(c topology.Candidate) bool { return c.Private && FamilyOf(c.Addr) == f }
				if i := slices.IndexFunc(g.Candidates, own); i >= 0 {
					out[f] = append(out[f], host(g.Candidates[i].Addr))
				}
			}
		}
	}
	return map[Family][]netip.Prefix{IPv4: disjoint(out[IPv4]), IPv6: disjoint(out[IPv6])}
}

// hasVXLAN says whether there are cables by VXLAN whose outer packets are of a family.
func (v *view) hasVXLAN(f Family) bool {
	return len(v.openPeers) > 0 && f == FamilyOf(v.vxlanOuter())
}

// guardVXLAN lets in outer packets of those who may send them, to the node's own address, with inner sources of their
// own. They are not tracked.
func (v *view) guardVXLAN(f Family, r *rules) {
	if !v.hasVXLAN(f) {
		return
	}
	port, at := v.Cable.VXLANCablePort, v.vxlanOuter()
	r.add(`iifname "%s*" udp dport %d fib daddr type local counter drop`, LinkPrefix, port)
	r.add(`udp dport %d %s daddr %s fib saddr . iif oif 0 counter drop`, port, f, at)
	r.add(`udp dport %d %s daddr %s %s saddr vmap @%s`, port, f, at, f, mapVTEPs)
	r.add(`udp dport %d fib daddr type local counter drop`, port)
}

// vtepChains are those that the maps of the same family lead to.
func (v *view) vtepChains(f Family) ([]Map, []Chain) {
	var maps []Map
	var chains []Chain
	add := func(name, key string, peers []vxlanPeer) {
		m := Map{Name: name, Key: key, Value: "verdict"}
		for _, p := range peers {
			m.Elements = append(m.Elements, MapElement{p.gateway.VTEP.String(), "jump " + p.chain()})
			chains = append(chains, Chain{Name: p.chain(), Rules: v.fromVTEP(p)})
		}
		slices.SortFunc(m.Elements, MapElement.compare)
		maps = append(maps, m)
	}
	key := "ipv4_addr"
	if f == IPv6 {
		key = "ipv6_addr"
	}
	if f == IPv6 && v.byIPsec() {
		add(mapCarried, key, v.ipsecPeers)
	}
	if v.hasVXLAN(f) {
		add(mapVTEPs, key, v.openPeers)
	}
	return maps, chains
}

// fromVTEP reads behind the UDP header: 8 bytes of VXLAN, of which 3 from the fifth on are the VNI, 14 of Ethernet,
// whose last 2 say what follows, and the IP header, where a source is 12 bytes from its beginning, or 8 with IPv6.
func (v *view) fromVTEP(p vxlanPeer) rules {
	const vni, ethertype, ip = 8 + 4, 8 + 8 + 12, 8 + 8 + 14
	var r rules
	for _, source := range v.peer(p.remote, p.gateway).AllowedIPs {
		follows, at := 0x0800, ip+12
		if source.Addr().Is6() {
			follows, at = 0x86dd, ip+8
		}
		r.add(`@th,%d,24 %#x @th,%d,16 %#x %s notrack accept`, 8*vni, v.vni(p.gateway.Slot), 8*ethertype, follows,
			rawMatch(8*at, source))
	}
	return r
}

// rawMatch matches an address of a prefix at an offset, in bits, behind the transport header.
func rawMatch(offset int, p netip.Prefix) string {
	number := func(b []byte) *big.Int { return new(big.Int).SetBytes(b) }
	length, value := p.Addr().BitLen(), number(p.Masked().Addr().AsSlice())
	if p.IsSingleIP() {
		return fmt.Sprintf("@th,%d,%d %#x", offset, length, value)
	}
	return fmt.Sprintf("@th,%d,%d & %#x == %#x", offset, length, number(net.CIDRMask(p.Bits(), length)), value)
}
