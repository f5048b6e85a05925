// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/internal/trace"
)

// neighbours of links, by their index, as they were read first.
type neighbours map[int][]netlink.Neigh

func (n neighbours) of(link int) []netlink.Neigh {
	list, known := n[link]
	if !known {
		list, _ = netlink.NeighList(link, netlink.FAMILY_ALL) // without them the route alone is told
		n[link] = list
	}
	return list
}

// lookUp asks the kernel where a packet goes that comes in by a device.
func lookUp(from, to netip.Addr, by string, known neighbours) trace.Route {
	r := trace.Route{From: from, To: to, By: by}
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Iif: by, SrcAddr: from.AsSlice()})
	switch {
	case errors.Is(err, unix.EXDEV):
		r.Problem = "the source is not reached by " + by + ", and rp_filter drops it"
	case err != nil:
		r.Problem = err.Error()
	case len(routes) == 0:
		r.Problem = "the kernel names no route"
	default:
		through(routes[0], to, &r, known)
	}
	return r
}

// through says what device a route leads to, and whether its next hop answers there.
func through(route netlink.Route, to netip.Addr, r *trace.Route, known neighbours) {
	link, err := netlink.LinkByIndex(route.LinkIndex)
	if err != nil {
		r.Problem = "the device of its route is gone: " + err.Error()
		return
	}
	r.Device = link.Attrs().Name
	if route.Type == unix.RTN_UNREACHABLE || route.Type == unix.RTN_BLACKHOLE || route.Type == unix.RTN_PROHIBIT {
		r.Device, r.Problem = "", "its route is unreachable, prohibit or blackhole"
		return
	}
	next := net.IP(to.AsSlice())
	if route.Gw != nil {
		next = route.Gw
	}
	for _, n := range known.of(route.LinkIndex) {
		if n.IP.Equal(next) && n.State&(netlink.NUD_FAILED|netlink.NUD_INCOMPLETE) != 0 {
			r.Problem = next.String() + " does not answer on " + r.Device + ": nobody has this address there"
		}
	}
}
