// SPDX-License-Identifier: Apache-2.0

package cable

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
)

var _ kernel.Driver = (*WireGuard)(nil)

// WireGuard makes and configures the node's WireGuard devices, each with one of the node's private keys.
type WireGuard struct {
	keys   *Keys
	kernel bool
	client *wgctrl.Client
	// userspace devices, for a kernel without WireGuard.
	userspace Devices
}

// probeLink is made and removed to learn whether the kernel has WireGuard. Left behind by a crash, it
// is a link of ours that no plan wants.
const probeLink = plan.LinkPrefix + "probe"

// OpenWireGuard finds out what the kernel offers; where it has no WireGuard, devices are userspace ones.
func OpenWireGuard(keys *Keys, userspace Devices) (*WireGuard, error) {
	w := &WireGuard{keys: keys, userspace: userspace}
	probe := wireGuardLink(probeLink, 0)
	switch err := netlink.LinkAdd(probe); {
	case err == nil || errors.Is(err, syscall.EEXIST):
		w.kernel = true
		// Another agent, that this one is to follow, may have seen and deleted it.
		if err := netlink.LinkDel(probe); err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) &&
			!errors.Is(err, syscall.ENODEV) {
			return nil, fmt.Errorf("delete link %s: %w", probeLink, err)
		}
	case errors.Is(err, syscall.EOPNOTSUPP):
	default:
		return nil, fmt.Errorf("ask the kernel for wireguard: %w", err)
	}
	var err error
	// After the probe, which loads the kernel's module: the client looks for it once.
	if w.client, err = wgctrl.New(); err != nil {
		return nil, fmt.Errorf("open wgctrl: %w", err)
	}
	return w, nil
}

func wireGuardLink(name string, mtu int) netlink.Link {
	return &netlink.Wireguard{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: mtu}}
}

// Close the connection to the devices, which stay.
func (w *WireGuard) Close() error { return w.client.Close() }

// Implementation says where packets are encrypted.
func (w *WireGuard) Implementation() v1alpha1.CableImplementation {
	if w.kernel {
		return v1alpha1.CableKernel
	}
	return v1alpha1.CableUserspace
}

func idOf(public wgtypes.Key) plan.PeerID { return plan.PeerID(public[:]) }

// keyOf returns the public key that an ID is of.
func keyOf(id plan.PeerID) (wgtypes.Key, error) {
	key, err := wgtypes.NewKey([]byte(id))
	if err != nil {
		return key, fmt.Errorf("peer %s: not the ID of a WireGuard gateway, which is a public key of %d bytes: %w",
			id, wgtypes.KeyLen, err)
	}
	return key, nil
}

// Owns says whether a link is a WireGuard device that this process can configure. A userspace device that others hold
// is not.
func (w *WireGuard) Owns(link netlink.Link) bool {
	if link.Type() == "wireguard" {
		return w.kernel
	}
	return w.userspace.Running(link.Attrs().Name)
}

// Create makes a device and gives it the current private key. The link is down.
func (w *WireGuard) Create(name string, mtu int) error {
	if w.kernel {
		if err := netlink.LinkAdd(wireGuardLink(name, mtu)); err != nil {
			return err
		}
	} else if err := w.userspace.Create(name, mtu); err != nil {
		return err
	}
	key, ok := w.keys.private(w.keys.Current())
	if !ok {
		return errors.New("the node has no private key")
	}
	return w.client.ConfigureDevice(name, wgtypes.Config{PrivateKey: &key})
}

// Delete ends a device; one that is gone is no error.
func (w *WireGuard) Delete(name string) error {
	// Also where the kernel has learned WireGuard meanwhile.
	if err := w.userspace.Delete(name); err != nil {
		return err
	}
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, syscall.ENODEV) {
		return err
	}
	return nil
}

// Observe returns how a device is configured, with the endpoints in use.
func (w *WireGuard) Observe(name string) (plan.Tunnel, error) {
	d, err := w.client.Device(name)
	if err != nil {
		return plan.Tunnel{}, fmt.Errorf("read wireguard device %s: %w", name, err)
	}
	t := plan.Tunnel{Link: name, ListenPort: uint16(d.ListenPort), ID: idOf(d.PublicKey)}
	for _, p := range d.Peers {
		t.Peers = append(t.Peers, plan.Peer{
			ID:               idOf(p.PublicKey),
			Endpoint:         addrPort(p.Endpoint),
			AllowedIPs:       prefixes(p.AllowedIPs),
			KeepaliveSeconds: int(p.PersistentKeepaliveInterval / time.Second),
		})
	}
	slices.SortFunc(t.Peers, func(a, b plan.Peer) int { return cmp.Compare(a.ID, b.ID) })
	return t, nil
}

// Set sets what the device itself has: the key and the port. Peers stay. With another key, a device goes on receiving
// what its peers send by handshakes with the former one, and sends by new handshakes. The port is left alone if it is
// right, for a userspace device opens its socket anew.
func (w *WireGuard) Set(t plan.Tunnel) error {
	key, ok := w.keys.private(t.ID)
	if !ok {
		return fmt.Errorf("the plan is for gateway %s, and the key of this node is that of %s", t.ID, w.keys.Current())
	}
	d, err := w.client.Device(t.Link)
	if err != nil {
		return fmt.Errorf("read wireguard device %s: %w", t.Link, err)
	}
	cfg := wgtypes.Config{}
	if d.PrivateKey != key {
		cfg.PrivateKey = &key
	}
	if port := int(t.ListenPort); d.ListenPort != port {
		cfg.ListenPort = &port
	}
	return w.client.ConfigureDevice(t.Link, cfg)
}

// SetPeer adds or changes a peer. A peer that is there keeps the endpoint in use; a new one is dialled
// at its first candidate.
func (w *WireGuard) SetPeer(p plan.TunnelPeer, isNew bool) error {
	key, err := keyOf(p.ID)
	if err != nil {
		return err
	}
	keepalive := time.Duration(p.KeepaliveSeconds) * time.Second
	cfg := wgtypes.PeerConfig{
		PublicKey:                   key,
		PersistentKeepaliveInterval: &keepalive,
		ReplaceAllowedIPs:           true,
		AllowedIPs:                  ipNets(p.AllowedIPs),
	}
	if isNew && len(p.Candidates) > 0 {
		cfg.Endpoint = net.UDPAddrFromAddrPort(p.Candidates[0])
	}
	return w.client.ConfigureDevice(p.Link, wgtypes.Config{Peers: []wgtypes.PeerConfig{cfg}})
}

// Redial dials a peer that is there at an endpoint. WireGuard sends one initiation every 5 s (REKEY_TIMEOUT), and sends
// none because of another endpoint: a peer that was never heard, so that nothing of it is lost, is removed and added,
// which begins with one.
func (w *WireGuard) Redial(link string, id plan.PeerID, endpoint netip.AddrPort) error {
	key, err := keyOf(id)
	if err != nil {
		return err
	}
	d, err := w.client.Device(link)
	if err != nil {
		return fmt.Errorf("read wireguard device %s: %w", link, err)
	}
	set := wgtypes.PeerConfig{PublicKey: key, UpdateOnly: true, Endpoint: net.UDPAddrFromAddrPort(endpoint)}
	peers := []wgtypes.PeerConfig{set}
	i := slices.IndexFunc(d.Peers, func(p wgtypes.Peer) bool { return p.PublicKey == key })
	if i >= 0 && d.Peers[i].LastHandshakeTime.IsZero() && d.Peers[i].ReceiveBytes == 0 {
		set.UpdateOnly, set.AllowedIPs = false, d.Peers[i].AllowedIPs
		set.PersistentKeepaliveInterval = &d.Peers[i].PersistentKeepaliveInterval
		peers = []wgtypes.PeerConfig{{PublicKey: key, UpdateOnly: true, Remove: true}, set}
	}
	return w.client.ConfigureDevice(link, wgtypes.Config{Peers: peers})
}

// RemovePeer removes a peer; one that is gone, or whose device is, is no error.
func (w *WireGuard) RemovePeer(link string, id plan.PeerID) error {
	key, err := keyOf(id)
	if err != nil {
		return err
	}
	err = w.client.ConfigureDevice(link, wgtypes.Config{Peers: []wgtypes.PeerConfig{{
		PublicKey: key, UpdateOnly: true, Remove: true,
	}}})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Peers returns the state of every peer of a device.
func (w *WireGuard) Peers(link string) ([]kernel.PeerState, error) {
	d, err := w.client.Device(link)
	if err != nil {
		return nil, fmt.Errorf("read wireguard device %s: %w", link, err)
	}
	states := make([]kernel.PeerState, 0, len(d.Peers))
	for _, p := range d.Peers {
		states = append(states, kernel.PeerState{
			Link: link, ID: idOf(p.PublicKey), Endpoint: addrPort(p.Endpoint),
			LastHandshake: p.LastHandshakeTime, ReceivedBytes: p.ReceiveBytes, SentBytes: p.TransmitBytes,
		})
	}
	return states, nil
}

func addrPort(a *net.UDPAddr) netip.AddrPort {
	if a == nil {
		return netip.AddrPort{}
	}
	ap := a.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

func prefixes(nets []net.IPNet) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(nets))
	for _, n := range nets {
		a, _ := netip.AddrFromSlice(n.IP)
		ones, _ := n.Mask.Size()
		out = append(out, netip.PrefixFrom(a.Unmap(), ones))
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	return out
}

func ipNets(prefixes []netip.Prefix) []net.IPNet {
	out := make([]net.IPNet, 0, len(prefixes))
	for _, p := range prefixes {
		out = append(out, net.IPNet{
			IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
		})
	}
	return out
}
