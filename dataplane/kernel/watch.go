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

// Watch calls changed whenever links, addresses, routes, rules or permanent neighbours change in a way
// that may concern us, until the context ends. Our own changes are among them.
func (k *Kernel) Watch(ctx context.Context, changed func()) error {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE,
		unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		return fmt.Errorf("subscribe to netlink: %w", err)
	}
	return receive(ctx, s, changed, concernsUs)
}

// WatchFirewall calls changed whenever our nftables tables or the FORWARD chain change, until the context
// ends. It may miss changes while somebody loads very many rules.
func (k *Kernel) WatchFirewall(ctx context.Context, changed func()) error {
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return fmt.Errorf("subscribe to nftables: %w", err)
	}
	return receive(ctx, s, changed, concernsFirewall)
}

func receive(ctx context.Context, s *nl.NetlinkSocket, changed func(),
	concerns func(syscall.NetlinkMessage) bool) error {
	stop := context.AfterFunc(ctx, s.Close)
	defer stop()
	for {
		messages, _, err := s.Receive()
		switch {
		case ctx.Err() != nil || errors.Is(err, os.ErrClosed):
			return nil
		case errors.Is(err, unix.ENOBUFS): // some were lost
			changed()
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

// concernsUs leaves out what every pod that starts causes.
func concernsUs(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return true
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return len(m.Data) >= unix.SizeofIfInfomsg &&
			strings.HasPrefix(linkName(m.Data[unix.SizeofIfInfomsg:]), plan.LinkPrefix)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return inOurTable(m.Data, unix.SizeofRtMsg, unix.RTA_TABLE)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		return inOurTable(m.Data, unix.SizeofRtMsg, nl.FRA_TABLE)
	case unix.RTM_DELNEIGH:
		n, err := netlink.NeighDeserialize(m.Data)
		return err == nil && n.State&netlink.NUD_PERMANENT != 0
	}
	return false
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
			return table == plan.OutboundTable || table == plan.InboundTable
		}
	}
	return false
}
