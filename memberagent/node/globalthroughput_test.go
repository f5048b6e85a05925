// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/node"
)

// podOfTwin2 is the global address of the pod of worker2.
const podOfTwin2 = "120.2.0.21"

// TestGlobalThroughput measures, with -throughput rounds, what one gateway in each cluster lets through that translates
// to and from global addresses, a few of them or 10,000, against the same network without translation; and how many
// connections it tracks of 24,000 flows at once. All three networks are there all the time and take turns.
func TestGlobalThroughput(t *testing.T) {
	if *rounds == 0 {
		t.Skip("it measures: say in how many rounds with -throughput")
	}
	plain := newNetwork(t)
	plain.worker2 = plain.newMachine(t, "worker2", "c2", 6, "10.9.2", "fd09:0:0:2")
	plain.tell(t, v1alpha1.MemberActive)
	plain.worker2.start(t)
	for _, m := range plain.all() {
		m.forwardsItsPods(t)
		m.run(t, "iptables-nft -I FORWARD -m conntrack --ctstate INVALID -j DROP")
	}
	few, many := newTwins(t, podsOfTwins()), newTwins(t, podsOfTwins())
	many.haveMany(t)
	eventually(t, time.Minute, "all networks carry", func() bool {
		return plain.worker1.pings(plain.worker2.pods+".10", "") && few.worker1.pings(podOfTwin2, "") &&
			many.worker1.pings(podOfTwin2, "")
	})
	for _, connections := range []int{1, 4} {
		rates := inTurns(
			func() float64 { return plain.transfer(t, plain.freshPorts(connections)...).rate() },
			func() float64 { return few.transferTo(t, podOfTwin2, few.freshPorts(connections)...).rate() },
			func() float64 { return many.transferTo(t, podOfTwin2, many.freshPorts(connections)...).rate() })
		const least = 0.97
		for _, c := range []struct {
			what string
			a, b []float64
		}{
			{"few addresses, against no translation", rates[1], rates[0]},
			{"10,000 addresses, against no translation", rates[2], rates[0]},
			{"10,000 addresses, against few", rates[2], rates[1]},
		} {
			if got := ratio(t, fmt.Sprintf("%d connections, %s", connections, c.what), c.a, c.b); got < least {
				t.Errorf("%d connections, %s: %.2f times as much, want %.2f", connections, c.what, got, least)
			}
		}
	}

	const flows = 24000
	for what, of := range map[string]*network{plain.worker2.pods + ".10": plain, podOfTwin2: many.network} {
		of.worker2.run(t, `nft add table ip test; nft add chain ip test pass '{ type filter hook forward priority 300; }'
			nft add rule ip test pass udp dport 7200 counter comment arrived`)
		of.openTo(t, what, flows)
		arrived := func() int { return counted(t, of.worker2.command("nft list table ip test"), "arrived") }
		eventually(t, 20*time.Second, "most flows arrive", func() bool { return arrived() > flows*9/10 })
		t.Logf("%d flows to %s: %d arrived, %d and %d entries", flows, what, arrived(), of.gw1.tracks(t), of.gw2.tracks(t))
		for _, m := range []*machine{of.gw1, of.gw2} {
			if tracked := m.tracks(t); tracked > flows*11/10 {
				t.Errorf("%s tracks %d connections of %d flows", m.name, tracked, flows)
			}
		}
	}
}

// freshPorts are new each time: a gateway may still know the last ones.
func (n *network) freshPorts(connections int) (ports []int) {
	for range connections {
		n.lastPort++
		ports = append(ports, 21000+n.lastPort)
	}
	return ports
}

// haveMany gives both clusters wider blocks, and 10,000 addresses in it to pods that are not there.
func (n *twins) haveMany(t *testing.T) {
	t.Helper()
	wide := map[string]string{"c1": "120.1.0.0/16", "c2": "120.2.0.0/16"}
	for _, m := range n.all() {
		var o node.Objects
		if err := m.read("cluster.json", &o); err != nil {
			t.Fatal(err)
		}
		o.Peering.Spec.GlobalCIDR = wide[m.cluster]
		o.Peering.Spec.RemoteClusters[0].GlobalCIDR = wide[o.Peering.Spec.RemoteClusters[0].Name]
		for i := range 10 {
			var many v1alpha1.IngressAllocation
			for j := range 1000 {
				k := 1000*i + j
				many.Pods = append(many.Pods, v1alpha1.GlobalPod{Name: fmt.Sprintf("many-%d", j),
					IP: fmt.Sprintf("10.7.%d.%d", 64+k/250, k%250+1), GlobalIP: fmt.Sprintf("%s.%d.%d", wide[m.cluster][:5], 64+k/250,
						k%250+1)})
			}
			o.GlobalAllocations = append(o.GlobalAllocations, ingressOf(fmt.Sprintf("many-%d", i), many))
		}
		if err := m.write("cluster.json", o); err != nil {
			t.Fatal(err)
		}
		_ = m.agent.Process.Signal(syscall.SIGHUP)
	}
	for _, m := range []*machine{n.gw1, n.gw2} {
		last := fmt.Sprintf("%s.103.250", wide[m.cluster][:5])
		eventually(t, time.Minute, m.name+" translates to "+last, func() bool {
			return m.command("nft get element ip sealane globalpods '{ "+last+" }'").Run() == nil
		})
	}
	eventually(t, time.Minute, "they carry", func() bool { return n.worker1.pings(podOfTwin2, "") })
}
