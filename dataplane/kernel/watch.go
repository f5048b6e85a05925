// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// Watch calls changed whenever links, addresses, routes, rules, neighbours, forwarding entries or rp_filter change in
// a way that may concern us, until the context ends. Our own changes are among them.
func (k *Kernel) Watch(ctx context.Context, changed func()) error {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV4_NETCONF,
		unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		return fmt.Errorf("subscribe to netlink: %w", err)
	}
	// A busy node's neighbours come and go in bursts. Where the size is refused, what is lost costs a look at
	// everything.
	const buffer = 1 << 20
	_ = s.SetReceiveBufferSize(buffer, true)
	w := watched{}
	if err := k.list(w); err != nil {
		s.Close()
		return err
	}
	lost := func() error {
		changed()
		return k.list(w)
	}
	return receive(ctx, s, changed, lost, w.concerns)
}

// list notes our links.
func (k *Kernel) list(w watched) error {
	links, err := k.netlink.LinkList()
	// What changes meanwhile is told.
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("list links: %w", err)
	}
	clear(w)
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, plan.LinkPrefix) {
			w[int32(l.Attrs().Index)] = true
		}
	}
	return nil
}

// WatchFirewall calls changed whenever our nftables tables or the FORWARD chain change, until the context
// ends. It may miss changes while somebody loads very many rules.
func (k *Kernel) WatchFirewall(ctx context.Context, changed func()) error {
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return fmt.Errorf("subscribe to nftables: %w", err)
	}
	lost := func() error {
		changed()
		return nil
	}
	return receive(ctx, s, changed, lost, concernsFirewall)
}

// receive messages until the context ends, and call changed for those that concern us, and lost after some could not
// be received.
func receive(ctx context.Context, s *nl.NetlinkSocket, changed func(), lost func() error,
	concerns func(syscall.NetlinkMessage) bool) error {
	stop := context.AfterFunc(ctx, s.Close)
	defer stop()
	for {
		messages, _, err := s.Receive()
		switch {
		case ctx.Err() != nil || errors.Is(err, os.ErrClosed):
			return nil
		case errors.Is(err, unix.ENOBUFS):
			if err := lost(); err != nil {
				return err
			}
		case err != nil:
			return fmt.Errorf("receive from netlink: %w", err)
		}
		if slices.ContainsFunc(messages, concerns) {
			changed()
		}
	}
}

// The attributes that name the table and the chain have the same numbers in messages about tables,
// chains, rules, sets and elements (linux/netfilter/nf_tables.h); a table has no chain.
const (
	nftaTable = 1
	nftaChain = 2
)

// concernsFirewall looks at where something changed.
func concernsFirewall(m syscall.NetlinkMessage) bool {
	if len(m.Data) < nl.SizeofNfgenmsg {
		return false
	}
	attrs, err := nl.ParseRouteAttr(m.Data[nl.SizeofNfgenmsg:])
	if err != nil {
		return false
	}
	name := map[uint16]string{}
	for _, a := range attrs {
		if a.Attr.Type == nftaTable || a.Attr.Type == nftaChain {
			name[a.Attr.Type] = strings.TrimRight(string(a.Value), "\x00")
		}
	}
	return name[nftaTable] == plan.TableName || name[nftaTable] == filterTable && name[nftaChain] == forwardChain
}

// watched are our links, by index: messages about neighbours and sysctls name no link.
type watched map[int32]bool

// concerns leaves out what every pod that starts causes, and every host that is spoken to. It is asked about each
// message in their order.
func (w watched) concerns(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return true
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return w.link(m)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return inOurTable(m.Data, unix.SizeofRtMsg, unix.RTA_TABLE)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		return inOurTable(m.Data, unix.SizeofRtMsg, nl.FRA_TABLE)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return w.neighbour(m.Data)
	case unix.RTM_NEWNETCONF:
		return w.rpFilter(m.Data)
	}
	return false
}

// link notes which links are ours.
func (w watched) link(m syscall.NetlinkMessage) bool {
	if len(m.Data) < unix.SizeofIfInfomsg {
		return false
	}
	header := nl.DeserializeIfInfomsg(m.Data)
	if !strings.HasPrefix(linkName(m.Data[unix.SizeofIfInfomsg:]), plan.LinkPrefix) {
		delete(w, header.Index)
		return false
	}
	if m.Header.Type == unix.RTM_NEWLINK {
		w[header.Index] = true
	} else if header.Family == unix.AF_UNSPEC { // and not a bridge that lost the link as a port
		delete(w, header.Index)
	}
	return true
}

// neighbour says whether a message is about a neighbour or a forwarding entry on a link of ours. On links without
// address resolution the kernel makes, and forgets, neighbours that are nothing but that (NUD_NOARP).
func (w watched) neighbour(data []byte) bool {
	const index, state, size = 4, 8, 12 // struct ndmsg (linux/neighbour.h)
	if len(data) < size || !w[int32(nl.NativeEndian().Uint32(data[index:]))] {
		return false
	}
	return data[0] == unix.AF_BRIDGE || nl.NativeEndian().Uint16(data[state:]) != netlink.NUD_NOARP
}

// rpFilter says whether a message is about rp_filter of a link of ours.
func (w watched) rpFilter(data []byte) bool {
	const header = 4 // struct netconfmsg, padded (linux/netconf.h)
	const netconfIndex, netconfRPFilter = 1, 3
	if len(data) < header {
		return false
	}
	attrs, err := nl.ParseRouteAttr(data[header:])
	if err != nil {
		return false
	}
	ours, filter := false, false
	for _, a := range attrs {
		switch {
		case a.Attr.Type == netconfIndex && len(a.Value) == 4:
			ours = w[int32(nl.NativeEndian().Uint32(a.Value))]
		case a.Attr.Type == netconfRPFilter:
			filter = true
		}
	}
	return ours && filter
}

func linkName(attributes []byte) string {
	attrs, err := nl.ParseRouteAttr(attributes)
	if err != nil {
		return ""
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.IFLA_IFNAME {
			return strings.TrimRight(string(a.Value), "\x00")
		}
	}
	return ""
}

func inOurTable(data []byte, header int, tableAttr uint16) bool {
	if len(data) < header {
		return false
	}
	attrs, err := nl.ParseRouteAttr(data[header:])
	if err != nil {
		return false
	}
	for _, a := range attrs {
		if a.Attr.Type == tableAttr && len(a.Value) == 4 {
			table := int(nl.NativeEndian().Uint32(a.Value))
			return slices.Contains(plan.RouteTables(), table)
		}
	}
	return false
}
