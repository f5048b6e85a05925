// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// LocalAddress is an address that this node has, the network that it connects the node to, and the MTU in
// bytes of the link that has it.
type LocalAddress struct {
	Addr    netip.Addr
	Network netip.Prefix
	Link    string
	MTU     int
	// Dummy says that the link leads nowhere: where kube-proxy keeps the addresses of Services (IPVS).
	Dummy bool
}

// Addresses returns the node's addresses, sorted, without those on our own links.
func (k *Kernel) Addresses() ([]LocalAddress, error) {
	links, err := k.netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	byIndex := make(map[int]netlink.Link, len(links))
	for _, l := range links {
		byIndex[l.Attrs().Index] = l
	}
	addrs, err := k.netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var out []LocalAddress
	for _, a := range addrs {
		l, ok := byIndex[a.LinkIndex]
		if !ok || strings.HasPrefix(l.Attrs().Name, plan.LinkPrefix) {
			continue
		}
		network := prefix(a.IPNet)
		if a.Peer != nil {
			network = prefix(a.Peer) // of a point-to-point link; of any other, the same network
		}
		out = append(out, LocalAddress{addrOf(a.IP), network.Masked(), l.Attrs().Name, l.Attrs().MTU, l.Type() == "dummy"})
	}
	slices.SortFunc(out, func(a, b LocalAddress) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Link, b.Link))
	})
	return out, nil
}

// DefaultGateways returns the next hops of the node's default routes in table main. A next hop of an IPv4 route
// may be an IPv6 address.
func (k *Kernel) DefaultGateways() ([]netip.Addr, error) {
	var out []netip.Addr
	for _, f := range k.families {
		routes, err := k.netlink.RouteListFiltered(nlFamily(f), &netlink.Route{Table: unix.RT_TABLE_MAIN},
			netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			if p := prefix(r.Dst); p.IsValid() && p.Bits() > 0 {
				continue
			}
			hops := []*netlink.NexthopInfo{{Gw: r.Gw, Via: r.Via}}
			for _, h := range slices.Concat(hops, r.MultiPath) {
				if via, ok := h.Via.(*netlink.Via); ok {
					h.Gw = via.Addr
				}
				if a := addrOf(h.Gw); a.IsValid() {
					out = append(out, a)
				}
			}
		}
	}
	return out, nil
}
