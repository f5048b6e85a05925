// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// LocalAddress is an address that this node has, and the MTU in bytes of the link that has it.
type LocalAddress struct {
	Addr netip.Addr
	Link string
	MTU  int
}

// Addresses returns the node's addresses, sorted, without those on our own links.
func (k *Kernel) Addresses() ([]LocalAddress, error) {
	links, err := k.netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	byIndex := make(map[int]*netlink.LinkAttrs, len(links))
	for _, l := range links {
		byIndex[l.Attrs().Index] = l.Attrs()
	}
	addrs, err := k.netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var out []LocalAddress
	for _, a := range addrs {
		if l, ok := byIndex[a.LinkIndex]; ok && !strings.HasPrefix(l.Name, plan.LinkPrefix) {
			out = append(out, LocalAddress{addrOf(a.IP), l.Name, l.MTU})
		}
	}
	slices.SortFunc(out, func(a, b LocalAddress) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Link, b.Link))
	})
	return out, nil
}
