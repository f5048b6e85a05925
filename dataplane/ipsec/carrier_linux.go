// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// device is the name of the link that packets are encrypted by; empty if there is none. That of the kernel outlives
// charon, and the directory in which its name is.
func device(dir string) (string, error) {
	name, err := os.ReadFile(filepath.Join(dir, deviceFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return string(name), err
	}
	link, err := kernelLink()
	if link == nil {
		return "", err
	}
	return plan.KernelCarrier, nil
}

// carry brings charon's link up, with this gateway's outer address alone, and returns its name; empty while charon has
// not made it.
func (d *Daemon) carry(want Config) (string, error) {
	name, err := device(d.dir)
	if name == "" || err != nil {
		return "", err
	}
	link, err := netlink.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find the carrier: %w", err)
	}
	d.kernel = link.Type() == "xfrm"
	if !d.kernel && link.Type() != "tuntap" && link.Type() != "tun" {
		return "", fmt.Errorf("link %s: expected charon's TUN device or an XFRM interface, found a link of type %s", name,
			link.Type())
	}
	if link.Attrs().MTU != want.MTU {
		if err := netlink.LinkSetMTU(link, want.MTU); err != nil {
			return "", fmt.Errorf("set the carrier's MTU: %w", err)
		}
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		if err := netlink.LinkSetUp(link); err != nil {
			return "", fmt.Errorf("bring the carrier up: %w", err)
		}
	}
	return name, address(link, want.Own)
}

// present is the carrier that a former agent has left, which carries on; empty if there is none. One without an outer
// address is of a charon that has started since: nobody has made it the carrier yet.
func present(dir string) string {
	name, err := device(dir)
	if name == "" || err != nil {
		return ""
	}
	link, err := netlink.LinkByName(name)
	if err != nil || link.Attrs().Flags&net.FlagUp == 0 {
		return ""
	}
	have, err := netlink.AddrList(link, netlink.FAMILY_V6)
	if err != nil || !slices.ContainsFunc(have, func(a netlink.Addr) bool { return !a.IP.IsLinkLocalUnicast() }) {
		return ""
	}
	return name
}

// address gives the carrier the outer address of a gateway, and takes others away.
func address(link netlink.Link, own plan.PeerID) error {
	have, err := netlink.AddrList(link, netlink.FAMILY_V6)
	if err != nil {
		return fmt.Errorf("list the carrier's addresses: %w", err)
	}
	want, found := plan.IPsecVTEP(own), false
	for _, a := range have {
		switch {
		case a.IP.Equal(want.AsSlice()):
			found = true
		case !a.IP.IsLinkLocalUnicast():
			if err := netlink.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return fmt.Errorf("take an address from the carrier: %w", err)
			}
		}
	}
	if found {
		return nil
	}
	bits := want.BitLen()
	err = netlink.AddrReplace(link, &netlink.Addr{Flags: unix.IFA_F_NODAD,
		IPNet: &net.IPNet{IP: want.AsSlice(), Mask: net.CIDRMask(bits, bits)}})
	if err != nil {
		return fmt.Errorf("give the carrier its address: %w", err)
	}
	return nil
}
