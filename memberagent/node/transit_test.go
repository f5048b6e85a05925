// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// tracks returns how many connections a machine tracks.
func (m *machine) tracks(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(m.run(t, "cat /proc/sys/net/netfilter/nf_conntrack_count")))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// open starts flows between pods of the workers, a datagram each.
func (n *network) open(t *testing.T, flows int) {
	t.Helper()
	n.openTo(t, n.worker2.pods+".10", flows)
}

// openTo does the same by an address that leads to the pod of worker2.
func (n *network) openTo(t *testing.T, address string, flows int) {
	t.Helper()
	const firstPort = 20000
	inNetworkOf(t, n.worker1.pod, func() error {
		to := &net.UDPAddr{IP: net.ParseIP(address), Port: 7200}
		for i := range flows {
			c, err := net.DialUDP("udp4", &net.UDPAddr{Port: firstPort + i}, to)
			if err != nil {
				return err
			}
			_, err = c.Write([]byte("hello"))
			_ = c.Close()
			if err != nil {
				return err
			}
			if i%200 == 0 {
				time.Sleep(5 * time.Millisecond) // for queues on the way
			}
		}
		return nil
	})
}

// TestTransitTakesNoEntries of the connection tracking of several gateways, while the only one of a cluster has one
// for each connection.
func TestTransitTakesNoEntries(t *testing.T) {
	t.Parallel()
	const flows = 10000
	t.Run("one gateway", func(t *testing.T) {
		n := newNetwork(t)
		n.worker2 = n.newMachine(t, "worker2", "c2", 6, "10.9.2", "fd09:0:0:2")
		n.tell(t, v1alpha1.MemberActive)
		n.worker2.start(t)
		to := n.worker2.pods + ".10"
		eventually(t, time.Minute, "traffic", func() bool { return n.worker1.pings(to, "") })
		n.open(t, flows)
		eventually(t, 10*time.Second, "most flows are tracked", func() bool { return n.gw1.tracks(t) > flows*9/10 })
		t.Logf("%d flows: %d and %d entries", flows, n.gw1.tracks(t), n.gw2.tracks(t))
	})
	t.Run("two gateways", func(t *testing.T) {
		n := highlyAvailable(t)
		to := n.worker2.pods + ".10"
		eventually(t, time.Minute, "traffic", func() bool { return n.worker1.pings(to, "") })
		n.worker2.run(t, `nft add table ip test; nft add chain ip test pass '{ type filter hook forward priority 300; }'
			nft add rule ip test pass udp dport 7200 counter comment arrived`)
		before := counted(t, n.worker2.command("nft list table ip test"), "arrived")
		n.open(t, flows)
		eventually(t, 10*time.Second, "most flows arrive", func() bool {
			return counted(t, n.worker2.command("nft list table ip test"), "arrived") > before+flows*9/10
		})
		for _, m := range []*machine{n.gw1, n.gw4, n.gw2, n.gw3} {
			tracked := m.tracks(t)
			t.Logf("%d flows: %d entries on %s", flows, tracked, m.name)
			if tracked > flows/100 {
				t.Errorf("%s tracks %d connections of %d that it passes on", m.name, tracked, flows)
			}
		}
	})
}
