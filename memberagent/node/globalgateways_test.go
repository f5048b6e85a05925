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
// it has translated, at once, and new ones are made. So it is in both families.
func TestTwinClustersWithTwoGateways(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]family{"IPv4": ofIPv4, "IPv6": ofIPv6} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			twoGatewaysEach(t, f)
		})
	}
}

// newTwinsOfTwo starts twins with two gateways each, whose flows take both.
func newTwinsOfTwo(t *testing.T, pods map[string][]v1alpha1.GlobalPod) *twins {
	t.Helper()
	n := newTwins(t, pods)
	n.gw3 = n.newMachine(t, "gw3", "c2", 5, "10.7.2", "fd07:0:0:2")
	n.gw4 = n.newMachine(t, "gw4", "c1", 6, "10.7.2", "fd07:0:0:2")
	for _, m := range n.all() { // connections of one pod take both gateways
		m.run(t, `for v in ipv4 ipv6; do echo 1 > /proc/sys/net/$v/fib_multipath_hash_policy; done`)
	}
	n.tellTwins(t, v1alpha1.MemberActive, []string{"10.7.1.10"})
	n.gw3.startTwin(t)
	n.gw4.startTwin(t)
	for _, m := range n.all() {
		m.serve(t)
	}
	// While routes change a connection that begins may take another gateway than it began with.
	eventually(t, time.Minute, "every node to choose between two ways, in both families", func() bool {
		others := map[string]string{"c1": "c2", "c2": "c1"}
		for _, m := range n.all() {
			ways := m.run(t, fmt.Sprintf("ip -4 route show %s table 5100; echo; ip -6 route show %s table 5100",
				blocks[others[m.cluster]], blocksIPv6[others[m.cluster]]))
			if strings.Count(ways, "nexthop") != 4 {
				return false
			}
		}
		return true
	})
	return n
}

// watchPassing notes, on all gateways, the ports that what they pass on for the first cluster comes from.
func (n *twins) watchPassing(t *testing.T, f family) {
	t.Helper()
	for _, m := range []*machine{n.gw1, n.gw2, n.gw3, n.gw4} {
		from, link := f.podsOf(n.worker1), "sl-vx"
		if m.cluster == "c2" {
			from, link = f.block("c1").String(), "sl-c*"
		}
		m.run(t, fmt.Sprintf(`nft add table %[1]s test
			nft add set %[1]s test passed '{ type inet_service; size 65535; flags dynamic; }'
			nft add chain %[1]s test passing '{ type filter hook prerouting priority -302; }'
			nft add rule %[1]s test passing iifname '"%[2]s"' %[1]s saddr %[3]s meta l4proto '{ tcp, udp }' \
				add @passed '{ th sport }'`, f, link, from))
	}
}

func twoGatewaysEach(t *testing.T, f family) {
	n := newTwinsOfTwo(t, podsOfTwins())
	block := f.block("c1")
	for _, m := range []*machine{n.gw2, n.gw3} {
		m.run(t, fmt.Sprintf(`nft add table %[1]s test
			nft add chain %[1]s test pre '{ type filter hook prerouting priority -301; }'`, f))
		for slot := range 2 {
			m.run(t, fmt.Sprintf(`nft add rule %[1]s test pre iifname sl-c%[2]d %[1]s saddr %[3]s counter comment share%[2]d
				nft add rule %[1]s test pre iifname sl-c%[2]d %[1]s saddr %[4]s %[1]s saddr != %[3]s counter comment foreign`,
				f, slot, globalnet.Share(block, slot), block))
		}
	}
	n.watchPassing(t, f)
	eventually(t, time.Minute, "both gateways carry", func() bool {
		for range 20 {
			if _, _, err := ask(t, n.worker1.pod, f.tcp(), f.port(serviceOfTwin2, "80")); err != nil {
				return false
			}
		}
		return n.gw2.countedOf(t, f, "share0")+n.gw3.countedOf(t, f, "share0") > 0 &&
			n.gw2.countedOf(t, f, "share1")+n.gw3.countedOf(t, f, "share1") > 0
	})
	for _, network := range f.networks() {
		for range 60 {
			for _, to := range []string{f.port(serviceOfTwin2, "80"), f.port("120.2.0.20", "8080"),
				f.port("120.2.0.21", "8080")} {
				if _, _, err := ask(t, n.worker1.pod, network, to); err != nil {
					t.Errorf("%s to %s: %v", network, to, err)
				}
			}
		}
	}
	t.Run("large datagrams", func(t *testing.T) { n.largeDatagrams(t, f) })
	for _, m := range []*machine{n.gw2, n.gw3} {
		if foreign := m.countedOf(t, f, "foreign"); foreign != 0 {
			t.Errorf("%s: %d packets of one gateway come from the other's share", m.name, foreign)
		}
	}
	to := f.port(serviceOfTwin2, "80")
	t.Run("a gateway of the client's cluster is lost", func(t *testing.T) {
		n.gatewayLost(t, f, to, n.gw1, n.gw4, n.worker1.pod, n.worker1.holder)
	})
	t.Run("a gateway of the server's cluster is lost", func(t *testing.T) {
		n.gatewayLost(t, f, to, n.gw2, n.gw3, n.worker1.pod, n.worker1.holder, n.gw1.pod, n.gw1.holder)
	})
}

// gatewayLost takes a gateway off the underlay while connections pass by it and by the one that stays.
// What has begun without it, or goes on, stays where it is when the gateway is back, and when the worker's agent is
// another one: of the flows from some pods and hosts none moves.
func (n *twins) gatewayLost(t *testing.T, f family, to string, lost, stays *machine, from ...*exec.Cmd) {
	var flows []net.Conn
	translatedBy := map[net.Conn]*machine{}
	for range 40 {
		c, err := dialFrom(t, n.worker1.pod, f.tcp(), to)
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
			if m.cluster == "c1" && m.tracksPort(t, f, c.LocalAddr().(*net.TCPAddr).Port) {
				translatedBy[c] = m
			}
		}
	}
	old := n.hold(t, f, to, from)
	routes := func() (all string) {
		for _, m := range n.all() {
			all += m.run(t, "ip "+f.choose("-4", "-6")+" route show table 5100")
		}
		return all
	}
	before := routes()
	n.run(t, "ip link set "+lost.name+" down")
	start := time.Now()
	eventually(t, 3*time.Second, "new connections", func() bool {
		for range 8 {
			c, err := dialFor(t, 300*time.Millisecond, n.worker1.pod, f.tcp(), to)
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
	maps.Copy(held, n.hold(t, f, to, from))
	held.goOnBy(t, f, stays, lost)
	n.run(t, "ip link set "+lost.name+" up")
	// While routes change a connection that begins may take another gateway than it began with.
	eventually(t, time.Minute, "traffic by all gateways again", func() bool { return routes() == before })
	held.goOnBy(t, f, stays, lost)
	n.worker1.stop(t, syscall.SIGKILL)
	n.worker1.start(t)
	held.goOnBy(t, f, stays, lost)
	eventually(t, time.Minute, "new flows by the gateway that came back", func() bool {
		n.hold(t, f, to, from[:1])
		return len(lost.passed(t, f)) > 0
	})
}

// heldFlows are connections and flows of datagrams that go on, by the port that they come from.
type heldFlows map[uint16]net.Conn

// hold begins flows from pods and hosts, each from a port that no other flow has: where two came from one port and one
// address of the cluster, the gateway would give the later one another port, and it would not be found again.
func (n *twins) hold(t *testing.T, f family, to string, from []*exec.Cmd) heldFlows {
	t.Helper()
	const first, count = 10000, 20000 // below those that the kernel gives to others
	held := heldFlows{}
	for _, pod := range from {
		for range 16 {
			for _, network := range f.networks() {
				c, err := dialFromPort(t, pod, first+n.heldPorts%count, network, to)
				if err != nil {
					t.Fatal(err)
				}
				n.heldPorts++
				if network == f.tcp() {
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
func (h heldFlows) goOnBy(t *testing.T, f family, one, another *machine) {
	t.Helper()
	for _, m := range []*machine{one, another} {
		m.run(t, "nft flush set "+string(f)+" test passed")
	}
	broken := 0
	for _, c := range h {
		if asks(c) != nil {
			broken++
		}
	}
	stayed, moved := 0, 0
	by, other := one.passed(t, f), another.passed(t, f)
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
func (m *machine) passed(t *testing.T, f family) map[uint16]bool { return m.ports(t, f, "passed") }

// ports are the elements of a set of the machine's table test.
func (m *machine) ports(t *testing.T, f family, set string) map[uint16]bool {
	t.Helper()
	var list struct {
		Objects []struct {
			Set *struct {
				Elements []uint16 `json:"elem"`
			} `json:"set"`
		} `json:"nftables"`
	}
	text := m.run(t, fmt.Sprintf("nft --json list set %s test %s", f, set))
	if err := json.Unmarshal([]byte(text), &list); err != nil {
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

// tracksPort says whether a machine tracks a connection from a port of the first cluster's worker's pod. One from that
// port that has ended may have passed by another.
func (m *machine) tracksPort(t *testing.T, f family, port int) bool {
	t.Helper()
	entries := m.run(t, "conntrack -L -p tcp --state ESTABLISHED "+
		f.choose("-s 10.7.1.10", "-f ipv6 -s fd07:0:0:1::10")+" 2>/dev/null")
	return strings.Contains(entries, fmt.Sprintf(" sport=%d ", port))
}
