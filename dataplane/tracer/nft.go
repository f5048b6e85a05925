// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/internal/trace"
)

const (
	// ownedByUs is NFT_TABLE_F_OWNER: the kernel removes the table when the socket that made it is closed, however that
	// comes.
	ownedByUs = 0x2
	// first is a priority before conntrack and everybody's tables.
	first = -500
	// nfDrop is the verdict NF_DROP.
	nfDrop = 0
	// perSecond bounds how many packets of each direction the kernel reports on.
	perSecond = 50
)

// mark makes a table that has the kernel report what rules do with packets of a protocol from or to a port. It goes
// with the socket.
func mark(protocol uint8, port uint16) (socket int, err error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, fmt.Errorf("open netlink: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(s)
		}
	}()
	if err := unix.Bind(s, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return -1, fmt.Errorf("bind netlink: %w", err)
	}
	timeout := unix.Timeval{Sec: 2}
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return -1, fmt.Errorf("bound the wait for netlink: %w", err)
	}
	var b batch
	name := fmt.Sprintf("sealane_trace_%d", port)
	b.add(unix.NFNL_MSG_BATCH_BEGIN, unix.AF_UNSPEC, 0)
	b.add(nft(unix.NFT_MSG_NEWTABLE), unix.NFPROTO_INET, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
		text(unix.NFTA_TABLE_NAME, name), number(unix.NFTA_TABLE_FLAGS, ownedByUs))
	for chain, hook := range map[string]uint32{"prerouting": unix.NF_INET_PRE_ROUTING, "output": unix.NF_INET_LOCAL_OUT} {
		priority := int32(first)
		b.add(nft(unix.NFT_MSG_NEWCHAIN), unix.NFPROTO_INET, unix.NLM_F_CREATE, text(unix.NFTA_CHAIN_TABLE, name),
			text(unix.NFTA_CHAIN_NAME, chain), text(unix.NFTA_CHAIN_TYPE, "filter"),
			nested(unix.NFTA_CHAIN_HOOK, number(unix.NFTA_HOOK_HOOKNUM, hook),
				number(unix.NFTA_HOOK_PRIORITY, uint32(priority))))
		for _, offset := range []uint32{0, 2} { // the source's port, the destination's
			b.add(nft(unix.NFT_MSG_NEWRULE), unix.NFPROTO_INET, unix.NLM_F_CREATE|unix.NLM_F_APPEND,
				text(unix.NFTA_RULE_TABLE, name), text(unix.NFTA_RULE_CHAIN, chain),
				nested(unix.NFTA_RULE_EXPRESSIONS, tracing(protocol, port, offset)...))
		}
	}
	b.add(unix.NFNL_MSG_BATCH_END, unix.AF_UNSPEC, 0)
	if err := unix.Sendto(s, b.Bytes(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return -1, fmt.Errorf("write a table: %w", err)
	}
	return s, acknowledged(s, b.asked)
}

// tracing is the rule: l4proto PROTOCOL @th,OFFSET,16 PORT limit rate 50/second meta nftrace set 1.
func tracing(protocol uint8, port uint16, offset uint32) []*nl.RtAttr {
	const register = unix.NFT_REG_1
	value := binary.BigEndian.AppendUint16(nil, port)
	return []*nl.RtAttr{
		expression("meta", number(unix.NFTA_META_DREG, register), number(unix.NFTA_META_KEY, unix.NFT_META_L4PROTO)),
		expression("cmp", number(unix.NFTA_CMP_SREG, register), number(unix.NFTA_CMP_OP, unix.NFT_CMP_EQ),
			nested(unix.NFTA_CMP_DATA, nl.NewRtAttr(unix.NFTA_DATA_VALUE, []byte{protocol}))),
		expression("payload", number(unix.NFTA_PAYLOAD_DREG, register),
			number(unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_TRANSPORT_HEADER), number(unix.NFTA_PAYLOAD_OFFSET, offset),
			number(unix.NFTA_PAYLOAD_LEN, uint32(len(value)))),
		expression("cmp", number(unix.NFTA_CMP_SREG, register), number(unix.NFTA_CMP_OP, unix.NFT_CMP_EQ),
			nested(unix.NFTA_CMP_DATA, nl.NewRtAttr(unix.NFTA_DATA_VALUE, value))),
		expression("limit", long(unix.NFTA_LIMIT_RATE, perSecond), long(unix.NFTA_LIMIT_UNIT, 1),
			number(unix.NFTA_LIMIT_BURST, perSecond), number(unix.NFTA_LIMIT_TYPE, unix.NFT_LIMIT_PKTS)),
		expression("immediate", number(unix.NFTA_IMMEDIATE_DREG, register),
			nested(unix.NFTA_IMMEDIATE_DATA, nl.NewRtAttr(unix.NFTA_DATA_VALUE, []byte{1}))),
		expression("meta", number(unix.NFTA_META_KEY, unix.NFT_META_NFTRACE), number(unix.NFTA_META_SREG, register)),
	}
}

// batch is a transaction of nf_tables.
type batch struct {
	bytes.Buffer
	// asked is the number of messages that are answered.
	asked int
	seq   uint32
}

func nft(message int) int { return unix.NFNL_SUBSYS_NFTABLES<<8 | message }

func (b *batch) add(kind int, family uint8, flags uint16, attributes ...*nl.RtAttr) {
	b.seq++
	header := &nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0}
	if kind == unix.NFNL_MSG_BATCH_BEGIN || kind == unix.NFNL_MSG_BATCH_END {
		header.ResId = uint16(unix.NFNL_SUBSYS_NFTABLES)<<8 | uint16(unix.NFNL_SUBSYS_NFTABLES)>>8 // in network order
	} else {
		flags |= unix.NLM_F_ACK
		b.asked++
	}
	r := nl.NewNetlinkRequest(kind, int(flags))
	r.Seq = b.seq
	r.AddData(header)
	for _, a := range attributes {
		r.AddData(a)
	}
	b.Write(r.Serialize())
}

// acknowledged waits for all messages of a transaction to be.
func acknowledged(s, asked int) error {
	buffer := make([]byte, 1<<16)
	for asked > 0 {
		n, _, err := unix.Recvfrom(s, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for the answer of nf_tables: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return fmt.Errorf("read the answer of nf_tables: %w", err)
		}
		for _, m := range messages {
			if m.Header.Type != unix.NLMSG_ERROR || len(m.Data) < 4 {
				continue
			}
			if code := int32(binary.NativeEndian.Uint32(m.Data)); code != 0 {
				return fmt.Errorf("make a table that ends with its socket: %w", unix.Errno(-code))
			}
			asked--
		}
	}
	return nil
}

func text(kind int, s string) *nl.RtAttr { return nl.NewRtAttr(kind, nl.ZeroTerminated(s)) }

func number(kind int, n uint32) *nl.RtAttr {
	return nl.NewRtAttr(kind, binary.BigEndian.AppendUint32(nil, n))
}

func long(kind int, n uint64) *nl.RtAttr {
	return nl.NewRtAttr(kind, binary.BigEndian.AppendUint64(nil, n))
}

func nested(kind int, attributes ...*nl.RtAttr) *nl.RtAttr {
	out := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
	for _, a := range attributes {
		out.AddChild(a)
	}
	return out
}

func expression(name string, data ...*nl.RtAttr) *nl.RtAttr {
	return nested(unix.NFTA_LIST_ELEM, text(unix.NFTA_EXPR_NAME, name), nested(unix.NFTA_EXPR_DATA, data...))
}

// reports opens a socket that the kernel tells what rules do with traced packets, anybody's.
func reports() (int, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, fmt.Errorf("open netlink: %w", err)
	}
	if err := unix.Bind(s, &unix.SockaddrNetlink{Family: unix.AF_NETLINK,
		Groups: 1 << (unix.NFNLGRP_NFTRACE - 1)}); err != nil {
		_ = unix.Close(s)
		return -1, fmt.Errorf("subscribe to traces of nftables: %w", err)
	}
	return s, nil
}

// report of the kernel on a packet at a rule.
type report struct {
	family       uint8
	table, chain string
	handle       uint64
	kind         uint32
	dropped      bool
	id           uint32
	// network and transport headers; only the first report on a packet in a chain has them.
	network, transport []byte
}

func parseReport(m syscall.NetlinkMessage) (report, bool) {
	if int(m.Header.Type) != nft(unix.NFT_MSG_TRACE) || len(m.Data) < nl.SizeofNfgenmsg {
		return report{}, false
	}
	attributes, err := nl.ParseRouteAttr(m.Data[nl.SizeofNfgenmsg:])
	if err != nil {
		return report{}, false
	}
	r := report{family: m.Data[0]}
	u32 := func(b []byte) uint32 {
		if len(b) < 4 {
			return 0
		}
		return binary.BigEndian.Uint32(b)
	}
	name := func(b []byte) string { return string(bytes.TrimRight(b, "\x00")) }
	verdict := false
	for _, a := range attributes {
		switch a.Attr.Type &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER) {
		case unix.NFTA_TRACE_TABLE:
			r.table = name(a.Value)
		case unix.NFTA_TRACE_CHAIN:
			r.chain = name(a.Value)
		case unix.NFTA_TRACE_RULE_HANDLE:
			if len(a.Value) >= 8 {
				r.handle = binary.BigEndian.Uint64(a.Value)
			}
		case unix.NFTA_TRACE_TYPE:
			r.kind = u32(a.Value)
		case unix.NFTA_TRACE_ID:
			r.id = u32(a.Value)
		case unix.NFTA_TRACE_VERDICT:
			inner, err := nl.ParseRouteAttr(a.Value)
			for _, v := range inner {
				if err == nil && v.Attr.Type&^unix.NLA_F_NESTED == unix.NFTA_VERDICT_CODE {
					verdict = u32(v.Value)&0xff == nfDrop
				}
			}
		case unix.NFTA_TRACE_POLICY:
			r.dropped = r.dropped || u32(a.Value) == nfDrop
		case unix.NFTA_TRACE_NETWORK_HEADER:
			r.network = a.Value
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			r.transport = a.Value
		}
	}
	r.dropped = r.dropped || verdict && r.kind == unix.NFT_TRACETYPE_RULE
	return r, true
}

// packet that a report with headers is about.
func (r *report) packet() (trace.Packet, bool) {
	n, ok := parseNetwork(r.network)
	if !ok {
		return trace.Packet{}, false
	}
	n.payload = r.transport
	return n.packet()
}

// plain names need no quotes in nft's language, and end no command in it.
var plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]{0,127}$`)

// families of nftables, by what netlink calls them.
var families = map[uint8]string{unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6",
	unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_NETDEV: "netdev", unix.NFPROTO_ARP: "arp"}

// chain of nftables.
type chain struct {
	family      uint8
	table, name string
}

// rules of a chain as nft prints them, by their handles.
type rules map[string]string

const (
	// maxChains are read, nftPatience in all, and maxListing bytes of each.
	maxChains   = 8
	nftPatience = 4 * time.Second
	maxListing  = 4 << 20
)

// ruleText is a rule as nft prints it, or its handle. Each chain is read once.
func (w *watch) ruleText(r *report) string {
	handle := fmt.Sprintf("handle %d", r.handle)
	c := chain{r.family, r.table, r.chain}
	if !plain.MatchString(r.table) || !plain.MatchString(r.chain) || families[r.family] == "" {
		return handle
	}
	if _, read := w.chains[c]; !read && len(w.chains) < maxChains && w.asked < nftPatience {
		began := time.Now()
		w.chains[c] = list(w.ctx, c, nftPatience-w.asked)
		w.asked += time.Since(began)
	}
	return cmp.Or(w.chains[c][handle], handle)
}

// list the rules of a chain; none where that fails.
func list(ctx context.Context, c chain, patience time.Duration) rules {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nft", "-a", "list", "chain", families[c.family], c.table, c.name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out := &listing{}
	cmd.Stdout = out
	if err := cmd.Run(); err != nil {
		return nil
	}
	all := rules{}
	for line := range strings.Lines(out.String()) {
		const comment = " # handle "
		line = strings.TrimSpace(line)
		if at := strings.LastIndex(line, comment); at >= 0 {
			all["handle "+line[at+len(comment):]] = line[:at]
		}
	}
	return all
}

// listing is what a program prints, as far as it is bounded.
type listing struct{ bytes.Buffer }

func (l *listing) Write(b []byte) (int, error) {
	if l.Len()+len(b) > maxListing {
		return 0, fmt.Errorf("expected at most %d bytes, found more", maxListing)
	}
	return l.Buffer.Write(b)
}
