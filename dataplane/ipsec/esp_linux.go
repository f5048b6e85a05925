// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// Implementation of ESP, which encrypts packets.
type Implementation string

const (
	// Auto is the kernel's where it has one, else charon's.
	Auto Implementation = "Auto"
	// Kernel is that of the kernel, on an XFRM interface (CONFIG_XFRM_INTERFACE), in UDP by IPv6, too (Linux 5.8).
	Kernel Implementation = "Kernel"
	// Userspace is kernel-libipsec of strongSwan, in charon's process, with a TUN device.
	Userspace Implementation = "Userspace"
)

// Implementations that there are.
func Implementations() []Implementation { return []Implementation{Auto, Kernel, Userspace} }

// kernelIfID is the ID by which security associations and policies are those of the carrier.
const kernelIfID = 0x51a0

// requestID is the number by which the kernel tells that a policy for a peer is met by security associations with that
// peer. Each charon would begin at 1 again, and those of a former one could meet the policy for another peer at the
// same address. It follows from what this node alone knows, so that no peer can look for a key that has another's.
func requestID(secret []byte, id plan.PeerID) uint32 {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("sealane ipsec reqid v1" + string(id)))
	return max(binary.BigEndian.Uint32(mac.Sum(nil))>>1, 1)
}

// overKernel makes the link by which packets go to the kernel's ESP, unless it is there, and notes the port that ESP
// comes to. Its error says what the kernel lacks.
func overKernel(port uint16) error {
	if err := espWorks(); err != nil {
		return err
	}
	return carrierLink(port)
}

// portAlias begins the alias of the kernel's carrier, which ends with a port: what runs charon next need not wait for
// an agent to tell it.
const portAlias = "sealane: ESP in UDP of port "

// formerPort is the port that ESP comes to by a carrier that is there; 0 if there is none.
func formerPort() uint16 {
	link, err := kernelLink()
	if link == nil || err != nil {
		return 0
	}
	text, _ := strings.CutPrefix(link.Attrs().Alias, portAlias)
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(port)
}

// decap are sockets of a port, by which the kernel takes ESP out of UDP while there is no charon, whose sockets do so
// else. Charon cannot open its own beside them.
type decap struct {
	port uint16
	fds  []int
	// trouble was said of them last.
	trouble string
}

// hold a port, and no other one; 0 is none.
func (d *decap) hold(port uint16) error {
	if d.port == port {
		return nil
	}
	for _, fd := range d.fds {
		_ = unix.Close(fd)
	}
	if d.port, d.fds = port, nil; port == 0 {
		return nil
	}
	for _, at := range []unix.Sockaddr{&unix.SockaddrInet4{Port: int(port)}, &unix.SockaddrInet6{Port: int(port)}} {
		fd, err := decapSocket(at)
		if err != nil {
			return fmt.Errorf("hold UDP port %d: %w", port, errors.Join(err, d.hold(0)))
		}
		d.fds = append(d.fds, fd)
	}
	return nil
}

func decapSocket(at unix.Sockaddr) (int, error) {
	family := unix.AF_INET
	if _, six := at.(*unix.SockaddrInet6); six {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	// What is no ESP stays unread. Its space is the least that there is.
	options := [][3]int{{unix.SOL_SOCKET, unix.SO_RCVBUF, 1}, {unix.IPPROTO_UDP, unix.UDP_ENCAP, unix.UDP_ENCAP_ESPINUDP}}
	if family == unix.AF_INET6 {
		options = append(options, [3]int{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1})
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o[0], o[1], o[2]); err != nil {
			_ = unix.Close(fd)
			return 0, os.NewSyscallError("setsockopt", err)
		}
	}
	if err := unix.Bind(fd, at); err != nil {
		_ = unix.Close(fd)
		return 0, os.NewSyscallError("bind", err)
	}
	return fd, nil
}

// carrierLink makes the link, unless it is there, and notes the port at it.
func carrierLink(port uint16) error {
	link, err := kernelLink()
	if err != nil {
		return err
	}
	if link == nil {
		link = &netlink.Xfrmi{LinkAttrs: netlink.LinkAttrs{Name: plan.KernelCarrier}, Ifid: kernelIfID}
		if err := netlink.LinkAdd(link); err != nil {
			return fmt.Errorf("make an XFRM interface with ID %#x (CONFIG_XFRM_INTERFACE): %w", kernelIfID, err)
		}
		if link, err = kernelLink(); err != nil || link == nil {
			return errors.Join(errors.New("the carrier is gone as soon as it is made"), err)
		}
	}
	alias := portAlias + strconv.Itoa(int(port))
	if link.Attrs().Alias == alias {
		return nil
	}
	if err := netlink.LinkSetAlias(link, alias); err != nil {
		return fmt.Errorf("note the port at the carrier: %w", err)
	}
	return nil
}

// espWorks gives the kernel security associations such as charon's, of both families, and takes them away again.
func espWorks() error {
	for _, address := range []string{"127.0.0.1", "::1"} {
		s := &netlink.XfrmState{
			Src: net.ParseIP(address), Dst: net.ParseIP(address), Proto: netlink.XFRM_PROTO_ESP, Mode: netlink.XFRM_MODE_TUNNEL,
			Spi: kernelIfID, Reqid: kernelIfID, Ifid: kernelIfID,
			// AES with 128 bits, and 32 of salt (RFC 4106); no packet ever has this key.
			Aead:  &netlink.XfrmStateAlgo{Name: "rfc4106(gcm(aes))", Key: make([]byte, 20), ICVLen: 128},
			Encap: &netlink.XfrmStateEncap{Type: netlink.XFRM_ENCAP_ESPINUDP, SrcPort: 1, DstPort: 1},
		}
		switch err := netlink.XfrmStateAdd(s); {
		case errors.Is(err, unix.EEXIST): // somebody's: ESP there is
			continue
		case err != nil:
			return fmt.Errorf("ESP in UDP with AES-GCM to %s: %w", address, err)
		}
		if err := netlink.XfrmStateDel(s); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("take a security association away: %w", err)
		}
	}
	return nil
}

// Clean has charon end, if a directory is given, and removes what a charon that was killed has left in the kernel.
func Clean(dir string) error {
	var err error
	if dir != "" {
		err = ask(dir, 0)
	}
	return errors.Join(err, leave())
}

// leave removes the kernel's link, and all that goes by it. A charon that was killed has left its own.
func leave() error {
	link, err := kernelLink()
	var foreign foreignLink
	if errors.As(err, &foreign) {
		err = nil // it is somebody's, and stays
	}
	errs := []error{err}
	if link != nil { // first: nothing comes by a link that is not there
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("remove the carrier: %w", err))
		}
	}
	return errors.Join(append(errs, flush(func(*netlink.XfrmState) bool { return true },
		func(*netlink.XfrmPolicy) bool { return true }))...)
}

// leftAt is where the kernel's security associations send what is for peers, by their request IDs. They may be those of
// a charon that was killed, and the address that of a NAT.
func leftAt() (map[uint32]netip.AddrPort, error) {
	policies, err := netlink.XfrmPolicyList(netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list policies of IPsec: %w", err)
	}
	states, err := netlink.XfrmStateList(netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list security associations: %w", err)
	}
	out := map[uint32]netip.AddrPort{}
	for _, p := range policies {
		if p.Ifid != kernelIfID || p.Dir != netlink.XFRM_DIR_OUT || len(p.Tmpls) == 0 {
			continue
		}
		to := p.Tmpls[0]
		for _, s := range states {
			if s.Ifid != kernelIfID || s.Reqid != to.Reqid || s.Encap == nil || !s.Dst.Equal(to.Dst) {
				continue
			}
			if a, ok := netip.AddrFromSlice(s.Dst); ok {
				out[uint32(s.Reqid)] = netip.AddrPortFrom(a.Unmap(), uint16(s.Encap.DstPort))
			}
		}
	}
	return out, nil
}

// Linked says whether the kernel's link is there.
func Linked() bool {
	link, _ := kernelLink()
	return link != nil
}

// kernelLink is the link by which packets go to the kernel's ESP; nil if there is none, or another one of its name,
// which is an error.
func kernelLink() (*netlink.Xfrmi, error) {
	link, err := netlink.LinkByName(plan.KernelCarrier)
	var missing netlink.LinkNotFoundError
	switch {
	case errors.As(err, &missing):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("find the carrier: %w", err)
	}
	x, ok := link.(*netlink.Xfrmi)
	if !ok || x.Ifid != kernelIfID {
		return nil, foreignLink(link.Type())
	}
	return x, nil
}

// foreignLink is the type of a link that has the carrier's name, and is another one.
type foreignLink string

func (t foreignLink) Error() string {
	return fmt.Sprintf("link %s: expected an XFRM interface with ID %#x, found a link of type %s", plan.KernelCarrier,
		kernelIfID, string(t))
}

// flush removes the security associations and policies of the kernel's link that are to go. Those of others on this
// machine have another ID, or none.
func flush(state func(*netlink.XfrmState) bool, policy func(*netlink.XfrmPolicy) bool) error {
	var errs []error
	states, err := netlink.XfrmStateList(netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, unix.EPROTONOSUPPORT) {
		errs = append(errs, fmt.Errorf("list security associations: %w", err))
	}
	for i := range states {
		if s := &states[i]; s.Ifid == kernelIfID && state(s) {
			if err := netlink.XfrmStateDel(s); err != nil && !errors.Is(err, unix.ESRCH) {
				errs = append(errs, fmt.Errorf("remove a security association: %w", err))
			}
		}
	}
	policies, err := netlink.XfrmPolicyList(netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, unix.EPROTONOSUPPORT) {
		errs = append(errs, fmt.Errorf("list policies of IPsec: %w", err))
	}
	for i := range policies {
		if p := &policies[i]; p.Ifid == kernelIfID && policy(p) {
			if err := netlink.XfrmPolicyDel(p); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("remove a policy of IPsec: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}
