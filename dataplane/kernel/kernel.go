// SPDX-License-Identifier: Apache-2.0

// Package kernel reads and writes the network state of this node. Observe returns what is there as a
// plan, Do applies changes. What is Sealane's can be told by looking: links named "sl-…" and what is on
// them, our routing tables and the rules that look them up, our nftables tables, and our accepts in the
// FORWARD chains, by their comment. What was programmed is not remembered: the kernel is asked what there is, or, of
// nftables, what has changed since it was last asked.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// Kernel of this node, in the network namespace of the process.
type Kernel struct {
	drivers   map[string]Driver
	sysctlDir string
	families  []plan.Family
	netlink   *netlink.Handle
	firewall  *firewall
}

// New opens the kernel, with the drivers of cables by name. sysctlDir is /proc/sys/net, or a writable mount
// of it.
func New(drivers map[string]Driver, sysctlDir string) (*Kernel, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	k := &Kernel{drivers: drivers, sysctlDir: sysctlDir, netlink: h, families: []plan.Family{plan.IPv4}}
	if _, err := os.Stat("/proc/net/if_inet6"); err == nil {
		k.families = append(k.families, plan.IPv6)
	}
	if k.firewall, err = newFirewall(k.families); err != nil {
		h.Close()
		return nil, err
	}
	return k, nil
}

// Close the kernel; what was done stays.
func (k *Kernel) Close() {
	k.netlink.Close()
	k.firewall.close()
}

// IPv6 says whether links can have IPv6 addresses.
func (k *Kernel) IPv6() bool {
	if len(k.families) < 2 {
		return false
	}
	disabled, err := k.sysctl("ipv6", "default", "disable_ipv6")
	return err == nil && disabled == 0
}

// HashesPorts says whether flows of IPv4 are spread over several next hops by their ports, and not by addresses alone.
// It is an error where the kernel does not spread flows.
func (k *Kernel) HashesPorts() (bool, error) {
	const byPorts, byFields, ports = 1, 3, 0x30 // net/ip_fib.h
	policy, err := readNumber(filepath.Join(k.sysctlDir, "ipv4", "fib_multipath_hash_policy"))
	if err != nil || policy != byFields {
		return policy == byPorts, err
	}
	fields, err := readNumber(filepath.Join(k.sysctlDir, "ipv4", "fib_multipath_hash_fields"))
	return fields&ports != 0, err
}

// Tracked says how many connections this node tracks, and at how many it drops new ones.
type Tracked struct{ Connections, Limit int }

// Tracked is an error where the kernel does not track connections.
func (k *Kernel) Tracked() (Tracked, error) {
	count, countErr := readNumber(filepath.Join(k.sysctlDir, "netfilter", "nf_conntrack_count"))
	limit, limitErr := readNumber(filepath.Join(k.sysctlDir, "netfilter", "nf_conntrack_max"))
	return Tracked{count, limit}, errors.Join(countErr, limitErr)
}

// ErrUnguarded says that changes were left out, for what has to guard them failed.
var ErrUnguarded = errors.New("left out, for the guard before it failed")

// Do applies changes in their order. A change that fails does not keep the others from being tried, unless
// it guards them: then nothing that carries packets is added or changed, and deletions go on. Every failure
// is in the error, with the element it is about.
func (k *Kernel) Do(ctx context.Context, changes []plan.Change) error {
	d := doing{Kernel: k, indexes: map[string]int{}}
	var errs []error
	unguarded, left := false, 0
	for _, c := range changes {
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		if unguarded && !c.Guards() && c.Op != plan.Delete {
			left++
			continue
		}
		if err := d.do(ctx, c); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c, err))
			unguarded = unguarded || c.Guards() && c.Op != plan.Delete
		}
	}
	if left > 0 {
		errs = append(errs, fmt.Errorf("%d changes %w", left, ErrUnguarded))
	}
	return errors.Join(errs...)
}

// Clean removes everything of ours.
func (k *Kernel) Clean(ctx context.Context) error {
	have, err := k.Observe(ctx)
	err = errors.Join(err, k.Do(ctx, plan.Diff(plan.Plan{}, have)))
	// Half an accept is not observed as one.
	for _, f := range k.families {
		err = errors.Join(err, k.firewall.deleteAccepts(f))
	}
	return err
}

// doing is one run of changes; it looks every link up once.
type doing struct {
	*Kernel
	indexes map[string]int
}

func (d *doing) do(ctx context.Context, c plan.Change) error {
	switch e := c.Element.(type) {
	case plan.Table:
		return d.firewall.setTable(ctx, e, c.Op)
	case plan.TableEdit:
		return d.firewall.editTable(ctx, e)
	case plan.Link:
		return d.link(e, c.Op)
	case plan.Address:
		return d.address(e, c.Op)
	case plan.Tunnel:
		return d.tunnel(e, c.Op)
	case plan.TunnelPeer:
		return d.peer(e, c.Op)
	case plan.FDBEntry:
		return d.fdb(e, c.Op)
	case plan.Neighbour:
		return d.neighbour(e, c.Op)
	case plan.Route:
		return d.route(e, c.Op)
	case plan.Rule:
		return d.rule(e, c.Op)
	case plan.ForwardAccept:
		if c.Op == plan.Delete {
			return d.firewall.deleteAccepts(e.Family)
		}
		return d.firewall.insertAccepts(e.Family)
	case plan.ConntrackFlush:
		return d.flush(e)
	}
	return fmt.Errorf("unknown element %T", c.Element)
}

// index of a link by name.
func (d *doing) index(name string) (int, error) {
	if i, ok := d.indexes[name]; ok {
		return i, nil
	}
	l, err := d.netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	d.indexes[name] = l.Attrs().Index
	return l.Attrs().Index, nil
}

func isNotFound(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing)
}

// gone makes the deletion of what is not there a success.
func gone(err error) error {
	for _, e := range []error{unix.ENOENT, unix.ESRCH, unix.ENODEV, unix.EADDRNOTAVAIL} {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

func (k *Kernel) sysctl(family, link, name string) (int, error) {
	return readNumber(filepath.Join(k.sysctlDir, family, "conf", link, name))
}

func readNumber(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// setSysctl writes only what differs, for the files may be read-only.
func (k *Kernel) setSysctl(family, link, name string, value int) error {
	if have, err := k.sysctl(family, link, name); err != nil || have == value {
		return err
	}
	path := filepath.Join(k.sysctlDir, family, "conf", link, name)
	return os.WriteFile(path, []byte(strconv.Itoa(value)), 0)
}

func nlFamily(f plan.Family) int {
	if f == plan.IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func addrOf(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap()
}
