// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"
)

// TestPodsOfOneBridge reach each other, and the other cluster reaches them, on a worker and on a gateway. Where
// br_netfilter is loaded, what they send each other passes the rules of the node, which is counted, and a Service leads
// to a pod of the same bridge: what that answers is translated.
func TestPodsOfOneBridge(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.gw2.forwardsItsPods(t)
	n.gw2.serve(t)
	for _, m := range []*machine{n.worker1, n.gw1} {
		m.forwardsItsPods(t)
		second := *m
		second.pod = namespace(t)
		m.run(t, fmt.Sprintf("ip link add pod1 type veth peer name eth0 netns %d; ip link set pod1 master cni0 up",
			second.pod.Process.Pid))
		if out, err := within(second.pod, fmt.Sprintf(`ip link set lo up; ip link set eth0 up
			ip addr add %[1]s.11/24 dev eth0; ip addr add %[2]s::11/64 dev eth0 nodad
			ip route add default via %[1]s.1; ip -6 route add default via %[2]s::1`, m.pods,
			m.pods6)).CombinedOutput(); err != nil {
			t.Fatalf("set up the second pod of %s: %v\n%s", m.name, err, out)
		}
		second.serve(t)
		m.run(t, `nft add table inet bridged
			nft add chain inet bridged forward '{ type filter hook forward priority 0; }'
			nft add rule inet bridged forward iifname cni0 oifname cni0 counter comment passed`)
		first, other := m.pods+".10", m.pods+".11"
		for _, to := range []string{other, "10.9.0.10"} {
			eventually(t, 20*time.Second, "a pod of "+m.name+" reaches "+to, func() bool {
				return within(m.pod, "ping -c1 -W1 "+to).Run() == nil
			})
		}
		if out, err := within(m.pod, "ping -c1 -W5 "+m.pods6+"::11").CombinedOutput(); err != nil {
			t.Errorf("the pods of %s by IPv6: %v\n%s", m.name, err, out)
		}
		passed := func() int { return counted(t, m.command("nft list table inet bridged"), "passed") }
		filtered := true
		if _, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables"); errors.Is(err, fs.ErrNotExist) {
			filtered = false
		}
		if got := passed(); (got > 0) != filtered {
			t.Errorf("%s: %d packets between pods passed its rules, and br_netfilter is there: %v", m.name, got, filtered)
		}
		for _, network := range []string{"udp4", "tcp4"} {
			n.asked(t, m, network, other, m.name, first)
			n.asked(t, n.gw2, network, other, m.name, "10.9.0.10")
		}
		if !filtered {
			continue
		}
		m.run(t, `for p in tcp udp; do
			iptables-nft -t nat -A PREROUTING -d 10.96.0.80 -p $p --dport 8080 -j DNAT --to-destination `+other+`:8080
		done`)
		for _, network := range []string{"udp4", "tcp4"} {
			n.asked(t, m, network, "10.96.0.80", m.name, first)
		}
	}
}
