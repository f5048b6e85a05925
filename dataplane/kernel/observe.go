// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// Observe returns everything of ours that is in the kernel. A link that is down has MTU 0, for it carries
// nothing; rules of nftables are their IDs.
func (k *Kernel) Observe(ctx context.Context) (plan.Plan, error) {
	var p plan.Plan
	names, err := k.observeLinks(&p)
	if err != nil {
		return plan.Plan{}, err
	}
	rules, err := k.firewall.rules.observe(ctx)
	if err != nil {
		return plan.Plan{}, err
	}
	for _, f := range k.families {
		err := errors.Join(k.observeRoutes(&p, f, names), k.observeRules(&p, f), k.observeFirewall(&p, f, rules))
		if err != nil {
			return plan.Plan{}, err
		}
	}
	return p, nil
}

// observeLinks reads our links and what is on them. It returns the names of all links by index.
func (k *Kernel) observeLinks(p *plan.Plan) (map[int]string, error) {
	links, err := k.netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	slices.SortFunc(links, func(a, b netlink.Link) int { return cmp.Compare(a.Attrs().Name, b.Attrs().Name) })
	names := make(map[int]string, len(links))
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
		if !strings.HasPrefix(l.Attrs().Name, plan.LinkPrefix) {
			continue
		}
		if err := k.observeLink(p, l); err != nil && !isGone(err) {
			return nil, fmt.Errorf("observe link %s: %w", l.Attrs().Name, err)
		}
	}
	return names, nil
}

// isGone says that a link went away while it was looked at.
func isGone(err error) bool { return errors.Is(err, unix.ENODEV) }

func (k *Kernel) observeLink(p *plan.Plan, l netlink.Link) error {
	a := l.Attrs()
	link := plan.Link{Name: a.Name, MTU: a.MTU}
	if a.Flags&net.FlagUp == 0 {
		link.MTU = 0
	}
	link.RPFilter, _ = k.sysctl("ipv4", a.Name, "rp_filter") // missing reads as off
	disabled, err := k.sysctl("ipv6", a.Name, "disable_ipv6")
	link.DisableIPv6 = err != nil || disabled != 0
	if v, ok := l.(*netlink.Vxlan); ok {
		link.Kind, link.VNI, link.Port = plan.VXLAN, v.VxlanId, uint16(v.Port)
		link.Local, link.MAC = addrOf(v.SrcAddr), a.HardwareAddr.String()
	}
	if name, driver := k.driverOf(l); driver != nil {
		link.Kind, link.Driver = plan.Cable, name
		tunnel, err := driver.Observe(a.Name)
		if err != nil {
			return err
		}
		p.Tunnels = append(p.Tunnels, tunnel)
	}
	p.Links = append(p.Links, link)
	return errors.Join(k.observeAddresses(p, l), k.observeNeighbours(p, l))
}

func (k *Kernel) observeAddresses(p *plan.Plan, l netlink.Link) error {
	addrs, err := k.netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		address := plan.Address{Link: l.Attrs().Name, Prefix: prefix(a.IPNet)}
		address.LinkScope = address.Prefix.Addr().Is4() && a.Scope == unix.RT_SCOPE_LINK
		p.Addresses = append(p.Addresses, address)
	}
	return nil
}

func (k *Kernel) observeNeighbours(p *plan.Plan, l netlink.Link) error {
	name := l.Attrs().Name
	for _, f := range k.families {
		neighbours, err := k.netlink.NeighList(l.Attrs().Index, nlFamily(f))
		if err != nil {
			return err
		}
		for _, n := range neighbours {
			if n.State&netlink.NUD_PERMANENT != 0 {
				p.Neighbours = append(p.Neighbours, plan.Neighbour{Link: name, IP: addrOf(n.IP), MAC: n.HardwareAddr.String()})
			}
		}
	}
	if l.Type() != "vxlan" {
		return nil
	}
	entries, err := k.netlink.NeighList(l.Attrs().Index, unix.AF_BRIDGE)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) != 0 {
			p.FDB = append(p.FDB, plan.FDBEntry{Link: name, MAC: e.HardwareAddr.String(), Dst: addrOf(e.IP)})
		}
	}
	return nil
}

func (k *Kernel) observeRoutes(p *plan.Plan, f plan.Family, names map[int]string) error {
	// However many tables are asked for, the kernel lists all.
	routes, err := k.netlink.RouteListFiltered(nlFamily(f), &netlink.Route{Table: unix.RT_TABLE_UNSPEC},
		netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	ours := plan.RouteTables()
	for _, r := range routes {
		if slices.Contains(ours, r.Table) {
			p.Routes = append(p.Routes, observedRoute(f, r, names))
		}
	}
	return nil
}

func observedRoute(f plan.Family, r netlink.Route, names map[int]string) plan.Route {
	route := plan.Route{Table: r.Table, Dst: prefix(r.Dst), Metric: r.Priority, Source: addrOf(r.Src), MTU: r.MTU,
		MTULock: r.MTULock}
	if !route.Dst.IsValid() {
		route.Dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if f == plan.IPv6 {
			route.Dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
	}
	switch r.Type {
	case unix.RTN_UNICAST:
		route.Type, route.NextHops = plan.Unicast, observedNextHops(r, names)
	case unix.RTN_THROW:
		route.Type = plan.Throw
	case unix.RTN_UNREACHABLE:
		route.Type = plan.Unreachable
	case unix.RTN_BLACKHOLE:
		route.Type = plan.Blackhole
	}
	return route
}

// observedNextHops reads the two forms in which the kernel lists one next hop, and several.
func observedNextHops(r netlink.Route, names map[int]string) []plan.NextHop {
	if len(r.MultiPath) == 0 {
		return []plan.NextHop{{Link: names[r.LinkIndex], Via: viaOf(r.Gw, r.Via), Weight: 1}}
	}
	hops := make([]plan.NextHop, 0, len(r.MultiPath))
	for _, h := range r.MultiPath {
		hops = append(hops, plan.NextHop{Link: names[h.LinkIndex], Via: viaOf(h.Gw, h.Via), Weight: h.Hops + 1})
	}
	slices.SortFunc(hops, func(a, b plan.NextHop) int { return cmp.Or(cmp.Compare(a.Link, b.Link), a.Via.Compare(b.Via)) })
	return hops
}

// viaOf is the address of a next hop, which for a route of IPv4 may be one of IPv6.
func viaOf(gateway net.IP, other netlink.Destination) netip.Addr {
	if via, ok := other.(*netlink.Via); ok && via != nil {
		return addrOf(via.Addr)
	}
	return addrOf(gateway)
}

func (k *Kernel) observeRules(p *plan.Plan, f plan.Family) error {
	rules, err := k.netlink.RuleList(nlFamily(f))
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	for _, r := range rules {
		if slices.Contains(plan.RouteTables(), r.Table) {
			rule := plan.Rule{Family: f, Priority: r.Priority, IIF: r.IifName, From: prefix(r.Src), Mark: r.Mark, Table: r.Table}
			if r.Mask != nil {
				rule.Mask = *r.Mask
			}
			p.Rules = append(p.Rules, rule)
		}
	}
	return nil
}

func (k *Kernel) observeFirewall(p *plan.Plan, f plan.Family, rules observed) error {
	if table, ok := rules.tables[f]; ok {
		p.Tables = append(p.Tables, table)
	}
	accepted, err := k.firewall.accepted(f, rules.forwards[f])
	if err != nil {
		return err
	}
	if accepted {
		p.ForwardAccepts = append(p.ForwardAccepts, f)
	}
	return nil
}

func prefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(addrOf(n.IP), ones)
}
