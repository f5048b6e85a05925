// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// ipsecCarrier is the link by which packets of cables by IPsec get encrypted.
func ipsecCarrier() string {
	if espOfKernel() {
		return plan.KernelCarrier
	}
	return "ipsec0"
}

// TestForgedByIPsecIsDropped: a gateway whose associations are valid sends by them what is not its own to send, and
// others send, past IPsec, what would come out of it. What the peer sends from its own networks arrives, and nothing
// else, which is counted.
func TestForgedByIPsecIsDropped(t *testing.T) {
	t.Parallel()
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{"c1": byIPsec, "c2": byIPsec}, func(n *network) {
		// Behind the same cable of gw1 as c2, whose link lets pass what is from either.
		n.others = []v1alpha1.RemoteCluster{{Name: "c3", Cable: byIPsec,
			Networks: v1alpha1.Networks{PodCIDRs: []string{"10.7.0.0/16"}}, Endpoints: []v1alpha1.Endpoint{{Gateway: "gw9",
				MTU: 1330, PublicKey: key.PublicKey().String()}}}}
	})
	n.withDefaultRoute(t)
	n.sendBy(t, "sl-ci0", byIPsec)
	own, peer := plan.IPsecVTEP(plan.PeerID(n.gw2.peer(t))), plan.IPsecVTEP(plan.PeerID(n.gw1.peer(t)))
	n.run(t, "ip -6 route add "+own.String()+" via "+n.gw1.ip6)
	for _, m := range n.all() {
		m.run(t, `for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done`)
	}
	const watch = `nft add table inet test; nft add chain inet test pre '{ type filter hook prerouting priority -299; }'
		nft add rule inet test pre udp dport 7777 counter comment forged`
	if out, err := within(n.gw1.pod, watch).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	arrived := func() int { return counted(t, within(n.gw1.pod, "nft list table inet test"), "forged") }
	const vni = 5110
	mac := netfacts.IPsecMAC(own)
	from := func(source string) []byte {
		return vxlanTo(mac[:], vni, unix.ETH_P_IP, udp4(source, "10.8.0.10", 7777, nil))
	}
	from6 := func(source string) []byte {
		return vxlanTo(mac[:], vni, unix.ETH_P_IPV6, udp6(source, "fd08::10", 7777, nil))
	}
	send := func(frame []byte) func() error { return sendUDP(net.JoinHostPort(own.String(), "4535"), frame) }
	arrives := func(what string, from *exec.Cmd, send func() error) {
		t.Run(what, func(t *testing.T) {
			before := arrived()
			inNetworkOf(t, from, send)
			eventually(t, 5*time.Second, "arrives", func() bool { return arrived() > before })
		})
	}
	const orThisCouldNotFail = " it arrives, or these tests could not fail"
	arrives("from the peer"+orThisCouldNotFail, n.gw2.holder, send(from(podOfC2)))
	arrives("from the peer, IPv6,"+orThisCouldNotFail, n.gw2.holder, send(from6(podOfC26)))

	other, tagged := from(podOfC2), vxlanTo(mac[:], vni, unix.ETH_P_8021Q,
		append([]byte{0, 1, 0x08, 0}, udp4(podOfC2, "10.8.0.10", 7777, nil)...))
	other[6]++ // the VNI
	inIPsec := `iifname "` + ipsecCarrier() + `" counter`
	const inClear, unused = "udp dport 4535 fib daddr type local counter", "udp dport 4536 fib daddr type local counter"
	forged := send(from("10.7.0.10"))
	past := sendRaw(udp6(peer.String(), own.String(), 4535, from(podOfC2)))
	for _, c := range []struct {
		name   string
		from   *exec.Cmd
		send   func() error
		on     *machine
		family family
		rule   string
	}{
		{"with a source of another cluster's", n.gw2.holder, forged, n.gw1, ofIPv6, inIPsec},
		{"with a source of the receiver's", n.gw2.holder, send(from("10.8.1.10")), n.gw1, ofIPv6, inIPsec},
		{"with a source of the receiver's, IPv6", n.gw2.holder, send(from6("fd08:0:0:1::10")), n.gw1, ofIPv6, inIPsec},
		{"with a source of nobody's", n.gw2.holder, send(from("10.77.0.10")), n.gw1, ofIPv6, inIPsec},
		{"for the cable of another slot", n.gw2.holder, send(other), n.gw1, ofIPv6, inIPsec},
		{"with a VLAN tag", n.gw2.holder, send(tagged), n.gw1, ofIPv6, inIPsec},
		{"too short for a source", n.gw2.holder, send(from(podOfC2)[:22]), n.gw1, ofIPv6, inIPsec},
		{"to another port of the gateway", n.gw2.holder, sendByLink(ipsecCarrier(), unix.ETH_P_IPV6,
			udp6(peer.String(), own.String(), 7777, nil)), n.gw1, ofIPv6, inIPsec},
		{"from a pod of the peer", n.gw2.pod, send(from(podOfC2)), n.gw2, ofIPv6, `oifname "` + ipsecCarrier() + `" counter`},

		{"in clear, from somebody on the underlay", n.underlay, sendUDP(net.JoinHostPort(n.gw1.ip6, "4535"), from(podOfC2)),
			n.gw1, ofIPv6, inClear},
		{"in clear, from the peer", n.gw2.holder, sendUDP(net.JoinHostPort(n.gw1.ip6, "4535"), from(podOfC2)), n.gw1, ofIPv6,
			inClear},
		{"in clear, with the peer's outer address", n.underlay, past, n.gw1, ofIPv6, inClear},
		{"in clear, from a pod of the gateway", n.gw1.pod, send(from(podOfC2)), n.gw1, ofIPv6, inClear},
		{"in clear, by IPv4", n.underlay, sendUDP(net.JoinHostPort(n.gw1.ip, "4535"), from(podOfC2)), n.gw1, ofIPv4, inClear},
		{"to charon's second port", n.underlay, sendUDP(net.JoinHostPort(n.gw1.ip6, "4536"), from(podOfC2)), n.gw1, ofIPv6,
			unused},
		{"to charon's second port, by IPv4", n.underlay, sendUDP(net.JoinHostPort(n.gw1.ip, "4536"), from(podOfC2)), n.gw1,
			ofIPv4, unused},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, dropped := arrived(), c.on.droppedOf(t, c.family, c.rule)
			inNetworkOf(t, c.from, c.send)
			eventually(t, 5*time.Second, "dropped by "+c.rule, func() bool {
				return c.on.droppedOf(t, c.family, c.rule) > dropped
			})
			if got := arrived() - before; got != 0 {
				t.Errorf("%d forged packets arrived", got)
			}
		})
	}
	if !n.worker1.pings(podOfC2, "") {
		t.Error("honest traffic is lost")
	}
	n.gw1.stop(t, syscall.SIGKILL) // it would mend the chain
	n.gw1.run(t, "nft flush chain ip6 sealane guard")
	arrives("from another cluster, without the guard,"+orThisCouldNotFail, n.gw2.holder, forged)
	arrives("in clear, without the guard,"+orThisCouldNotFail, n.underlay, past)
}
