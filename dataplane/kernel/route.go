// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/dataplane/plan"
)

func (d *doing) route(r plan.Route, op plan.Op) error {
	route := &netlink.Route{
		Family:   nlFamily(plan.FamilyOf(r.Dst.Addr())),
		Table:    r.Table,
		Dst:      ipNet(r.Dst),
		Priority: r.Metric,
		Type:     routeType(r.Type),
		Protocol: plan.Protocol,
	}
	if op == plan.Delete {
		// Whoever put it into our table, and however.
		route.Protocol, route.Scope = 0, netlink.SCOPE_NOWHERE
		return gone(d.netlink.RouteDel(route))
	}
	if r.Type == plan.Unicast {
		if err := d.setNextHops(route, r.NextHops); err != nil {
			return err
		}
		route.MTU, route.MTULock = r.MTU, r.MTULock
		if r.Source.IsValid() {
			route.Src = r.Source.AsSlice()
		}
	}
	if route.Family == unix.AF_INET6 {
		route.Scope = netlink.SCOPE_UNIVERSE
	}
	return d.netlink.RouteReplace(route)
}

// setNextHops writes a single next hop into the route itself, as the kernel lists it.
func (d *doing) setNextHops(route *netlink.Route, hops []plan.NextHop) error {
	if !slices.ContainsFunc(hops, func(h plan.NextHop) bool { return h.Via.IsValid() }) {
		route.Scope = netlink.SCOPE_LINK
	}
	var infos []*netlink.NexthopInfo
	for _, h := range hops {
		index, err := d.index(h.Link)
		if err != nil {
			return err
		}
		info := &netlink.NexthopInfo{LinkIndex: index, Hops: h.Weight - 1}
		if h.Via.IsValid() {
			info.Flags = int(netlink.FLAG_ONLINK)
			if h.Via.Is6() && route.Family == unix.AF_INET {
				info.Via = &netlink.Via{AddrFamily: unix.AF_INET6, Addr: h.Via.AsSlice()}
			} else {
				info.Gw = h.Via.AsSlice()
			}
		}
		infos = append(infos, info)
	}
	if len(infos) == 1 {
		only := infos[0]
		route.LinkIndex, route.Gw, route.Via, route.Flags = only.LinkIndex, only.Gw, only.Via, only.Flags
		return nil
	}
	route.MultiPath = infos
	return nil
}

func routeType(t plan.RouteType) int {
	switch t {
	case plan.Throw:
		return unix.RTN_THROW
	case plan.Unreachable:
		return unix.RTN_UNREACHABLE
	case plan.Blackhole:
		return unix.RTN_BLACKHOLE
	}
	return unix.RTN_UNICAST
}

func (d *doing) rule(r plan.Rule, op plan.Op) error {
	rule := netlink.NewRule()
	rule.Family = nlFamily(r.Family)
	rule.Priority = r.Priority
	rule.IifName = r.IIF
	rule.Table = r.Table
	if r.From.IsValid() {
		rule.Src = ipNet(r.From)
	}
	if r.Mask != 0 {
		rule.Mark, rule.Mask = r.Mark, &r.Mask
	}
	if op == plan.Delete {
		return gone(d.netlink.RuleDel(rule))
	}
	rule.Protocol = plan.Protocol
	if err := d.netlink.RuleAdd(rule); !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// flush forgets connections, in one pass over all that are tracked.
func (d *doing) flush(f plan.ConntrackFlush) error {
	of, err := setOf(f.Prefixes)
	if err != nil {
		return err
	}
	local, err := setOf(f.Local)
	if err != nil {
		return err
	}
	from, err := setOf(f.From)
	if err != nil {
		return err
	}
	_, err = d.netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(nlFamily(f.Family)),
		flushed{of, local, from, f.Translated, len(f.From) > 0})
	return err
}

func setOf(prefixes []netip.Prefix) (*netipx.IPSet, error) {
	var b netipx.IPSetBuilder
	for _, p := range prefixes {
		b.AddPrefix(p)
	}
	return b.IPSet()
}

// flushed matches the connections that a plan.ConntrackFlush is about.
type flushed struct {
	of, local, from      *netipx.IPSet
	translated, services bool
}

func (f flushed) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	source, backend, answered := addrOf(flow.Forward.SrcIP), addrOf(flow.Reverse.SrcIP), addrOf(flow.Reverse.DstIP)
	destination := addrOf(flow.Forward.DstIP)
	if f.services {
		return destination != backend && f.from.Contains(source) && f.of.Contains(backend)
	}
	if !f.of.Contains(source) && !f.of.Contains(destination) && !f.of.Contains(backend) {
		return false
	}
	return !f.translated || answered != source && !f.local.Contains(answered)
}
