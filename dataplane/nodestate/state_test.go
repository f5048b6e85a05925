// SPDX-License-Identifier: Apache-2.0

package nodestate_test

import (
	"bytes"
	"errors"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/sealane-io/sealane/dataplane/nodestate"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m, nil) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestTheStateIsWrittenWithoutKeys: a link with addresses and neighbours, a rule, routes, our table, and WireGuard's
// device, where this kernel has one, with neither its private key nor one that it shares with a peer.
func TestTheStateIsWrittenWithoutKeys(t *testing.T) {
	link := &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: plan.OverlayLink, MTU: 1400}, VxlanId: plan.VNI, Port: 4800}
	must(t, netlink.LinkAdd(link))
	must(t, netlink.LinkSetUp(link))
	_, network, err := net.ParseCIDR("10.9.0.0/16")
	must(t, err)
	address, err := netlink.ParseAddr("10.1.2.3/24")
	must(t, err)
	must(t, netlink.AddrAdd(link, address))
	must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Index, Dst: network, Table: plan.OutboundTable, Priority: 77,
		Gw: net.ParseIP("10.1.2.9"), MTU: 1300}))
	rule := netlink.NewRule()
	rule.Table, rule.Priority = plan.OutboundTable, plan.OutboundPriority
	must(t, netlink.RuleAdd(rule))
	const table = "add table ip sealane; add chain ip sealane gathered"
	out, err := exec.CommandContext(t.Context(), "nft", table).CombinedOutput()
	if err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	want := []string{": sl-vx type vxlan mtu 1400", "    10.1.2.3/24",
		"table 5100 type 1 10.9.0.0/16 via 10.1.2.9 dev sl-vx mtu 1300 metric 77", "ip rule 105: from all to all table 5100",
		"== nft list table ip sealane\ntable ip sealane {\n", "chain gathered", "ipv4/ip_forward ",
		"== nft list table ip6 sealane\n\n(not read: exit status 1: Error: No such file or directory",
		"== iptables -w 1 -v -S FORWARD\n"}
	private, shared, peer := newKey(t), newKey(t), newKey(t)
	cable := &netlink.Wireguard{LinkAttrs: netlink.LinkAttrs{Name: plan.CablePrefix + "0"}}
	if err := netlink.LinkAdd(cable); err == nil {
		client, err := wgctrl.New()
		must(t, err)
		public := peer.PublicKey()
		must(t, client.ConfigureDevice(cable.Name, wgtypes.Config{PrivateKey: &private, Peers: []wgtypes.PeerConfig{{
			PublicKey: public, PresharedKey: &shared, AllowedIPs: []net.IPNet{*network}}}}))
		must(t, client.Close())
		want = append(want, "public key "+private.PublicKey().String(), "peer "+public.String(), "allowed 10.9.0.0/16")
	} else if !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Fatal(err)
	}
	var got bytes.Buffer
	must(t, nodestate.Write(t.Context(), &got, "/proc/sys/net"))
	for _, text := range want {
		if !strings.Contains(got.String(), text) {
			t.Errorf("no %q", text)
		}
	}
	for _, key := range []wgtypes.Key{private, shared} {
		if strings.Contains(got.String(), key.String()) {
			t.Errorf("%s is in it", key)
		}
	}
	t.Log(got.String())
}

func newKey(t *testing.T) wgtypes.Key {
	t.Helper()
	key, err := wgtypes.GeneratePrivateKey()
	must(t, err)
	return key
}
