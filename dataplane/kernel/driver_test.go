// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"bytes"
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
)

// bridges is a driver whose cables are bridges, and whose peers are a list.
type bridges map[string]*plan.Tunnel

func (d bridges) Owns(l netlink.Link) bool { return l.Type() == "bridge" && d[l.Attrs().Name] != nil }

func (d bridges) Create(link string, mtu int) error {
	d[link] = &plan.Tunnel{Link: link}
	return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: link, MTU: mtu}})
}

func (d bridges) Delete(link string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	delete(d, link)
	return netlink.LinkDel(l)
}

func (d bridges) Observe(link string) (plan.Tunnel, error) {
	t := *d[link]
	t.Peers = slices.Clone(t.Peers)
	slices.SortFunc(t.Peers, func(a, b plan.Peer) int { return cmp.Compare(a.ID, b.ID) })
	return t, nil
}

func (d bridges) Set(t plan.Tunnel) error {
	d[t.Link].ListenPort, d[t.Link].ID = t.ListenPort, t.ID
	return nil
}

func (d bridges) SetPeer(p plan.TunnelPeer, _ bool) error {
	if err := d.RemovePeer(p.Link, p.ID); err != nil {
		return err
	}
	d[p.Link].Peers = append(d[p.Link].Peers, p.Peer)
	return nil
}

func (d bridges) RemovePeer(link string, id plan.PeerID) error {
	d[link].Peers = slices.DeleteFunc(d[link].Peers, func(p plan.Peer) bool { return p.ID == id })
	return nil
}

func (d bridges) Peers(string) ([]kernel.PeerState, error) { return nil, nil }

func (d bridges) Redial(string, plan.PeerID, netip.AddrPort) error { return errors.New("not here") }

func (d bridges) Implementation() v1alpha1.CableImplementation { return v1alpha1.CableKernel }

// The plan names the driver of a cable; with another one the same node goes there and back.
func TestDriversTakeTurns(t *testing.T) {
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	wireGuard, err := cable.OpenWireGuard(cable.OneKey(key), cable.NewHolder(testr.New(t)))
	if err != nil {
		t.Fatal(err)
	}
	k := openDrivers(t, map[string]kernel.Driver{
		string(v1alpha1.CableWireGuard): wireGuard, "bridge": bridges{},
	}, wireGuard.Close)
	node := goldens(t, idOf(key))["spine.txtar/a-gw"]
	node.become(t)
	other := node.plan
	other.Links = slices.Clone(other.Links)
	cables := 0
	for i, l := range other.Links {
		if l.Kind == plan.Cable {
			other.Links[i].Driver = "bridge"
			cables++
		}
	}
	for _, want := range []plan.Plan{node.plan, other, node.plan, other} {
		reach(t, k, want)
	}
	if have := strings.Count(run(t, "ip -o link show type bridge"), plan.LinkPrefix); have != cables || cables == 0 {
		t.Errorf("%d of %d cables are the driver's", have, cables)
	}
}

// A peer that no plan has is seen by its ID, whatever a driver's IDs are, and removed.
func TestAPeerThatNoPlanHasIsRemoved(t *testing.T) {
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	wireGuard, err := cable.OpenWireGuard(cable.OneKey(key), cable.NewHolder(testr.New(t)))
	if err != nil {
		t.Fatal(err)
	}
	drivers := map[string]kernel.Driver{string(v1alpha1.CableWireGuard): wireGuard, "bridge": bridges{}}
	k := openDrivers(t, drivers, wireGuard.Close)
	node := goldens(t, idOf(key))["spine.txtar/a-gw"]
	node.become(t)
	for name, unknown := range map[string]plan.PeerID{
		string(v1alpha1.CableWireGuard): plan.PeerID(bytes.Repeat([]byte{7}, wgtypes.KeyLen)), "bridge": "a loft, by the sea",
	} {
		t.Run(name, func(t *testing.T) {
			want := node.plan
			want.Links = slices.Clone(want.Links)
			for i, l := range want.Links {
				if l.Kind == plan.Cable {
					want.Links[i].Driver = name
				}
			}
			reach(t, k, want)
			added := plan.TunnelPeer{Link: plan.CableLink(0), Peer: plan.Peer{ID: unknown}}
			if err := drivers[name].SetPeer(added, true); err != nil {
				t.Fatal(err)
			}
			have, err := k.Observe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			changes := plan.Diff(want, have)
			if len(changes) != 1 || changes[0].Op != plan.Delete || changes[0].Element.(plan.TunnelPeer).ID != unknown {
				t.Errorf("changes %v, want the unknown peer deleted", changes)
			}
			reach(t, k, want)
		})
	}
}

// What is no public key is no peer of WireGuard.
func TestAnIDOfAnotherDriverIsRefused(t *testing.T) {
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	c, err := cable.OpenWireGuard(cable.OneKey(key), cable.NewHolder(testr.New(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	const id = plan.PeerID("c2/gw")
	for what, err := range map[string]error{
		"set":    c.SetPeer(plan.TunnelPeer{Link: "sl-c0", Peer: plan.Peer{ID: id}}, true),
		"redial": c.Redial("sl-c0", id, netip.MustParseAddrPort("192.0.2.1:4500")),
		"remove": c.RemovePeer("sl-c0", id),
	} {
		if err == nil || !strings.Contains(err.Error(), id.String()) || !strings.Contains(err.Error(), "32 bytes") {
			t.Errorf("%s: error %v says neither which ID nor what it should be", what, err)
		}
	}
}

// A driver that is unknown makes no link, and no other driver makes it instead.
func TestUnknownDriverIsRefused(t *testing.T) {
	k, _ := open(t)
	if _, err := k.Driver("pigeon"); err == nil || !strings.Contains(err.Error(), `"pigeon"`) ||
		!strings.Contains(err.Error(), "wireguard") {
		t.Errorf("error %v names neither the driver nor those there are", err)
	}
	link := plan.Link{Name: plan.CableLink(0), Kind: plan.Cable, Driver: "pigeon", MTU: 1420, RPFilter: 2}
	if err := k.Do(t.Context(), []plan.Change{{Op: plan.Add, Kind: plan.KindLink, Element: link}}); err == nil {
		t.Error("a cable of an unknown driver is made")
	}
	if have, err := k.Observe(t.Context()); err != nil || len(have.Links) > 0 {
		t.Errorf("links %v, %v", have.Links, err)
	}
}

// A cable of a former release, under another name and at the same port, makes room.
func TestAnOldNameIsCleanedUp(t *testing.T) {
	k, key := open(t)
	node := goldens(t, key)["spine.txtar/a-gw"]
	node.become(t)
	old := plan.Plan{
		Links: []plan.Link{{Name: "sl-wg0", Kind: plan.Cable, Driver: string(v1alpha1.CableWireGuard), MTU: 1420,
			RPFilter: 2}},
		Tunnels: []plan.Tunnel{{Link: "sl-wg0", ListenPort: 4500, ID: key}},
	}
	reach(t, k, old)
	// The port is free only once the old link is gone, which is last: the agent tries again.
	have, err := k.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Do(t.Context(), plan.Diff(node.plan, have)); err != nil {
		t.Log("at first:", err)
	}
	reach(t, k, node.plan)
}
