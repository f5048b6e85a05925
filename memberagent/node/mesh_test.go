// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/memberagent/node"
)

// tellMesh adds the published nodes of a cluster to what another is told of it.
func (n *network) tellMesh(t *testing.T, cluster string, r *v1alpha1.RemoteCluster) {
	t.Helper()
	if len(n.mesh) == 0 {
		return
	}
	r.Topology = v1alpha1.TopologyMesh
	for _, m := range n.mesh {
		if m.cluster != cluster {
			continue
		}
		key, _, err := cable.LoadKey(string(m.directory))
		if err != nil {
			t.Fatal(err)
		}
		public := key.PublicKey()
		r.Nodes = append(r.Nodes, v1alpha1.MeshNode{Name: m.name, PublicKey: base64.StdEncoding.EncodeToString(public[:]),
			Addresses: []string{m.ip, m.ip6}, PodCIDRs: []string{m.pods + ".0/24", m.pods6 + "::/64"}, MTU: 1420})
	}
}

// straightTo says whether what a machine's own pods send to those of another goes without gateways, in both families.
func (m *machine) straightTo(other *machine) bool {
	return m.command(fmt.Sprintf(`ip route get %s.10 from %s.10 iif cni0 | grep -q sl-cmesh
		ip -6 route get %s::10 from %s::10 iif cni0 | grep -q sl-cmesh`, other.pods, m.pods, other.pods6,
		m.pods6)).Run() == nil
}

// settledMesh waits until each pair of nodes of the two clusters talks without gateways.
func (n *network) settledMesh(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, "each pair of nodes goes straight", func() bool {
		for _, m := range n.mesh {
			for _, other := range n.mesh {
				if m.cluster != other.cluster && !m.straightTo(other) {
					return false
				}
			}
		}
		return true
	})
}

// serviceOfGw2 is one of c2 that the gateway translates to a pod of its own.
const serviceOfGw2 = "10.99.0.8"

// meshedNetwork has a gateway and a worker in each of two meshed clusters, of which c2 has services.
func meshedNetwork(t *testing.T) *network {
	t.Helper()
	n := newNetwork(t)
	n.worker2 = n.newMachine(t, "worker2", "c2", 6, "10.9.2", "fd09:0:0:2")
	n.mesh = n.all()
	n.tell(t, v1alpha1.MemberActive)
	n.worker2.start(t)
	n.gw2.run(t, fmt.Sprintf("ip route add %s.0/24 via %s", n.worker2.pods, n.worker2.ip))
	n.worker2.run(t, fmt.Sprintf("ip route add %s.0/24 via %s", n.gw2.pods, n.gw2.ip))
	for _, m := range []*machine{n.gw2, n.worker2} {
		m.forwardsItsPods(t)
		m.run(t, fmt.Sprintf(`nft add table ip proxy
			nft add chain ip proxy services '{ type nat hook prerouting priority dstnat; }'
			nft add rule ip proxy services ip daddr %s dnat to %s.10
			nft add rule ip proxy services ip daddr %s dnat to %s.10`, serviceOfC2, n.worker2.pods, serviceOfGw2, n.gw2.pods))
	}
	for _, m := range n.all() {
		for _, iptables := range []string{"iptables-nft", "ip6tables-nft"} {
			m.run(t, iptables+" -I FORWARD -m conntrack --ctstate INVALID -j DROP")
		}
		// What passes between pods of the two clusters here, and is of neither end.
		m.run(t, fmt.Sprintf(`nft add table inet seen; nft add chain inet seen f '{ type filter hook forward priority 10; }'
			nft add rule inet seen f ct state untracked ip saddr 10.8.0.0/16 ip daddr 10.9.0.0/16 \
				ip saddr != %[1]s.0/24 ip daddr != %[1]s.0/24 counter comment transit
			nft add rule inet seen f ct state untracked ip6 saddr fd08::/48 ip6 daddr fd09::/48 \
				ip6 saddr != %[2]s::/64 ip6 daddr != %[2]s::/64 counter comment transit`, m.pods, m.pods6))
	}
	n.settledMesh(t)
	return n
}

// transit is how many packets between pods of others a machine has passed on.
func (m *machine) transit(t *testing.T) int {
	return counted(t, m.command("nft list table inet seen"), "transit")
}

// TestMesh: the nodes of two clusters talk without gateways; where a pair of them cannot, by the gateways, and no
// connection breaks on the way there and back.
func TestMesh(t *testing.T) {
	t.Parallel()
	n := meshedNetwork(t)
	flows := n.flows(t)
	for _, from := range []*machine{n.worker1, n.gw1} {
		address := fmt.Sprintf("%s:%s", serviceOfGw2, map[*machine]string{n.worker1: "7003", n.gw1: "7004"}[from])
		flows = append(flows, udpFlow(t, from.pod, n.gw2.pod, strings.Replace(address, serviceOfGw2, n.gw2.pods+".10", 1),
			address))
	}
	seen := begin(flows)
	begin := func() { seen = begin(flows) }
	check := func(when string, lost int, outage time.Duration) {
		t.Helper()
		seen.check(t, when, allowed{lost: lost, outage: outage})
		begin()
	}
	gateways := func() int { return n.gw1.transit(t) + n.gw2.transit(t) }

	t.Run("gateways carry nothing between pods", func(t *testing.T) {
		begin()
		before := gateways()
		time.Sleep(2 * time.Second)
		check("straight", 20, time.Second)
		if got := gateways() - before; got != 0 {
			t.Errorf("%d packets passed by gateways", got)
		}
		n.worker1.reaches(t, `{"c2":2}`)
	})
	t.Run("a large packet", func(t *testing.T) {
		for _, to := range []string{n.worker2.pods + ".10", n.worker2.pods6 + "::10"} {
			eventually(t, 5*time.Second, to, func() bool {
				return within(n.worker1.pod, "ping -c1 -W1 -s 20000 "+to).Run() == nil
			})
		}
	})
	t.Run("the node itself", func(t *testing.T) {
		if !n.worker1.pings(n.worker2.pods+".10", "") || n.worker1.pings(n.worker2.pods+".1", "") {
			t.Error("a node does not reach a pod, or reaches another node")
		}
	})
	const cut = "iptables-nft -t raw -%s PREROUTING -p udp --dport 4532 -s %s -j DROP; " +
		"ip6tables-nft -t raw -%[1]s PREROUTING -p udp --dport 4532 -s %[3]s -j DROP"
	t.Run("a pair of nodes is cut, in one direction", func(t *testing.T) {
		begin()
		before := gateways()
		n.worker2.run(t, fmt.Sprintf(cut, "I", n.worker1.ip, n.worker1.ip6))
		eventually(t, 2*time.Second, "by gateways", func() bool {
			return !n.worker1.straightTo(n.worker2) && !n.worker2.straightTo(n.worker1)
		})
		if !n.worker1.straightTo(n.gw2) || !n.gw1.straightTo(n.worker2) {
			t.Error("other pairs do not go straight any more")
		}
		n.worker1.reaches(t, `{"c2":1}`)
		time.Sleep(time.Second)
		check("cut", 200, 2*time.Second)
		if gateways() == before {
			t.Error("nothing passes by gateways")
		}
		n.worker2.run(t, fmt.Sprintf(cut, "D", n.worker1.ip, n.worker1.ip6))
		n.settledMesh(t)
		check("returned", 20, time.Second)
	})
	t.Run("an agent is killed, and its cables with it", func(t *testing.T) {
		begin()
		n.worker1.stop(t, syscall.SIGKILL)
		time.Sleep(2 * time.Second)
		n.worker1.start(t)
		n.settledMesh(t)
		check("killed and returned", 200, 2*time.Second)
	})
	t.Run("an agent ends, and its cables with it", func(t *testing.T) {
		loseNothing(t, flows, func(s stretch) {
			n.worker1.stop(t, syscall.SIGTERM)
			s.lasts(t, time.Second)
			n.worker1.start(t)
			n.settledMesh(t)
		})
	})
	t.Run("a node that forges another's source", func(t *testing.T) { n.forgesSource(t) })
	t.Run("a node leaves", func(t *testing.T) {
		loseNothing(t, flows, func(stretch) {
			n.mesh = n.all()
			n.tell(t, v1alpha1.MemberActive)
			n.settledMesh(t)
			n.mesh = slices.DeleteFunc(n.mesh, func(m *machine) bool { return m == n.worker2 })
			n.tell(t, v1alpha1.MemberActive)
			eventually(t, 10*time.Second, "nothing is left of it", func() bool {
				return !n.worker1.straightTo(n.worker2) && !n.worker2.straightTo(n.worker1) && n.worker1.command(
					fmt.Sprintf("nft list set ip sealane mesh | grep -c %s | grep -qx 0", n.worker2.pods)).Run() == nil
			})
		})
	})
	t.Run("the mesh ends", func(t *testing.T) {
		begin()
		n.mesh = nil
		n.tell(t, v1alpha1.MemberActive)
		for _, m := range n.all() {
			eventually(t, 10*time.Second, "nothing is left on "+m.name, func() bool {
				out := m.ours(t) + m.run(t, "ip rule; ip route show table 5102 2>/dev/null || true")
				return !strings.Contains(out, "mesh") && !strings.Contains(out, "5102")
			})
		}
		check("by gateways", 200, 2*time.Second)
		seen.lasts(t, time.Second)
		check("for good, also what gateways translate", 20, time.Second)
	})
	t.Run("the mesh begins", func(t *testing.T) {
		n.mesh = n.all()
		n.tell(t, v1alpha1.MemberActive)
		n.settledMesh(t)
		begin()
		seen.lasts(t, time.Second)
		check("straight, also what gateways translate", 20, time.Second)
	})
}

// reaches waits until a machine says to how many nodes of each cluster it sends without gateways.
func (m *machine) reaches(t *testing.T, want string) {
	t.Helper()
	var s node.NodeState
	eventually(t, 5*time.Second, m.name+" says that it reaches "+want, func() bool {
		return m.read("state.json", &s) == nil && s.NodesReached == want && s.Key.PublicKey != ""
	})
}

// forgesSource has worker1, whatever its own agent wants, send to worker2 as a pod of gw1.
func (n *network) forgesSource(t *testing.T) {
	const count = `nft add table ip forged; nft add chain ip forged pre '{ type filter hook prerouting priority -400; }'
		for s in %s.10 %s.77; do
			nft add rule ip forged pre iifname sl-cmesh udp dport 7777 ip saddr $s counter comment from-$s
		done`
	n.worker2.run(t, fmt.Sprintf(count, n.gw1.pods, n.worker1.pods))
	defer n.worker2.run(t, "nft delete table ip forged")
	n.worker1.run(t, fmt.Sprintf(`ip route add %s.0/24 dev sl-cmesh table 999
		ip rule add pref 50 to 10.9.0.0/16 lookup 999`, n.worker2.pods))
	defer n.worker1.run(t, "ip rule del pref 50")
	arrived := func(source string) int {
		return counted(t, n.worker2.command("nft list table ip forged"), "from-"+source)
	}
	own, others := n.worker1.pods+".77", n.gw1.pods+".10"
	send := func(source string) {
		inNetworkOf(t, n.worker1.holder, sendRaw(udp4(source, n.worker2.pods+".10", 7777, []byte("x"))))
	}
	eventually(t, 5*time.Second, "its own pod's arrive, or this could not fail", func() bool {
		send(others)
		send(own)
		return arrived(own) > 3
	})
	if got := arrived(others); got != 0 {
		t.Errorf("%d forged packets arrived", got)
	}
}
