// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
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
	for _, m := range []*machine{n.gw1, n.gw2, n.gw3, n.gw4} {
		from, link := "10.7.1.0/24", "sl-vx"
		if m.cluster == "c2" {
			from, link = block.String(), "sl-c*"
		}
		m.run(t, fmt.Sprintf(`nft add table ip test
			nft add set ip test passed '{ type inet_service; size 65535; flags dynamic; }'
			nft add chain ip test passing '{ type filter hook prerouting priority -302; }'
			nft add rule ip test passing iifname '"%s"' ip saddr %s meta l4proto '{ tcp, udp }' \
				add @passed '{ th sport }'`, link, from))
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
	t.Run("a gateway of the client's cluster is lost", func(t *testing.T) {
		n.gatewayLost(t, n.gw1, n.gw4, n.worker1.pod, n.worker1.holder)
	})
	t.Run("a gateway of the server's cluster is lost", func(t *testing.T) {
		n.gatewayLost(t, n.gw2, n.gw3, n.worker1.pod, n.worker1.holder, n.gw1.pod, n.gw1.holder)
	})
}

// gatewayLost takes a gateway off the underlay while connections pass by it and by the one that stays.
// What has begun without it, or goes on, stays where it is when the gateway is back, and when the worker's agent is
// another one: of the flows from some pods and hosts none moves.
func (n *twins) gatewayLost(t *testing.T, lost, stays *machine, from ...*exec.Cmd) {
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
	old := n.hold(t, from)
	routes := func() (all string) {
		for _, m := range n.all() {
			all += m.run(t, "ip route show table 5100")
		}
		return all
	}
	before := routes()
	n.run(t, "ip link set "+lost.name+" down")
	start := time.Now()
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
		err := asks(c)
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
	held := old.answered()
	t.Logf("%d of %d flows go on", len(held), len(old))
	maps.Copy(held, n.hold(t, from))
	held.goOnBy(t, stays, lost)
	n.run(t, "ip link set "+lost.name+" up")
	// While routes change a connection that begins may take another gateway than it began with.
	eventually(t, time.Minute, "traffic by all gateways again", func() bool { return routes() == before })
	held.goOnBy(t, stays, lost)
	n.worker1.stop(t, syscall.SIGKILL)
	n.worker1.start(t)
	held.goOnBy(t, stays, lost)
	eventually(t, time.Minute, "new flows by the gateway that came back", func() bool {
		n.hold(t, from[:1])
		return len(lost.passed(t)) > 0
	})
}

// heldFlows are connections and flows of datagrams that go on, by the port that they come from.
type heldFlows map[uint16]net.Conn

// hold begins flows from pods and hosts.
func (n *twins) hold(t *testing.T, from []*exec.Cmd) heldFlows {
	t.Helper()
	held := heldFlows{}
	for _, pod := range from {
		for range 16 {
			for _, network := range []string{"tcp4", "udp4"} {
				c, err := dialFrom(t, pod, network, serviceOfTwin2+":80")
				if err != nil {
					t.Fatal(err)
				}
				if network == "tcp4" {
					if _, err := c.Read(make([]byte, 64)); err != nil {
						t.Fatal(err)
					}
				}
				held[netip.MustParseAddrPort(c.LocalAddr().String()).Port()] = c
			}
		}
	}
	return held
}

// asks sends something, and waits for an answer.
func asks(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(patience))
	_, err := c.Write([]byte("still there?"))
	if err == nil {
		_, err = c.Read(make([]byte, 64))
	}
	return err
}

// answered returns the flows that are answered: datagrams are, whichever gateway translates them.
func (h heldFlows) answered() heldFlows {
	out := maps.Clone(h)
	maps.DeleteFunc(out, func(_ uint16, c net.Conn) bool { return asks(c) != nil })
	return out
}

// goOnBy wants every flow to go on, by one gateway and not by another.
func (h heldFlows) goOnBy(t *testing.T, one, another *machine) {
	t.Helper()
	for _, m := range []*machine{one, another} {
		m.run(t, "nft flush set ip test passed")
	}
	broken := 0
	for _, c := range h {
		if asks(c) != nil {
			broken++
		}
	}
	stayed, moved := 0, 0
	by, other := one.passed(t), another.passed(t)
	for port := range h {
		if by[port] {
			stayed++
		}
		if other[port] {
			moved++
		}
	}
	t.Logf("of %d flows %d go by %s, %d by %s, %d ended", len(h), stayed, one.name, moved, another.name, broken)
	if broken > 0 || moved > 0 || stayed != len(h) {
		t.Errorf("of %d flows that %s had %d ended, %d stayed, and %d went by %s", len(h), one.name, broken, stayed, moved,
			another.name)
	}
}

// passed returns the ports that what a gateway has passed on for the first cluster came from.
func (m *machine) passed(t *testing.T) map[uint16]bool {
	t.Helper()
	var list struct {
		Objects []struct {
			Set *struct {
				Elements []uint16 `json:"elem"`
			} `json:"set"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(m.run(t, "nft --json list set ip test passed")), &list); err != nil {
		t.Fatal(err)
	}
	out := map[uint16]bool{}
	for _, o := range list.Objects {
		if o.Set != nil {
			for _, port := range o.Set.Elements {
				out[port] = true
			}
		}
	}
	return out
}

// tracksPort says whether a machine tracks a connection from a port of a pod.
func (m *machine) tracksPort(t *testing.T, port int) bool {
	t.Helper()
	entries := m.run(t, "conntrack -L -p tcp -s 10.7.1.10 2>/dev/null")
	return strings.Contains(entries, fmt.Sprintf(" sport=%d ", port))
}
