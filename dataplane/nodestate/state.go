// SPDX-License-Identifier: Apache-2.0

// Package nodestate writes for people what the kernel of this node has that Sealane's packets depend on. It only reads,
// and writes no key but public ones.
package nodestate

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// maxLines of a section: a router's table may have a million routes.
const maxLines = 20_000

// section is a part of the state, under its name.
type section struct {
	name  string
	lines func(context.Context) ([]string, error)
}

// Write writes the state of the network namespace of this process. What cannot be read is said in its place; an error
// is one of writing. The directory is /proc/sys/net, or a mount of it.
func Write(ctx context.Context, out io.Writer, sysctlDir string) error {
	sections := []section{
		{"links and addresses", links}, {"rules", rules}, {"routes", routes}, {"neighbours of our links", neighbours},
		{"wireguard", wireGuard},
		{"settings of the kernel", func(context.Context) ([]string, error) { return settings(sysctlDir), nil }},
		program("nft", "list", "table", "ip", plan.TableName), program("nft", "list", "table", "ip6", plan.TableName),
		program("iptables", "-w", "1", "-v", "-S", "FORWARD"), program("ip6tables", "-w", "1", "-v", "-S", "FORWARD"),
	}
	for _, s := range sections {
		lines, err := s.lines(ctx)
		if over := len(lines) - maxLines; over > 0 {
			lines = append(lines[:maxLines], fmt.Sprintf("(%d more)", over))
		}
		if err != nil {
			lines = append(lines, fmt.Sprintf("(not read: %v)", err))
		}
		if _, err := fmt.Fprintf(out, "== %s\n%s\n\n", s.name, strings.Join(lines, "\n")); err != nil {
			return fmt.Errorf("write %s: %w", s.name, err)
		}
	}
	return nil
}

// program is what one prints that changes nothing.
func program(name string, args ...string) section {
	return section{strings.Join(append([]string{name}, args...), " "), func(ctx context.Context) ([]string, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		var said bytes.Buffer
		cmd.Stderr = &said
		text, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
		}
		return strings.Split(strings.TrimRight(string(text), "\n"), "\n"), err
	}}
}

func links(context.Context) ([]string, error) {
	list, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var out []string
	for _, l := range list {
		a := l.Attrs()
		out = append(out, fmt.Sprintf("%d: %s type %s mtu %d flags %s state %s", a.Index, a.Name, l.Type(), a.MTU, a.Flags,
			a.OperState))
		if s := a.Statistics; s != nil && strings.HasPrefix(a.Name, plan.LinkPrefix) {
			out = append(out, fmt.Sprintf("    received %d bytes, %d packets, %d dropped, %d errors; sent %d, %d, %d, %d",
				s.RxBytes, s.RxPackets, s.RxDropped, s.RxErrors, s.TxBytes, s.TxPackets, s.TxDropped, s.TxErrors))
		}
		addresses, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			out = append(out, fmt.Sprintf("    (addresses not read: %v)", err))
		}
		for i := range addresses {
			out = append(out, "    "+addresses[i].IPNet.String())
		}
	}
	return out, nil
}

func rules(context.Context) ([]string, error) {
	var out []string
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := netlink.RuleList(family)
		if err != nil {
			return out, fmt.Errorf("list rules: %w", err)
		}
		for i := range list {
			out = append(out, list[i].String())
		}
	}
	return out, nil
}

// routes of all tables but the local one, which follows from the addresses.
func routes(context.Context) ([]string, error) {
	names := map[int]string{}
	list, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range list {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	var out []string
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return out, fmt.Errorf("list routes: %w", err)
		}
		for i := range list {
			if list[i].Table != unix.RT_TABLE_LOCAL {
				out = append(out, route(&list[i], names))
			}
		}
	}
	return out, nil
}

func route(r *netlink.Route, names map[int]string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "table %d type %d %s", r.Table, r.Type, r.Dst)
	hop := func(gateway net.IP, link int) {
		if gateway != nil {
			fmt.Fprintf(&out, " via %s", gateway)
		}
		if link != 0 {
			fmt.Fprintf(&out, " dev %s", names[link])
		}
	}
	hop(r.Gw, r.LinkIndex)
	for _, next := range r.MultiPath {
		out.WriteString(" nexthop")
		hop(next.Gw, next.LinkIndex)
		fmt.Fprintf(&out, " weight %d", next.Hops+1)
	}
	if r.Src != nil {
		fmt.Fprintf(&out, " src %s", r.Src)
	}
	if r.MTU != 0 {
		fmt.Fprintf(&out, " mtu %d", r.MTU)
	}
	fmt.Fprintf(&out, " metric %d proto %d", r.Priority, r.Protocol)
	return out.String()
}

func neighbours(context.Context) ([]string, error) {
	list, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var out []string
	for _, l := range list {
		if !strings.HasPrefix(l.Attrs().Name, plan.LinkPrefix) {
			continue
		}
		for _, family := range []int{unix.AF_INET, unix.AF_INET6, unix.AF_BRIDGE} {
			found, err := netlink.NeighList(l.Attrs().Index, family)
			if err != nil {
				return out, fmt.Errorf("list neighbours of %s: %w", l.Attrs().Name, err)
			}
			for _, n := range found {
				out = append(out, fmt.Sprintf("%s %s lladdr %s state %#x", l.Attrs().Name, n.IP, n.HardwareAddr, n.State))
			}
		}
	}
	return out, nil
}

// wireGuard lists our devices as wg(8) does, without their private keys and those that peers share.
func wireGuard(context.Context) ([]string, error) {
	client, err := wgctrl.New()
	if err != nil {
		return nil, fmt.Errorf("open wgctrl: %w", err)
	}
	defer client.Close() //nolint:errcheck // it was only read
	devices, err := client.Devices()
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var out []string
	for _, d := range devices {
		if !strings.HasPrefix(d.Name, plan.LinkPrefix) {
			continue
		}
		out = append(out, fmt.Sprintf("%s %s public key %s port %d fwmark %#x", d.Name, d.Type, d.PublicKey, d.ListenPort,
			d.FirewallMark))
		for i := range d.Peers {
			p := &d.Peers[i]
			allowed := make([]string, len(p.AllowedIPs))
			for j := range p.AllowedIPs {
				allowed[j] = p.AllowedIPs[j].String()
			}
			slices.Sort(allowed)
			out = append(out, fmt.Sprintf("    peer %s endpoint %s handshake %s received %d sent %d keepalive %s allowed %s",
				p.PublicKey, p.Endpoint, p.LastHandshakeTime.UTC().Format("2006-01-02T15:04:05Z"), p.ReceiveBytes,
				p.TransmitBytes, p.PersistentKeepaliveInterval, strings.Join(allowed, " ")))
		}
	}
	return out, nil
}

// settings of the kernel that decide whether it forwards, and how many connections it tracks.
func settings(dir string) []string {
	var out []string
	for _, name := range []string{"netfilter/nf_conntrack_count", "netfilter/nf_conntrack_max", "ipv4/ip_forward",
		"ipv4/conf/all/rp_filter", "ipv4/conf/default/rp_filter", "ipv4/fib_multipath_hash_policy",
		"ipv6/conf/all/forwarding", "ipv6/conf/default/disable_ipv6"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		value := strings.TrimSpace(string(text))
		if err != nil {
			value = fmt.Sprintf("(not read: %v)", err)
		}
		out = append(out, name+" "+value)
	}
	return out
}
