// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
)

// Driver makes and configures cables of one kind. A cable is a link, and peers behind it: the gateways of
// other clusters. The kernel does what all links have in common: MTU, addresses, routes, bringing it up.
// A peer is known by its ID, in which a driver keeps what it knows a peer by; a peer that is there and that no plan
// has is removed by the ID that Observe gave it. Implementations are safe for concurrent use, and wait for nothing
// outside this node.
type Driver interface {
	// Owns says whether a link is a cable of this driver that this process can configure.
	Owns(link netlink.Link) bool
	// Create makes the link of a cable, which is down, with an MTU in bytes.
	Create(link string, mtu int) error
	// Delete removes a cable; one that is gone is no error.
	Delete(link string) error
	// Observe returns how a cable is configured, with the endpoints in use.
	Observe(link string) (plan.Tunnel, error)
	// Set sets what a cable itself has, such as its port. Peers stay.
	Set(t plan.Tunnel) error
	// SetPeer adds or changes a peer. One that is there keeps the endpoint in use; a new one is dialled at its
	// first candidate.
	SetPeer(p plan.TunnelPeer, isNew bool) error
	// RemovePeer removes a peer; one that is gone, or whose cable is, is no error.
	RemovePeer(link string, id plan.PeerID) error
	// Peers returns the state of every peer of a cable.
	Peers(link string) ([]PeerState, error)
	// Redial dials a peer that is there at an endpoint. One that was never heard is dialled at once, also where it was
	// before.
	Redial(link string, id plan.PeerID, endpoint netip.AddrPort) error
	// Implementation says where packets are encrypted.
	Implementation() v1alpha1.CableImplementation
}

// PeerState is what a cable knows of a peer at one moment.
type PeerState struct {
	// Link of the cable.
	Link string
	ID   plan.PeerID
	// Endpoint in use; invalid if none is known.
	Endpoint netip.AddrPort
	// LastHandshake is when the peer last proved who it is; zero before the first time.
	LastHandshake time.Time
	// ReceivedBytes and SentBytes through the cable.
	ReceivedBytes, SentBytes int64
}

// Driver returns a driver by its name. One that this process does not have is an error, never another one:
// with another, packets would leave by a cable that nobody asked for.
func (k *Kernel) Driver(name string) (Driver, error) {
	if d, ok := k.drivers[name]; ok {
		return d, nil
	}
	return nil, fmt.Errorf("cable driver %q is unknown: there is %s", name,
		strings.Join(slices.Sorted(maps.Keys(k.drivers)), ", "))
}

// driverOf returns the name of the driver that owns a link, and the driver; none if no driver does.
func (k *Kernel) driverOf(link netlink.Link) (string, Driver) {
	for _, name := range slices.Sorted(maps.Keys(k.drivers)) {
		if d := k.drivers[name]; d.Owns(link) {
			return name, d
		}
	}
	return "", nil
}

// cable returns the driver of a cable's link that is there.
func (d *doing) cable(name string) (Driver, error) {
	link, err := d.netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	if _, driver := d.driverOf(link); driver != nil {
		return driver, nil
	}
	return nil, fmt.Errorf("no cable driver of this process owns link %s", name)
}

func (d *doing) tunnel(t plan.Tunnel, op plan.Op) error {
	if op == plan.Delete {
		return nil // with its link
	}
	driver, err := d.cable(t.Link)
	if err != nil {
		return err
	}
	return driver.Set(t)
}

func (d *doing) peer(p plan.TunnelPeer, op plan.Op) error {
	driver, err := d.cable(p.Link)
	switch {
	case op == plan.Delete && isNotFound(err):
		return nil
	case err != nil:
		return err
	case op == plan.Delete:
		return driver.RemovePeer(p.Link, p.ID)
	}
	return driver.SetPeer(p, op == plan.Add)
}
