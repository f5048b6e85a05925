// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestSourceCheckOfTheUnderlay: over a network that drops whatever is not from and to the very address of a node, as
// clouds do unless their check of sources and destinations is turned off, pods of workers and gateways reach each
// other by every kind of cable, and nothing is dropped.
func TestSourceCheckOfTheUnderlay(t *testing.T) {
	t.Parallel()
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{})
	var rules strings.Builder
	for _, m := range n.all() {
		for direction, end := range map[string]string{"iifname": "saddr", "oifname": "daddr"} {
			fmt.Fprintf(&rules, "%s %s ip %s != %s counter drop\n", direction, m.name, end, m.ip)
			fmt.Fprintf(&rules, "%s %s ip6 %s != { %s, fe80::/10, ff02::/16, :: } counter drop\n", direction, m.name, end, m.ip6)
		}
	}
	n.run(t, fmt.Sprintf(`nft -f - <<EOF
table bridge cloud {
	chain forward {
		type filter hook forward priority 0
		%s
	}
}
EOF`, rules.String()))
	for _, by := range []struct {
		cable v1alpha1.CableDriver
		link  string
	}{{v1alpha1.CableWireGuard, "sl-c0"}, {byVXLAN, "sl-cv0"}, {byIPsec, "sl-ci0"}} {
		n.reachBy(t, by.cable, "c1", "c2")
		n.sendBy(t, by.link, by.cable)
		eventually(t, 20*time.Second, "pods reach each other by "+by.link, func() bool {
			return n.worker1.pings(n.gw2.pods+".10", "") && n.gw2.pings(n.worker1.pods+".10", "") &&
				n.gw1.pings(n.worker2.pods+".10", "") && n.worker2.pings(n.gw1.pods+".10", "")
		})
	}
	dropped := func() bool {
		return n.command("nft list table bridge cloud | grep counter | grep -qv 'packets 0 '").Run() == nil
	}
	if dropped() {
		out, err := n.command("nft list table bridge cloud").CombinedOutput()
		t.Errorf("the network dropped what is not from and to a node: %v\n%s", err, out)
	}
	n.gw1.run(t, "ip addr add 192.0.2.99/32 dev lo; ping -c 1 -W 1 -I 192.0.2.99 "+n.gw2.ip+" || true")
	if !dropped() {
		t.Error("the network does not check sources: this shows nothing")
	}
}
