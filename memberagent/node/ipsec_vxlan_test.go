// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestCablesChangeBetweenVXLANAndIPsec under traffic, whichever end hears of it first, also by FIPS: WireGuard carries
// in between, nothing is lost, and once both have heard of IPsec nothing goes by VXLAN.
func TestCablesChangeBetweenVXLANAndIPsec(t *testing.T) {
	t.Parallel()
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{"c1": byVXLAN, "c2": byVXLAN}, func(n *network) {
		n.algorithms = map[string]v1alpha1.IPsecAlgorithms{}
	})
	n.run(t, "nft add rule bridge clear c udp dport 4533 counter comment vxlan")
	n.sendBy(t, "sl-cv0", byVXLAN)
	f := newTraffic(t, n.worker1, n.worker2)
	f.stretch.lasts(t, 500*time.Millisecond)
	f.whole(t, "by VXLAN")
	for _, c := range []struct {
		first, second *machine
		algorithms    v1alpha1.IPsecAlgorithms
	}{{n.gw1, n.gw2, usual}, {n.gw2, n.gw1, fips}} {
		heard := c.first.cluster + " hears first of "
		n.takes(t, c.algorithms, "c1", "c2")
		n.reachBy(t, byIPsec, c.first.cluster)
		eventually(t, 20*time.Second, c.first.name+" says that ipsec is silent", func() bool {
			k := c.first.tunnel()
			return k.Reason == v1alpha1.ReasonCableSilent && k.Active && k.Cable == v1alpha1.CableWireGuard
		})
		f.stretch.lasts(t, 500*time.Millisecond)
		f.whole(t, heard+"IPsec, and the other not")
		n.reachBy(t, byIPsec, c.second.cluster)
		n.sendBy(t, "sl-ci0", byIPsec)
		f.stretch.lasts(t, 500*time.Millisecond)
		f.whole(t, heard+"IPsec")
		for _, m := range n.gateways() {
			eventually(t, 20*time.Second, "no cable by VXLAN is left on "+m.name, func() bool {
				return m.command("! ip -o link | grep -q sl-cv && ! nft list ruleset | grep -q vtep").Run() == nil
			})
		}
		before := n.inClear(t)
		if before == 0 {
			t.Error("no packet of VXLAN was seen: this could not fail")
		}
		f.stretch.lasts(t, 500*time.Millisecond)
		f.whole(t, heard+"IPsec, and both have heard")
		if after := n.inClear(t); after != before {
			t.Errorf("%d packets left in clear after both ends had heard", after-before)
		}

		n.reachBy(t, byVXLAN, c.first.cluster)
		eventually(t, 20*time.Second, c.first.name+" sends by WireGuard", func() bool {
			return c.first.carries(remotePods[c.first.cluster], "sl-c0")
		})
		n.reachBy(t, byVXLAN, c.second.cluster)
		n.sendBy(t, "sl-cv0", byVXLAN)
		f.stretch.lasts(t, 500*time.Millisecond)
		f.whole(t, heard+"VXLAN")
	}
	n.sealed(t)
}
