// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
)

// TestEgressWithTwoGateways: the numbers of a range are addresses of each gateway's own share. What one has translated
// comes back to it, what is new takes the other when one is dead, and no server ever sees a pod's own address.
func TestEgressWithTwoGateways(t *testing.T) {
	t.Parallel()
	n := newTwins(t, nil)
	n.gw4 = n.newMachine(t, "gw4", "c1", 6, "10.7.2", "fd07:0:0:2")
	for _, m := range n.all() {
		m.run(t, "echo 1 > /proc/sys/net/ipv4/fib_multipath_hash_policy") // connections of one pod take both gateways
	}
	n.egress = map[string][]v1alpha1.GlobalAllocation{"c1": {egressOf("all", 5, 5, false, "10.7.0.10", "10.7.2.10"),
		egressOf("client", 6, 7, true, "10.7.1.10")}}
	n.tellAgain(t)
	n.gw4.startTwin(t)
	for _, m := range n.all() {
		m.serve(t)
	}
	n.watchShares(t)
	selected, namespace := n.ofBoth(6, 7), n.ofBoth(5, 5)
	eventually(t, time.Minute, "both gateways translate to the range", func() bool {
		seen := n.seenBy(t, n.worker1.pod, "tcp4", 20)
		return allIn(seen, selected) && len(seen) == 2
	})
	for _, network := range []string{"tcp4", "udp4"} {
		if seen := n.seenBy(t, n.worker1.pod, network, 60); !allIn(seen, selected) || len(seen) != 2 {
			t.Errorf("%s: the selected pod is seen as %v, want one address of each share of %v", network, seen, selected)
		}
		for _, m := range []*machine{n.gw1, n.gw4} {
			if seen := n.seenBy(t, m.pod, network, 20); !allIn(seen, namespace) {
				t.Errorf("%s: the pod of %s is seen as %v, want %v", network, m.name, seen, namespace)
			}
		}
	}
	n.nothingAstray(t)
	for slot := range 2 {
		if n.gw2.counted(t, fmt.Sprint("share", slot)) == 0 {
			t.Errorf("nothing came from the share of slot %d", slot)
		}
	}
	t.Run("a gateway dies", n.egressGatewayDies)
	n.nothingAstray(t)
}

// ofBoth are the addresses of a range of numbers in the shares of both gateways.
func (n *twins) ofBoth(first, last int) (out [2][2]netip.Addr) {
	for slot := range out {
		out[slot][0], out[slot][1] = globalnet.Egress(netip.MustParsePrefix(blocks["c1"]), slot, first, last)
	}
	return out
}

// watchShares counts, on the other cluster's gateway, what comes from each gateway's share; what one gateway sends from
// anything else; and what goes back to one that has not translated it. On the machines of the pods' cluster it counts
// what leaves by a cable with a pod's address, and what goes to the other cluster by no link of ours.
func (n *twins) watchShares(t *testing.T) {
	n.gw2.run(t, `nft add table ip test; nft add chain ip test pre '{ type filter hook prerouting priority -301; }'
		nft add chain ip test post '{ type filter hook postrouting priority 400; }'`)
	for slot := range 2 {
		n.gw2.run(t, fmt.Sprintf(`nft add rule ip test pre iifname sl-c%[1]d ip saddr %[2]s counter comment share%[1]d
			nft add rule ip test pre iifname sl-c%[1]d ip saddr != %[2]s counter comment foreign
			nft add rule ip test post oifname sl-c%[1]d ip daddr != %[2]s counter comment astray`,
			slot, globalnet.Share(netip.MustParsePrefix(blocks["c1"]), slot)))
	}
	for _, m := range []*machine{n.gw1, n.gw4, n.worker1} {
		m.run(t, `nft add table ip test; nft add chain ip test post '{ type filter hook postrouting priority 400; }'
			nft add rule ip test post oifname "sl-c*" ip saddr != 120.0.0.0/8 counter comment shown
			nft add rule ip test post oifname != "sl-*" ip daddr 120.0.0.0/8 counter comment clear`)
	}
}

func (n *twins) nothingAstray(t *testing.T) {
	t.Helper()
	for comment, machines := range map[string][]*machine{"foreign": {n.gw2}, "astray": {n.gw2},
		"shown": {n.gw1, n.gw4, n.worker1}, "clear": {n.gw1, n.gw4, n.worker1}} {
		for _, m := range machines {
			if count := m.counted(t, comment); count != 0 {
				t.Errorf("%s: %d packets %s", m.name, count, comment)
			}
		}
	}
}

// seenBy asks so many times and returns by which addresses the service of the other cluster sees a client.
func (n *twins) seenBy(t *testing.T, from *exec.Cmd, network string, times int) map[netip.Addr]int {
	t.Helper()
	seen := map[netip.Addr]int{}
	for range times {
		if _, client, err := ask(t, from, network, serviceOfTwin2+":80"); err == nil {
			seen[client]++
		} else {
			t.Log(err)
			seen[netip.Addr{}]++
		}
	}
	return seen
}

// allIn says whether all addresses are in one of two ranges.
func allIn(seen map[netip.Addr]int, ranges [2][2]netip.Addr) bool {
	for a := range seen {
		if shareOf(a, ranges) < 0 {
			return false
		}
	}
	return true
}

// shareOf returns the slot in whose range an address is, or -1.
func shareOf(a netip.Addr, ranges [2][2]netip.Addr) int {
	for slot, r := range ranges {
		if !a.Less(r[0]) && !r[1].Less(a) {
			return slot
		}
	}
	return -1
}

// egressGatewayDies takes the gateway of slot 1 off the underlay while connections pass by both.
func (n *twins) egressGatewayDies(t *testing.T) {
	selected := n.ofBoth(6, 7)
	flows := map[net.Conn]int{} // by the slot that translates
	for range 40 {
		c, err := dialFrom(t, n.worker1.pod, "tcp4", serviceOfTwin2+":80")
		if err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 64)
		k, err := c.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		seen := netip.MustParseAddrPort(strings.Fields(string(buffer[:k]))[1])
		flows[c] = shareOf(seen.Addr(), selected)
	}
	n.run(t, "ip link set gw4 down")
	start := time.Now()
	eventually(t, 5*time.Second, "new connections from the other's share", func() bool {
		for range 8 {
			c, err := dialFor(t, 300*time.Millisecond, n.worker1.pod, "tcp4", serviceOfTwin2+":80")
			if err != nil {
				return false
			}
			_ = c.Close()
		}
		return true
	})
	t.Logf("new connections work %s after the loss", time.Since(start))
	for _, network := range []string{"tcp4", "udp4"} {
		seen := n.seenBy(t, n.worker1.pod, network, 30)
		for a := range seen {
			if shareOf(a, selected) != 0 {
				t.Errorf("%s: seen as %v with one gateway, want its share alone: %v", network, seen, selected[0])
				break
			}
		}
	}
	kept := [2]int{}
	for c, slot := range flows {
		_ = c.SetDeadline(time.Now().Add(patience))
		_, err := c.Write([]byte("still there?"))
		if err == nil {
			_, err = c.Read(make([]byte, 64))
		}
		if slot == 0 && err != nil {
			t.Errorf("a connection that the other gateway translated ended: %v", err)
		}
		if slot == 1 && err == nil {
			t.Error("a connection that the dead gateway translated goes on: how?")
		}
		kept[slot]++
	}
	if kept[0] == 0 || kept[1] == 0 {
		t.Errorf("%v connections by slot: this shows nothing", kept)
	}
	n.run(t, "ip link set gw4 up")
	eventually(t, time.Minute, "both shares again", func() bool {
		return len(n.seenBy(t, n.worker1.pod, "tcp4", 20)) == 2
	})
}
