// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestTwinClustersByVXLAN: two clusters that know each other by global addresses reach each other's services by VXLAN,
// in packets of every size, and connections outlive the change to it and back.
func TestTwinClustersByVXLAN(t *testing.T) {
	t.Parallel()
	n := newTwins(t, nil)
	for _, m := range n.all() {
		m.serve(t)
	}
	n.cables = map[string]v1alpha1.CableDriver{}
	sends := func(cable v1alpha1.CableDriver, link string) {
		t.Helper()
		n.cables = map[string]v1alpha1.CableDriver{"c1": cable, "c2": cable}
		n.tellTwins(t, v1alpha1.MemberActive, []string{"10.7.0.10", "10.7.1.10"})
		for m, to := range map[*machine]string{n.gw1: blocks["c2"], n.gw2: blocks["c1"]} {
			eventually(t, 20*time.Second, m.name+" sends by "+link, func() bool { return m.carries(to, link) })
		}
	}
	sends("", "sl-c0")
	for _, m := range []*machine{n.worker1, n.worker2} {
		to := map[string]string{"c1": serviceOfTwin2, "c2": serviceOfTwin1}[m.cluster]
		eventually(t, 20*time.Second, "an answer to "+m.name, func() bool {
			_, _, err := ask(t, m.pod, "tcp4", to+":80")
			return err == nil
		})
	}
	for _, f := range []family{ofIPv4, ofIPv6} {
		held := n.hold(t, f, f.port(serviceOfTwin2, "80"), []*exec.Cmd{n.worker1.pod, n.gw1.pod})
		for _, c := range []struct {
			cable v1alpha1.CableDriver
			link  string
		}{{byVXLAN, "sl-cv0"}, {v1alpha1.CableWireGuard, "sl-c0"}} {
			sends(c.cable, c.link)
			if answered := held.answered(); len(answered) != len(held) {
				t.Errorf("%s: %d of %d connections outlive the change to %s", f, len(answered), len(held), c.cable)
			}
		}
	}
	sends(byVXLAN, "sl-cv0")
	for _, m := range []*machine{n.gw1, n.gw2} {
		m.run(t, fmt.Sprintf(`nft add table ip test
			nft add chain ip test pre '{ type filter hook prerouting priority -301; }'
			nft add rule ip test pre iifname sl-cv0 counter comment seen
			nft add rule ip test pre iifname sl-cv0 ip saddr != 120.0.0.0/8 counter comment shown
			nft add rule ip test pre iifname sl-cv0 ip daddr != %s counter comment shown`, blocks[m.cluster]))
	}
	t.Run("from everywhere, to both backends", n.fromEverywhere)
	t.Run("errors reach the real sender", n.errors)
	t.Run("a large transfer", func(t *testing.T) { n.echoes(t, serviceOfTwin2+":80") })
	t.Run("large datagrams", func(t *testing.T) { n.largeDatagrams(t, ofIPv4) })
	for _, m := range []*machine{n.gw1, n.gw2} {
		if seen, shown := m.counted(t, "seen"), m.counted(t, "shown"); seen == 0 || shown != 0 {
			t.Errorf("%s: %d of %d packets came with an address that is not global", m.name, shown, seen)
		}
	}
}
