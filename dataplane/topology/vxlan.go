// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// buildVXLAN notes which gateways can be reached by VXLAN, or by IPsec, after all of them are known. What comes from
// an outer address is believed to be its gateway's, so an address that two have is neither's; nor may two have one
// hardware address or next hop, by which packets find the outer one. What is left out of VXLAN goes by WireGuard, and
// what is left out of IPsec by nothing: so there only hardware addresses count, too long for anybody to make them
// collide. That is no problem of the objects: nodes of two sites may well have the same address, and the connection
// says that its cable is silent.
func (b *builder) buildVXLAN(clusters []v1alpha1.RemoteCluster) {
	hops, macs := map[netip.Addr]int{}, map[[6]byte]int{}
	for i, c := range clusters {
		r := &b.Remotes[i]
		ref := "RemoteCluster/" + c.Name
		switch {
		case c.Cable == "" || c.Cable == v1alpha1.CableWireGuard:
			continue
		case c.Cable == v1alpha1.CableIPsec:
			b.buildIPsec(r, ref, macs)
			continue
		case c.Cable != v1alpha1.CableVXLAN:
			b.left(ref, "cable", faultf(ReasonUnknownDriver, "%s is not known here: it is reached by wireguard",
				clip.Quote(string(c.Cable))))
			continue
		case b.Cable.VXLANCablePort == 0:
			b.left(ref, "cable", faultf(ReasonInvalidPort, "the ports of cable and overlay leave none for vxlan: it is reached "+
				"by wireguard"))
			continue
		}
		r.VXLAN = true
		for j := range r.Gateways {
			g := &r.Gateways[j]
			g.VTEPs = vteps(*g)
			for _, a := range g.VTEPs {
				hops[netfacts.VTEPHop(a)]++
			}
		}
	}
	for i := range b.Remotes {
		for j := range b.Remotes[i].Gateways {
			g := &b.Remotes[i].Gateways[j]
			g.VTEPs = slices.DeleteFunc(g.VTEPs, func(a netip.Addr) bool {
				if b.Remotes[i].IPsec {
					return macs[netfacts.IPsecMAC(a)] > 1
				}
				return hops[netfacts.VTEPHop(a)] > 1
			})
		}
	}
}

// buildIPsec gives the gateways of a cluster by IPsec their outer addresses. Without a port it is not reached.
func (b *builder) buildIPsec(r *Remote, ref string, macs map[[6]byte]int) {
	r.IPsec = true
	if b.Cable.IPsecPort == 0 {
		b.left(ref, "cable", faultf(ReasonInvalidPort, "there is no port for ipsec, by spec.cable of the Peering: it is "+
			"not reached"))
		return
	}
	for j := range r.Gateways {
		g := &r.Gateways[j]
		at := netfacts.IPsecVTEP(g.PublicKey)
		g.VTEPs = []netip.Addr{at}
		macs[netfacts.IPsecMAC(at)]++
	}
}

// vteps are a gateway's own addresses, the first of each family. Others are those of a NAT, or lead over networks that
// nobody has said to be trusted.
func vteps(g Gateway) []netip.Addr {
	var out []netip.Addr
	for _, is4 := range []bool{true, false} {
		i := slices.IndexFunc(g.Candidates, func(c Candidate) bool { return c.Private && c.Addr.Is4() == is4 })
		if i >= 0 {
			out = append(out, g.Candidates[i].Addr)
		}
	}
	return out
}

// OuterVTEP is the outer address of a node's cables by VXLAN: that of IPv4 if it has one. Invalid if it has none.
func (t Topology) OuterVTEP(node string) netip.Addr {
	for _, n := range t.Local.Nodes {
		if n.Name == node && len(n.Addresses) > 0 {
			return n.Addresses[0]
		}
	}
	return netip.Addr{}
}

// WithVXLAN adds to a topology, for the local gateway on a node, its cables by VXLAN: each gateway of a remote cluster
// with VXLAN that has an outer address of the node's family is there twice, as itself and as a gateway VXLANSlots
// higher. leaving are those of the latter, by cluster, that are reached otherwise now and may not have heard of it.
func (t Topology) WithVXLAN(node string, leaving map[string][]Gateway) Topology {
	outer := t.OuterVTEP(node)
	if !outer.IsValid() || !slices.ContainsFunc(t.Local.Gateways, func(g Gateway) bool { return g.Node == node }) {
		return t
	}
	remotes := slices.Clone(t.Remotes)
	for i, r := range remotes {
		if !r.VXLAN && !r.IPsec && len(leaving[r.Name]) == 0 {
			continue
		}
		gateways := slices.Clone(r.Gateways)
		for _, g := range r.Gateways {
			j := slices.IndexFunc(g.VTEPs, func(a netip.Addr) bool { return a.Is4() == outer.Is4() || r.IPsec })
			if j >= 0 && !g.Next {
				gateways = append(gateways, byVTEP(g, g.VTEPs[j], r.IPsec))
			}
		}
		for _, g := range leaving[r.Name] {
			is := func(o Gateway) bool { return o.Slot == g.Slot%v1alpha1.NextKeySlots && o.PublicKey == g.PublicKey }
			stays := func(o Gateway) bool { return o.Slot == g.Slot }
			if slices.ContainsFunc(r.Gateways, is) && !slices.ContainsFunc(gateways, stays) {
				g.Leaving = true
				gateways = append(gateways, g)
			}
		}
		remotes[i].Gateways = gateways
	}
	t.Remotes = remotes
	return t
}

// byVTEP stands for the cable by VXLAN, or by IPsec, to a gateway.
func byVTEP(g Gateway, at netip.Addr, ipsec bool) Gateway {
	first := v1alpha1.VXLANSlots
	if ipsec {
		first = v1alpha1.IPsecSlots
	}
	g.VTEP, g.Slot, g.IPsec = at, g.Slot+first, ipsec
	g.Next, g.Preferred, g.NextKey = false, false, Key{}
	return g
}
