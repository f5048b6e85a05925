// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// dropsMesh has a machine drop, and count, what comes to its mesh from another.
func (m *machine) dropsMesh(t *testing.T, from *machine) {
	t.Helper()
	m.run(t, fmt.Sprintf(`nft add table inet dropped
		nft add chain inet dropped pre '{ type filter hook prerouting priority raw; }'
		nft add rule inet dropped pre udp dport 4532 ip saddr %s counter drop comment dropped
		nft add rule inet dropped pre udp dport 4532 ip6 saddr %s counter drop comment dropped`, from.ip, from.ip6))
}

// TestANodeThatDoesNotAnswerRests: two nodes that do not reach each other stop trying after a while, the others go on;
// when the path is there, they find each other by themselves.
func TestANodeThatDoesNotAnswerRests(t *testing.T) {
	t.Parallel()
	n := meshedNetwork(t)
	pair := []*machine{n.worker1, n.worker2}
	arrived := func() int {
		return counted(t, n.worker1.command("nft list table inet dropped"), "dropped") +
			counted(t, n.worker2.command("nft list table inet dropped"), "dropped")
	}
	n.worker1.dropsMesh(t, n.worker2)
	n.worker2.dropsMesh(t, n.worker1)
	eventually(t, 5*time.Second, "by gateways", func() bool {
		return !n.worker1.straightTo(n.worker2) && !n.worker2.straightTo(n.worker1)
	})
	// WireGuard by itself would start a handshake every 5 s.
	const still = 11 * time.Second
	last, since := arrived(), time.Now()
	if last == 0 {
		t.Fatal("nothing is dropped")
	}
	eventually(t, 2*time.Minute, "the two let each other alone", func() bool {
		if now := arrived(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > still
	})
	if !n.worker1.straightTo(n.gw2) || !n.gw1.straightTo(n.worker2) {
		t.Error("other pairs do not go straight any more")
	}
	for _, m := range pair {
		m.run(t, "nft delete table inet dropped")
	}
	eventually(t, 2*time.Minute, "the two have found each other", func() bool {
		return n.worker1.straightTo(n.worker2) && n.worker2.straightTo(n.worker1)
	})
}

// TestMeshOverIPv6: the nodes have IPv6 addresses alone.
func TestMeshOverIPv6(t *testing.T) {
	t.Parallel()
	n := meshedNetwork(t)
	before := map[*machine]string{}
	for _, m := range n.all() {
		before[m], m.ip = m.ip, m.ip6
	}
	n.tell(t, "Active")
	for _, m := range n.all() {
		m.run(t, fmt.Sprintf("ip addr del %s/24 dev eth0", before[m]))
	}
	n.worker1.stop(t, syscall.SIGKILL)
	eventually(t, 10*time.Second, "the others miss worker1", func() bool { return !n.worker2.straightTo(n.worker1) })
	n.worker1.start(t)
	n.settledMesh(t)
	for _, from := range []*machine{n.worker1, n.gw1} {
		for _, to := range []string{n.worker2.pods + ".10", n.worker2.pods6 + "::10"} {
			eventually(t, 5*time.Second, to, func() bool {
				return within(from.pod, "ping -c1 -W1 -s 20000 "+to).Run() == nil
			})
		}
	}
}
