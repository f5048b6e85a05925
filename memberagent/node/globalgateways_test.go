// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
)

// TestTwinClustersWithTwoGateways: of two gateways in each of two clusters with the same networks each sends from its
// own share of the block, and what one has translated comes back to it. When one is lost only the connections end that
// it has translated, at once, and new ones are made.
func TestTwinClustersWithTwoGateways(t *testing.T) {
	t.Parallel()
	n := newTwins(t, podsOfTwins())
	n.gw3 = n.newMachine(t, "gw3", "c2", 5, "10.7.2", "fd07:0:0:2")
	n.gw4 = n.newMachine(t, "gw4", "c1", 6, "10.7.2", "fd07:0:0:2")
	for _, m := range n.all() {
		m.run(t, "echo 1 > /proc/sys/net/ipv4/fib_multipath_hash_policy") // connections of one pod take both gateways
	}
	n.tellTwins(t, v1alpha1.MemberActive, []string{"10.7.1.10"})
	n.gw3.startTwin(t)
	n.gw4.startTwin(t)
	for _, m := range n.all() {
		m.serve(t)
	}
	block := netip.MustParsePrefix(blocks["c1"])
	for _, m := range []*machine{n.gw2, n.gw3} {
		m.run(t, `nft add table ip test; nft add chain ip test pre '{ type filter hook prerouting priority -301; }'`)
		for slot := range 2 {
			m.run(t, fmt.Sprintf(`nft add rule ip test pre iifname sl-c%[1]d ip saddr %[2]s counter comment share%[1]d
				nft add rule ip test pre iifname sl-c%[1]d ip saddr 120.1.0.128/25 ip saddr != %[2]s counter comment foreign`,
				slot, globalnet.Share(block, slot)))
		}
	}
	eventually(t, time.Minute, "both gateways carry", func() bool {
		for range 20 {
			if _, _, err := ask(t, n.worker1.pod, "tcp4", serviceOfTwin2+":80"); err != nil {
				return false
			}
		}
		return n.gw2.counted(t, "share0")+n.gw3.counted(t, "share0") > 0 &&
			n.gw2.counted(t, "share1")+n.gw3.counted(t, "share1") > 0
	})
	for _, network := range []string{"tcp4", "udp4"} {
		for range 60 {
			for _, to := range []string{serviceOfTwin2 + ":80", "120.2.0.20:8080", "120.2.0.21:8080"} {
				if _, _, err := ask(t, n.worker1.pod, network, to); err != nil {
					t.Errorf("%s to %s: %v", network, to, err)
				}
			}
		}
	}
	for _, m := range []*machine{n.gw2, n.gw3} {
		if foreign := m.counted(t, "foreign"); foreign != 0 {
			t.Errorf("%s: %d packets of one gateway come from the other's share", m.name, foreign)
		}
	}
	t.Run("a gateway of the client's cluster is lost", func(t *testing.T) { n.gatewayLost(t, n.gw1, n.gw4) })
	t.Run("a gateway of the server's cluster is lost", func(t *testing.T) { n.gatewayLost(t, n.gw2, n.gw3) })
}

// gatewayLost takes a gateway off the underlay while connections pass by it and by the one that stays.
func (n *twins) gatewayLost(t *testing.T, lost, stays *machine) {
	var flows []net.Conn
	translatedBy := map[net.Conn]*machine{}
	for range 40 {
		c, err := dialFrom(t, n.worker1.pod, "tcp4", serviceOfTwin2+":80")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		flows = append(flows, c)
	}
	for _, c := range flows {
		for _, m := range []*machine{lost, stays} {
			if m.cluster == "c1" && m.tracksPort(t, c.LocalAddr().(*net.TCPAddr).Port) {
				translatedBy[c] = m
			}
		}
	}
	routes := func() (all string) {
		for _, m := range n.all() {
			all += m.run(t, "ip route show table 5100")
		}
		return all
	}
	before := routes()
	n.run(t, "ip link set "+lost.name+" down")
	start := time.Now()
	defer func() {
		n.run(t, "ip link set "+lost.name+" up")
		// While routes change a connection may take another gateway than it began with.
		eventually(t, time.Minute, "traffic by all gateways again", func() bool { return routes() == before })
	}()
	eventually(t, 3*time.Second, "new connections", func() bool {
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
	ended := 0
	for _, c := range flows {
		_ = c.SetDeadline(time.Now().Add(patience))
		_, err := c.Write([]byte("still there?"))
		if err == nil {
			_, err = c.Read(make([]byte, 64))
		}
		if err != nil {
			ended++
			if strings.Contains(err.Error(), "timeout") {
				t.Errorf("a connection hangs: %v", err)
			}
		}
		if m := translatedBy[c]; m == stays && err != nil {
			t.Errorf("a connection that %s translated ended: %v", stays.name, err)
		} else if m == lost && err == nil {
			t.Errorf("a connection that %s translated goes on: how?", lost.name)
		}
	}
	if ended == 0 || ended == len(flows) {
		t.Errorf("%d of %d connections ended", ended, len(flows))
	}
	t.Logf("%d of %d connections ended", ended, len(flows))
}

// tracksPort says whether a machine tracks a connection from a port of a pod.
func (m *machine) tracksPort(t *testing.T, port int) bool {
	t.Helper()
	entries := m.run(t, "conntrack -L -p tcp -s 10.7.1.10 2>/dev/null")
	return strings.Contains(entries, fmt.Sprintf(" sport=%d ", port))
}
