// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/node"
)

func TestTwoClusters(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	eventually(t, time.Minute, "gateways connected", func() bool { return n.gw1.connected() && n.gw2.connected() })
	eventually(t, 5*time.Second, "gateway to gateway", func() bool { return n.gw1.pings("10.9.0.10", "") })
	eventually(t, 5*time.Second, "worker to gateway", func() bool { return n.worker1.pings("10.9.0.10", "") })
	eventually(t, 5*time.Second, "gateway to worker", func() bool { return n.gw2.pings("10.8.1.10", "") })
	eventually(t, 5*time.Second, "both, by IPv6", func() bool {
		return n.worker1.pings("fd09::10", "") &&
			n.gw2.pings("fd08::1:0:0:0:10", "")
	})
	if !n.worker1.pings("10.9.0.10", "-s 20000") {
		t.Error("a large packet to 10.9.0.10 is lost")
	}
	// A router never fragments IPv6: the first answer may be one from which the pod learns the path's MTU.
	eventually(t, 5*time.Second, "a large packet by IPv6", func() bool { return n.worker1.pings("fd09::10", "-s 20000") })
	if within(n.gw2.pod, "ping -c1 -W1 172.31.1.2").Run() == nil || n.gw1.pings("10.9.0.1", "") {
		t.Error("another cluster reaches a node")
	}
	if within(n.gw2.pod, "ping -c1 -W1 10.8.1.10").Run() != nil {
		t.Error("pod to pod is lost")
	}
	var s v1alpha1.GatewayStatus
	if err := n.gw1.read("status.json", &s); err != nil {
		t.Fatal(err)
	}
	c := s.Connections[0]
	if s.HAState != v1alpha1.GatewayActive || s.Endpoint.MTU != 1420 || c.Cluster != "c2" || c.Gateway != "gw2" ||
		!c.Active || c.NAT || c.Address != "172.31.1.3:4500" || s.Conditions[0].Status != metav1.ConditionTrue ||
		!meta.IsStatusConditionTrue(s.Conditions, v1alpha1.GatewayTrackingAvailable) {
		t.Errorf("status %+v", s)
	}
	if *wanted != "" && string(s.Implementation) != *wanted {
		t.Fatalf("WireGuard runs as %s, want %s", s.Implementation, *wanted)
	}

	t.Run("a killed agent comes back", n.agentIsKilled)
	t.Run("and without the API server too", n.agentRestartsAlone)
	t.Run("an unreachable remote is told", n.remoteIsCutOff)
	t.Run("what others break is repaired", n.othersBreak)
	t.Run("a reload of the firewall breaks no connection of a service", n.firewallReloads)
	t.Run("a missing Peering changes nothing, even after a restart", n.peeringIsMissing)
	t.Run("an unknown cable driver changes nothing", n.driverIsUnknown)
	t.Run("what a node needs is not routed away", n.remoteClaimsTooMuch)
	t.Run("an API server that never answers holds nothing up", n.nobodyAnswers)
	t.Run("a node that boots is closed before it knows anything", n.gatewayReboots)
	t.Run("a restart leaves the kernel alone", n.workerRestarts)
	t.Run("a lost key is made anew", n.keysAreLost)
	t.Run("leaving cleans", n.clusterLeaves)
	t.Run("uninstalling cleans", n.agentIsUninstalled)
}

func (n *network) agentIsKilled(t *testing.T) {
	var before, after v1alpha1.GatewayStatus
	if err := n.gw2.read("status.json", &before); err != nil {
		t.Fatal(err)
	}
	n.gw2.stop(t, syscall.SIGKILL)
	if *wanted == string(v1alpha1.CableKernel) && !n.worker1.pings("10.9.0.10", "") {
		t.Error("the kernel's tunnel went with the agent")
	}
	n.gw2.start(t)
	gap := eventually(t, 5*time.Second, "traffic again", func() bool { return n.worker1.pings("10.9.0.10", "") })
	t.Logf("gap %s", gap)
	eventually(t, 10*time.Second, "a report that it is connected", func() bool {
		return n.gw2.read("status.json", &after) == nil && after.ReportedAt.After(before.ReportedAt.Time) && n.gw2.connected()
	})
	if was, is := before.Connections[0].LastTransitionTime, after.Connections[0].LastTransitionTime; !is.Equal(was) ||
		is == nil {
		t.Errorf("the connection is said to have changed at %v, and before the agent was killed at %v", is, was)
	}
}

func (n *network) agentRestartsAlone(t *testing.T) {
	n.gw2.stop(t, syscall.SIGKILL)
	if err := os.Rename(n.gw2.path("cluster.json"), n.gw2.path("away.json")); err != nil {
		t.Fatal(err)
	}
	n.gw2.start(t)
	eventually(t, 15*time.Second, "traffic again", func() bool { return n.worker1.pings("10.9.0.10", "") })
	if err := os.Rename(n.gw2.path("away.json"), n.gw2.path("cluster.json")); err != nil {
		t.Fatal(err)
	}
}

func (n *network) remoteIsCutOff(t *testing.T) {
	var s v1alpha1.GatewayStatus
	eventually(t, 20*time.Second, "connected before", n.gw1.connected)
	n.gw2.run(t, "ip link set eth0 down")
	eventually(t, 3*time.Second, "error", func() bool {
		return n.gw1.read("status.json", &s) == nil && s.Connections[0].Status == v1alpha1.ConnectionError
	})
	n.gw2.run(t, "ip link set eth0 up")
	back := time.Now().Truncate(time.Second)
	eventually(t, 20*time.Second, "connected", n.gw1.connected)
	if n.gw1.read("status.json", &s) != nil || s.Connections[0].LastTransitionTime.Time.Before(back) {
		t.Errorf("connected again since %v, the link is up since %v", s.Connections[0].LastTransitionTime, back)
	}
}

func (n *network) othersBreak(t *testing.T) {
	n.gw1.run(t, "ip link del sl-c0; ip route flush table 5100")
	eventually(t, 15*time.Second, "traffic again", func() bool { return n.worker1.pings("10.9.0.10", "") })
	whole := n.gw1.ours(t)
	n.gw1.run(t, "nft delete table ip sealane; iptables-nft -F FORWARD; ip rule del pref 105")
	n.gw1.becomes(t, 5*time.Second, whole)
	n.worker1.run(t, `ip neigh replace 172.31.1.1 lladdr 02:00:00:00:00:01 dev sl-vx nud permanent
		echo 1 > /proc/sys/net/ipv4/conf/sl-vx/rp_filter`)
	took := eventually(t, 3*time.Second, "the neighbour and rp_filter as before", func() bool {
		return n.worker1.command(`ip neigh show 172.31.1.1 dev sl-vx | grep -q 02:51:ac:1f:01:01
			grep -q 2 /proc/sys/net/ipv4/conf/sl-vx/rp_filter`).Run() == nil
	})
	t.Logf("repaired after %s", took)
}

// firewallReloads under a connection that only connection tracking can continue: the proxy's rule that translated its
// first packet is gone.
func (n *network) firewallReloads(t *testing.T) {
	m := n.worker1
	m.run(t, `nft add table ip proxy; nft add chain ip proxy services '{ type nat hook prerouting priority dstnat; }'
		nft add rule ip proxy services ip daddr 10.88.0.5 dnat to 10.9.0.10`)
	defer m.run(t, "nft delete table ip proxy")
	log := m.path("ping")
	ping := within(m.pod, "exec ping -i 0.05 10.88.0.5 >"+log)
	ping.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := ping.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ping.Process.Kill(); _ = ping.Wait() }()
	answers := func() int {
		text, _ := os.ReadFile(log) // missing until the shell has made it
		return strings.Count(string(text), "bytes from 10.88.0.5")
	}
	eventually(t, 5*time.Second, "the service answers", func() bool { return answers() > 3 })
	m.run(t, "nft flush chain ip proxy services")
	whole := m.ours(t)
	m.run(t, "nft delete table ip sealane")
	m.becomes(t, 5*time.Second, whole)
	before := answers()
	eventually(t, 5*time.Second, "the service still answers", func() bool { return answers() > before+3 })
}

func (n *network) peeringIsMissing(t *testing.T) {
	var o node.Objects
	if err := n.gw1.read("cluster.json", &o); err != nil {
		t.Fatal(err)
	}
	kept := o.Peering
	nodes := o.Nodes
	o.Peering, o.Nodes = nil, nil // the cluster agent may have told of none yet
	if err := n.gw1.write("cluster.json", o); err != nil {
		t.Fatal(err)
	}
	n.gw1.stop(t, syscall.SIGKILL)
	n.gw1.start(t)
	eventually(t, 15*time.Second, "traffic again", func() bool { return n.worker1.pings("10.9.0.10", "") })
	o.Peering, o.Nodes = kept, nodes
	if err := n.gw1.write("cluster.json", o); err != nil {
		t.Fatal(err)
	}
}

func (n *network) driverIsUnknown(t *testing.T) {
	for _, m := range []*machine{n.gw1, n.worker1} {
		before := m.ours(t)
		var o node.Objects
		if err := m.read("cluster.json", &o); err != nil {
			t.Fatal(err)
		}
		o.Peering.Spec.Cable.Driver = "pigeon"
		if err := m.write("cluster.json", o); err != nil {
			t.Fatal(err)
		}
		_ = m.agent.Process.Signal(syscall.SIGHUP)
		eventually(t, 10*time.Second, m.name+" says so", func() bool {
			var s node.NodeState
			return m.read("state.json", &s) == nil && s.Programmed == v1alpha1.ReasonProgrammingFailed &&
				strings.Contains(s.Message, `"pigeon"`)
		})
		if after := m.ours(t); after != before {
			t.Errorf("%s changed from\n%s\nto\n%s", m.name, before, after)
		}
	}
	if !n.worker1.pings("10.9.0.10", "") {
		t.Error("traffic is lost")
	}
	n.tell(t, v1alpha1.MemberActive)
	for _, m := range []*machine{n.gw1, n.worker1} {
		eventually(t, 20*time.Second, m.name+" programmed", func() bool { return m.says(v1alpha1.ReasonNodeProgrammed) })
	}
}

// remoteNetworks makes c2's networks what a machine is told of them.
func (m *machine) remoteNetworks(t *testing.T, cidrs ...string) {
	t.Helper()
	var o node.Objects
	if err := m.read("cluster.json", &o); err != nil {
		t.Fatal(err)
	}
	o.Peering.Spec.RemoteClusters[0].Networks.PodCIDRs = cidrs
	o.APIServers = []netip.Addr{netip.MustParseAddr("203.0.113.5"), netip.MustParseAddr("2001:db8:5::5")}
	if err := m.write("cluster.json", o); err != nil {
		t.Fatal(err)
	}
	_ = m.agent.Process.Signal(syscall.SIGHUP)
}

func (m *machine) routes(prefix string) bool {
	return m.command("{ ip route show table 5100; ip -6 route show table 5100; } | grep -q '"+prefix+"'").Run() == nil
}

// remoteClaimsTooMuch: nodes whose default gateways are in no connected network, one of several next hops.
func (n *network) remoteClaimsTooMuch(t *testing.T) {
	n.gw1.run(t,
		`ip route add default via 192.0.2.129 dev eth0 onlink; ip -6 route add default via 2001:db8:1::1 dev eth0 onlink`)
	n.worker1.run(t, `ip route add default nexthop via 172.31.1.254 nexthop via 192.0.2.129 dev eth0 onlink
		ip -6 route add default nexthop via fd31::254 nexthop via 2001:db8:1::1 dev eth0 onlink`)
	defer func() {
		for _, m := range []*machine{n.gw1, n.worker1} {
			m.run(t, "ip route del default; ip -6 route del default")
		}
	}()
	for i, c := range []struct{ reason, v4, v6 string }{
		{"CoversAPIServer", "203.0.113.0/24", "2001:db8:5::/48"},
		{"CoversDefaultGateway", "192.0.2.128/25", "2001:db8:1::/48"},
		{"CoversResolver", "198.51.100.0/24", "2001:db8:53::/48"},
		{"OverlapsConnectedNetwork", "172.31.1.192/27", "fd31::8000:0:0:0/65"},
		{"ContainsNode", "172.31.0.0/16", "fd31::/32"},
	} {
		rest, rest6 := fmt.Sprintf("10.5%d.0.0/16", i), fmt.Sprintf("fd6%d::/48", i)
		for _, m := range []*machine{n.gw1, n.worker1} {
			m.remoteNetworks(t, "10.9.0.0/16", c.v4, c.v6, rest, rest6)
			eventually(t, 10*time.Second, m.name+" routes the rest", func() bool { return m.routes(rest) && m.routes(rest6) })
			for _, claim := range []string{c.v4, c.v6} {
				if m.routes(claim) {
					t.Errorf("%s routes %s to another cluster, want %s", m.name, claim, c.reason)
				}
				eventually(t, 5*time.Second, m.name+" says so of "+claim, func() bool {
					var s node.NodeState
					return m.read("state.json", &s) == nil && s.Programmed == v1alpha1.ReasonNodeProgrammed &&
						strings.Contains(s.Refused, c.reason+": networks.podCIDRs: "+claim)
				})
			}
		}
	}
	eventually(t, 10*time.Second, "the gateway's condition", func() bool {
		var s v1alpha1.GatewayStatus
		return n.gw1.read("status.json", &s) == nil &&
			meta.IsStatusConditionFalse(s.Conditions, v1alpha1.GatewayNetworksAccepted)
	})
	n.tell(t, v1alpha1.MemberActive)
}

func (n *network) nobodyAnswers(t *testing.T) {
	for _, m := range []*machine{n.gw1, n.worker1} {
		if err := os.WriteFile(m.path("unanswered"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		// Another state each time, which the agent cannot tell anybody.
		for i, cidrs := range [][]string{{"10.9.0.0/16", "10.60.0.0/16", "203.0.113.0/24"}, {"10.9.0.0/16", "10.61.0.0/16"}} {
			m.remoteNetworks(t, cidrs...)
			took := eventually(t, 3*time.Second, m.name+" follows", func() bool { return m.routes(cidrs[1]) })
			t.Logf("%s: change %d after %s", m.name, i, took)
		}
	}
	n.gw2.run(t, "ip link set eth0 down")
	eventually(t, 20*time.Second, "what nobody was told is told late", func() bool {
		for _, m := range []*machine{n.gw1, n.worker1} {
			_ = os.Remove(m.path("unanswered"))
		}
		var s v1alpha1.GatewayStatus
		return n.gw1.read("status.json", &s) == nil && s.Connections[0].Status == v1alpha1.ConnectionError
	})
	n.gw2.run(t, "ip link set eth0 up")
	n.tell(t, v1alpha1.MemberActive)
	eventually(t, 20*time.Second, "connected", n.gw1.connected)
}

func (n *network) gatewayReboots(t *testing.T) {
	m := n.gw1
	m.stop(t, syscall.SIGKILL)
	m.run(t, `for l in $(ip -o link | grep -o 'sl-[a-z0-9]*'); do ip link del $l; done
		for f in -4 -6; do
			ip $f route flush table 5100; ip $f rule del pref 105; while ip $f rule del pref 103; do :; done
		done
		nft delete table ip sealane; nft delete table ip6 sealane`)
	if err := os.Rename(m.path("cluster.json"), m.path("away.json")); err != nil {
		t.Fatal(err)
	}
	m.start(t)
	eventually(t, 3*time.Second, "closed, with nothing of the network there yet", func() bool {
		return m.command(`ip -o link | grep -q sl- && exit 1
			ip route show table 5100 | grep -q 'unreachable 10.9.0.0/16' && nft list table ip sealane | grep -q hook &&
			ip rule | grep -q 'lookup 5100' && ! ip route get 10.9.0.10 &&
			ip -6 route show table 5100 | grep -q 'unreachable fd09::/48' && ! ip route get fd09::10`).Run() == nil
	})
	eventually(t, 20*time.Second, "traffic again", func() bool { return m.pings("10.9.0.10", "") })
	if err := os.Rename(m.path("away.json"), m.path("cluster.json")); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "connected", m.connected)
}

func (n *network) workerRestarts(t *testing.T) {
	before := n.worker1.ours(t)
	n.worker1.stop(t, syscall.SIGTERM)
	if !n.worker1.pings("10.9.0.10", "") {
		t.Error("a worker without agent lost its routes")
	}
	if after := n.worker1.ours(t); after != before {
		t.Errorf("the node changed from\n%s\nto\n%s", before, after)
	}
	n.worker1.start(t)
	eventually(t, 10*time.Second, "programmed", func() bool { return n.worker1.says(v1alpha1.ReasonNodeProgrammed) })
}

// keysAreLost on a gateway, which says so and has its new key told to the others, and on a worker, which needs none.
func (n *network) keysAreLost(t *testing.T) {
	for _, m := range []*machine{n.gw2, n.worker1} {
		m.stop(t, syscall.SIGKILL)
		if err := os.Truncate(m.path("wireguard.key"), 0); err != nil {
			t.Fatal(err)
		}
		m.start(t)
		eventually(t, 10*time.Second, m.name+" programmed", func() bool { return m.says(v1alpha1.ReasonNodeProgrammed) })
	}
	eventually(t, 5*time.Second, "an event", func() bool {
		told, err := os.ReadFile(n.gw2.path("event-" + v1alpha1.EventKeyReplaced))
		return err == nil && strings.Contains(string(told), n.gw2.path("wireguard.key.invalid-"))
	})
	if _, err := os.Stat(n.worker1.path("event-" + v1alpha1.EventKeyReplaced)); err == nil {
		t.Error("a worker makes an event")
	}
	n.tell(t, v1alpha1.MemberActive)
	eventually(t, 15*time.Second, "traffic again", func() bool { return n.worker1.pings("10.9.0.10", "") })
}

func (n *network) clusterLeaves(t *testing.T) {
	n.tell(t, v1alpha1.MemberLeaving)
	for _, m := range []*machine{n.gw1, n.worker1} {
		eventually(t, 10*time.Second, m.name+" cleaned", func() bool { return m.says(v1alpha1.ReasonNodeCleaned) })
		if left := m.ours(t); left != "" {
			t.Errorf("%s: left behind:\n%s", m.name, left)
		}
	}
}

func (n *network) agentIsUninstalled(t *testing.T) {
	n.tell(t, v1alpha1.MemberActive)
	eventually(t, 10*time.Second, "joined again", func() bool { return n.gw2.says(v1alpha1.ReasonNodeProgrammed) })
	if err := os.WriteFile(n.gw2.path("uninstalled"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.gw2.stop(t, syscall.SIGTERM)
	if left := n.gw2.ours(t); left != "" {
		t.Errorf("left behind:\n%s", left)
	}
}
