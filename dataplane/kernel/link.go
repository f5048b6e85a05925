// SPDX-License-Identifier: Apache-2.0

package kernel

import (
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

func (d *doing) link(l plan.Link, op plan.Op) error {
	switch op {
	case plan.Delete:
		delete(d.indexes, l.Name)
		return d.deleteLink(l)
	case plan.Add:
		if err := d.addLink(l); err != nil {
			return err
		}
	}
	return d.setLink(l)
}

func (d *doing) addLink(l plan.Link) error {
	if l.Kind == plan.Cable {
		driver, err := d.Driver(l.Driver)
		if err != nil {
			return err
		}
		return driver.Create(l.Name, l.MTU)
	}
	mac, err := net.ParseMAC(l.MAC)
	if err != nil {
		return err
	}
	return d.netlink.LinkAdd(&netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: l.Name, MTU: l.MTU, HardwareAddr: mac, TxQLen: -1},
		VxlanId:   l.VNI,
		Port:      int(l.Port),
		SrcAddr:   l.Local.AsSlice(),
		Learning:  false,
	})
}

// setLink sets what can be changed, and last brings the link up.
func (d *doing) setLink(l plan.Link) error {
	link, err := d.netlink.LinkByName(l.Name)
	if err != nil {
		return err
	}
	if err := d.setSysctl("ipv4", l.Name, "rp_filter", l.RPFilter); err != nil {
		return err
	}
	if len(d.families) > 1 {
		disable := 0
		if l.DisableIPv6 {
			disable = 1
		}
		if err := d.setSysctl("ipv6", l.Name, "disable_ipv6", disable); err != nil {
			return err
		}
	}
	if link.Attrs().MTU != l.MTU {
		if err := d.netlink.LinkSetMTU(link, l.MTU); err != nil {
			return err
		}
	}
	err = d.netlink.LinkSetUp(link)
	if l.Kind == plan.VXLAN && errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("UDP port %d is another program's on this node: see which by ss -lunp, and end it or give it "+
			"another port: %w", l.Port, err)
	}
	return err
}

// PortTaken says whether another program has the UDP port of VXLAN links, with outer packets of a family: those links
// would not come up.
func (k *Kernel) PortTaken(port uint16, f plan.Family) (bool, error) {
	network := "udp4"
	if f == plan.IPv6 {
		network = "udp6"
	}
	free, err := net.ListenUDP(network, &net.UDPAddr{Port: int(port)})
	if err == nil {
		return false, free.Close()
	}
	if !errors.Is(err, unix.EADDRINUSE) {
		return false, err
	}
	links, err := k.netlink.LinkList()
	if err != nil {
		return false, fmt.Errorf("list links: %w", err)
	}
	return !slices.ContainsFunc(links, func(l netlink.Link) bool {
		v, ok := l.(*netlink.Vxlan)
		return ok && strings.HasPrefix(v.Name, plan.LinkPrefix) && v.Port == int(port) && v.Flags&net.FlagUp != 0
	}), nil
}

func (d *doing) deleteLink(l plan.Link) error {
	link, err := d.netlink.LinkByName(l.Name)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, driver := d.driverOf(link); driver != nil {
		return driver.Delete(l.Name)
	}
	return gone(d.netlink.LinkDel(link))
}

func (d *doing) address(a plan.Address, op plan.Op) error {
	index, err := d.index(a.Link)
	if err != nil {
		if op == plan.Delete && isNotFound(err) {
			return nil
		}
		return err
	}
	link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index, Name: a.Link}}
	addr := &netlink.Addr{IPNet: ipNet(a.Prefix)}
	if a.LinkScope {
		addr.Scope = unix.RT_SCOPE_LINK
	}
	if a.Prefix.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if op == plan.Delete {
		return gone(d.netlink.AddrDel(link, addr))
	}
	return d.netlink.AddrReplace(link, addr)
}

func (d *doing) neighbour(n plan.Neighbour, op plan.Op) error {
	return d.neigh(n.Link, &netlink.Neigh{
		Family: nlFamily(plan.FamilyOf(n.IP)), State: netlink.NUD_PERMANENT, IP: n.IP.AsSlice(),
	}, n.MAC, op)
}

func (d *doing) fdb(f plan.FDBEntry, op plan.Op) error {
	return d.neigh(f.Link, &netlink.Neigh{
		Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT, Flags: netlink.NTF_SELF, IP: f.Dst.AsSlice(),
	}, f.MAC, op)
}

func (d *doing) neigh(link string, n *netlink.Neigh, mac string, op plan.Op) error {
	var err error
	if n.LinkIndex, err = d.index(link); err != nil {
		if op == plan.Delete && isNotFound(err) {
			return nil
		}
		return err
	}
	if n.HardwareAddr, err = net.ParseMAC(mac); err != nil {
		return err
	}
	if op == plan.Delete {
		return gone(d.netlink.NeighDel(n))
	}
	return d.netlink.NeighSet(n)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
