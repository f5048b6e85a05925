// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// TestThroughputOfWireGuard measures, with -throughput rounds, what one connection between pods of two gateways carries
// by the kernel's WireGuard, against a device that is wired by hand between the same pods, and that with a flowtable:
// what it has passes neither routes nor rules.
func TestThroughputOfWireGuard(t *testing.T) {
	if *rounds == 0 {
		t.Skip("it measures: say in how many rounds with -throughput")
	}
	if *wanted != "Kernel" {
		t.Skip("the kernel of this machine may have no WireGuard: TestThroughputOfTheKernelsWireGuard of e2e/vm runs this " +
			"where one has")
	}
	n := newNetwork(t)
	for _, m := range n.all() {
		m.forwardsItsPods(t)
	}
	eventually(t, 20*time.Second, "connected", func() bool { return n.gw1.pings(n.gw2.pods+".10", "") })
	n.wireGuardByHand(t)
	rates := n.ratesTo(t, n.gw2.pods+".10", byHand2+".10", byHand2+".11")
	for _, m := range []*machine{n.gw1, n.gw2} {
		if counted(t, m.command("nft list table ip hand"), "offloaded") == 0 {
			t.Errorf("nothing was handed to the flowtable of %s", m.name)
		}
	}
	ratio(t, "by Sealane, against WireGuard by hand", rates[0], rates[1])
	ratio(t, "WireGuard by hand with a flowtable, against without", rates[2], rates[1])
}

// wireGuardByHand gives the pods of both gateways two addresses each, between which a WireGuard of its own carries.
// What is for .11 passes a flowtable.
func (n *network) wireGuardByHand(t *testing.T) {
	t.Helper()
	ends := []struct {
		*machine
		net string
		key wgtypes.Key
	}{{machine: n.gw1, net: byHand1}, {machine: n.gw2, net: byHand2}}
	for i := range ends {
		var err error
		if ends[i].key, err = wgtypes.GeneratePrivateKey(); err != nil {
			t.Fatal(err)
		}
	}
	for i, own := range ends {
		peer := ends[1-i]
		own.run(t, fmt.Sprintf(`ip link add hand-wg type wireguard; ip link set hand-wg mtu 1420 up
			ip addr add %[1]s.1/24 dev cni0; ip route add %[2]s.0/24 dev hand-wg src %[1]s.1
			iptables-nft -A FORWARD -i hand-+ -j ACCEPT; iptables-nft -A FORWARD -o hand-+ -j ACCEPT
			nft -f - <<-END
				table ip hand {
					flowtable fast { hook ingress priority 0; devices = { cni0, hand-wg }; }
					chain forward { type filter hook forward priority -10;
						ip daddr { %[1]s.11, %[2]s.11 } tcp dport 7300 flow add @fast counter comment offloaded; }
				}
			END`, own.net, peer.net))
		_, all, err := net.ParseCIDR(peer.net + ".0/24")
		if err != nil {
			t.Fatal(err)
		}
		port := handPort
		inNetworkOf(t, own.holder, func() error {
			client, err := wgctrl.New()
			if err != nil {
				return err
			}
			defer func() { _ = client.Close() }()
			return client.ConfigureDevice("hand-wg", wgtypes.Config{PrivateKey: &own.key, ListenPort: &port,
				Peers: []wgtypes.PeerConfig{{PublicKey: peer.key.PublicKey(), AllowedIPs: []net.IPNet{*all},
					Endpoint: &net.UDPAddr{IP: net.ParseIP(peer.ip), Port: port}}}})
		})
		out, err := within(own.pod, fmt.Sprintf(`ip addr add %[1]s.10/24 dev eth0; ip addr add %[1]s.11/32 dev eth0
			ip route add %[2]s.10/32 via %[1]s.1 src %[1]s.10 mtu 1420
			ip route add %[2]s.11/32 via %[1]s.1 src %[1]s.11 mtu 1420`, own.net, peer.net)).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: addresses of the pod: %v\n%s", own.name, err, out)
		}
	}
}
