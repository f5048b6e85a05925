// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/node"
)

// twins are two clusters with a gateway and a worker each, whose pods, services and names of nothing differ, of both
// families. Each has a service of a global address, 120.x.0.10, with a backend on each node: the pods' port 8080.
type twins struct {
	*network
	// pods have a global address of their own, by cluster.
	pods map[string][]v1alpha1.GlobalPod
	// egress are the addresses that some pods connect from, by cluster.
	egress map[string][]v1alpha1.GlobalAllocation
	// affinity of both services.
	affinity corev1.ServiceAffinity
	// onlyIPv6 says that the clusters have no networks of IPv4.
	onlyIPv6 bool
	// external are where hosts outside may be exported, by cluster.
	external map[string][]string
	// outside is the host outside of TestTranslationsWalk.
	outside *machine
	// absent are the machines that are no gateways for the time being.
	absent map[*machine]bool
	// heldPorts is how many ports flows have been given that are held.
	heldPorts int
}

// The blocks of the two, and the addresses that each one's gateway sends the flows of pods from.
var (
	blocks     = map[string]string{"c1": "120.1.0.0/24", "c2": "120.2.0.0/24"}
	blocksIPv6 = map[string]string{"c1": "fd5e:a1a4:e242:7801::/120", "c2": "fd5e:a1a4:e242:7802::/120"}
	sends      = map[string]netip.Prefix{
		"c1": netip.MustParsePrefix("120.1.0.128/29"), "c2": netip.MustParsePrefix("120.2.0.128/29")}
)

const serviceOfTwin1, serviceOfTwin2 = "120.1.0.10", "120.2.0.10"

func newTwins(t *testing.T, pods map[string][]v1alpha1.GlobalPod) *twins {
	t.Helper()
	n := &twins{network: withoutMachines(t), pods: pods}
	n.startTwins(t)
	return n
}

func (n *twins) startTwins(t *testing.T) {
	t.Helper()
	n.gw1 = n.newMachine(t, "gw1", "c1", 1, "10.7.0", "fd07:0:0:0")
	n.worker1 = n.newMachine(t, "worker1", "c1", 2, "10.7.1", "fd07:0:0:1")
	n.gw2 = n.newMachine(t, "gw2", "c2", 3, "10.7.0", "fd07:0:0:0")
	n.worker2 = n.newMachine(t, "worker2", "c2", 4, "10.7.1", "fd07:0:0:1")
	n.tellTwins(t, v1alpha1.MemberActive, []string{"10.7.0.10", "10.7.1.10"})
	for _, m := range n.all() {
		m.startTwin(t)
	}
}

// carried is what the clusters have of a network, or of an address, of both families.
func (n *twins) carried(ipv4, ipv6 string) []string {
	if n.onlyIPv6 {
		return []string{ipv6}
	}
	return []string{ipv4, ipv6}
}

// sixOf is the IPv6 address of the pod 10.7.x.y.
func sixOf(ip string) string {
	a := netip.MustParseAddr(ip).As4()
	return fmt.Sprintf("fd07:0:0:%d::%d", a[2], a[3])
}

// startTwin starts the agent on a machine with what others may do there.
func (m *machine) startTwin(t *testing.T) {
	t.Helper()
	m.forwardsItsPods(t)
	m.masquerades(t)
	for _, iptables := range []string{"iptables-nft", "ip6tables-nft"} {
		m.run(t, iptables+" -I FORWARD -m conntrack --ctstate INVALID -j DROP")
	}
	m.start(t)
}

// masquerades does what a CNI may do: whatever leaves the pod network gets the node's address.
func (m *machine) masquerades(t *testing.T) {
	t.Helper()
	m.run(t, `nft add table ip cni; nft add chain ip cni post '{ type nat hook postrouting priority srcnat; }'
		nft add rule ip cni post ip saddr 10.7.0.0/16 ip daddr != 10.7.0.0/16 masquerade
		nft add table ip6 cni; nft add chain ip6 cni post '{ type nat hook postrouting priority srcnat; }'
		nft add rule ip6 cni post ip6 saddr fd07::/48 ip6 daddr != fd07::/48 masquerade`)
}

// tellTwins gives every machine its cluster's objects, with these backends of its cluster's service.
func (n *twins) tellTwins(t *testing.T, phase v1alpha1.MemberPhase, backends []string) {
	t.Helper()
	gateways := map[string][]*machine{"c1": {n.gw1, n.gw4, n.gw5}, "c2": {n.gw2, n.gw3}}
	others := map[string]string{"c1": "c2", "c2": "c1"}
	services := map[string]string{"c1": serviceOfTwin1, "c2": serviceOfTwin2}
	for _, m := range n.all() {
		var theirs []v1alpha1.Endpoint
		for slot, g := range gateways[others[m.cluster]] {
			if g != nil && !n.absent[g] {
				e := g.endpoint(t, slot)
				if n.cables != nil {
					e.Addresses = e.Addresses[1:] // where nobody answers VXLAN does not go
				}
				theirs = append(theirs, e)
			}
		}
		o := node.Objects{
			Peering: &v1alpha1.Peering{
				ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName},
				Spec: v1alpha1.PeeringSpec{
					Phase: phase, ClusterSet: "default", ClusterID: m.cluster, GlobalCIDR: blocks[m.cluster],
					GlobalIPv6CIDR: blocksIPv6[m.cluster],
					ExternalCIDRs:  n.external[m.cluster],
					Networks: v1alpha1.Networks{PodCIDRs: n.carried("10.7.0.0/16", "fd07::/48"),
						ServiceCIDRs: n.carried("10.77.0.0/16", "fd77::/112")},
					Cable: v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
					// What a gateway translates ends when traffic leaves it, as it would when the machine is short of time.
					HealthCheck: v1alpha1.HealthCheckSpec{IntervalMilliseconds: 100, FailureThreshold: 8},
					Keys:        n.keys[m.cluster],
					RemoteClusters: []v1alpha1.RemoteCluster{{Name: others[m.cluster], Cable: n.cables[m.cluster],
						GlobalCIDR:     blocks[others[m.cluster]],
						GlobalIPv6CIDR: blocksIPv6[others[m.cluster]], Translated: true, Endpoints: theirs}},
				},
			},
		}
		for slot, g := range gateways[m.cluster] {
			if g == nil || n.absent[g] {
				continue
			}
			own := g.endpoint(t, slot)
			o.Gateways = append(o.Gateways, v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: own.Gateway},
				Spec: v1alpha1.GatewaySpec{Slot: own.Slot}, Status: v1alpha1.GatewayStatus{Endpoint: &own}})
		}
		for _, k := range n.all() {
			if k.cluster == m.cluster {
				o.Nodes = append(o.Nodes, corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: k.name},
					Spec:       corev1.NodeSpec{PodCIDRs: n.carried(k.pods+".0/24", k.pods6+"::/64")},
					Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: k.ip}}},
				})
			}
		}
		service := v1alpha1.IngressAllocation{IP: services[m.cluster], SessionAffinity: n.affinity}
		for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
			port := v1alpha1.GlobalPort{Protocol: p, Port: 80}
			for _, ip := range backends {
				for _, ip := range n.carried(ip, sixOf(ip)) {
					port.Backends = append(port.Backends, v1alpha1.GlobalBackend{IP: ip, Port: 8080})
				}
			}
			service.Ports = append(service.Ports, port)
		}
		service.Ports = append(service.Ports, v1alpha1.GlobalPort{Protocol: corev1.ProtocolTCP, Port: 82,
			Backends: []v1alpha1.GlobalBackend{{IP: "10.7.1.10", Port: 8090}, {IP: sixOf("10.7.1.10"), Port: 8090}}})
		// Nobody listens on its backend's port.
		service.Ports = append(service.Ports, v1alpha1.GlobalPort{Protocol: corev1.ProtocolUDP, Port: 81,
			Backends: []v1alpha1.GlobalBackend{{IP: "10.7.1.10", Port: 8081}, {IP: sixOf("10.7.1.10"), Port: 8081}}})
		o.GlobalAllocations = append([]v1alpha1.GlobalAllocation{ingressOf("whereami", service),
			ingressOf("headless", v1alpha1.IngressAllocation{Pods: n.pods[m.cluster]})}, n.egress[m.cluster]...)
		if err := m.write("cluster.json", o); err != nil {
			t.Fatal(err)
		}
		if m.agent != nil {
			_ = m.agent.Process.Signal(syscall.SIGHUP)
		}
	}
}

// TestTwinClusters: two clusters with the same networks reach each other's services by global addresses, from pods
// and hosts on workers and gateways; servers see global addresses of the client's cluster.
func TestTwinClusters(t *testing.T) {
	t.Parallel()
	n := newTwins(t, nil)
	for _, m := range n.all() {
		m.serve(t)
	}
	eventually(t, time.Minute, "gateways connected", func() bool { return n.gw1.connected() && n.gw2.connected() })
	for _, m := range []*machine{n.worker1, n.worker2} {
		to := map[string]string{"c1": serviceOfTwin2, "c2": serviceOfTwin1}[m.cluster]
		eventually(t, 20*time.Second, "an answer to "+m.name, func() bool {
			_, _, err := ask(t, m.pod, "tcp4", to+":80")
			return err == nil
		})
	}
	for _, m := range []*machine{n.gw1, n.gw2} {
		// What has another source than a global address of its sender, or another destination than one of its receiver.
		m.run(t, fmt.Sprintf(`nft add table ip test
			nft add chain ip test pre '{ type filter hook prerouting priority -301; }'
			nft add rule ip test pre iifname sl-c0 ip saddr != 120.0.0.0/8 counter comment shown
			nft add rule ip test pre iifname sl-c0 ip daddr != %s counter comment shown`, blocks[m.cluster]))
	}
	t.Run("from everywhere, to both backends", n.fromEverywhere)
	t.Run("errors reach the real sender", n.errors)
	t.Run("a large transfer", func(t *testing.T) { n.echoes(t, serviceOfTwin2+":80") })
	t.Run("large datagrams", func(t *testing.T) { n.largeDatagrams(t, ofIPv4) })
	t.Run("SCTP", func(t *testing.T) { n.associates(t, ofIPv4) })
	t.Run("session affinity", func(t *testing.T) { n.keepsToOneBackend(t, ofIPv4) })
	t.Run("translated before it leaves", n.translatedBefore)
	t.Run("many flows at once", n.manyFlows)
	t.Run("backends come and go", n.backends)
	t.Run("one change, one element", n.oneElement)
	t.Run("addresses that nobody has", n.unassigned)
	t.Run("of its own names", n.ownNames)
	for _, m := range []*machine{n.gw1, n.gw2} {
		if shown := m.counted(t, "shown"); shown != 0 {
			t.Errorf("%s: %d packets came with an address that is not global", m.name, shown)
		}
	}
	t.Run("a hostile twin", n.hostile)
	t.Run("nothing is left", func(t *testing.T) {
		n.tellTwins(t, v1alpha1.MemberLeaving, nil)
		for _, m := range n.all() {
			m.becomes(t, 20*time.Second, "")
		}
	})
}

func (m *machine) counted(t *testing.T, comment string) int {
	return counted(t, m.command("nft list table ip test"), comment)
}

func (n *twins) fromEverywhere(t *testing.T) {
	for _, c := range []struct {
		name string
		from *exec.Cmd
		own  string
	}{
		{"a pod of a worker", n.worker1.pod, "c1"}, {"a pod of a gateway", n.gw1.pod, "c1"},
		{"a worker", n.worker1.holder, "c1"}, {"a gateway", n.gw1.holder, "c1"},
		{"a pod of the other's worker", n.worker2.pod, "c2"}, {"a pod of the other's gateway", n.gw2.pod, "c2"},
		{"the other's worker", n.worker2.holder, "c2"}, {"the other's gateway", n.gw2.holder, "c2"},
	} {
		to := map[string]string{"c1": serviceOfTwin2, "c2": serviceOfTwin1}[c.own] + ":80"
		for _, network := range []string{"tcp4", "udp4"} {
			servers, clients := map[string]bool{}, map[netip.Addr]bool{}
			for range 40 {
				server, client, err := ask(t, c.from, network, to)
				if err != nil {
					t.Errorf("%s from %s: %v", network, c.name, err)
					break
				}
				servers[server], clients[client] = true, true
				if !sends[c.own].Contains(client) {
					t.Errorf("%s from %s: the server sees %s", network, c.name, client)
				}
			}
			if len(servers) != 2 || len(clients) != 1 {
				t.Errorf("%s from %s: answered by %v, seen as %v: want both backends, and one address", network, c.name,
					servers, clients)
			}
		}
	}
}

// translatedBefore leads the address of an import to the endpoint that it has, a global address, where packets begin,
// as replacements of kube-proxy do for pods and for nodes.
func (n *twins) translatedBefore(t *testing.T) {
	const imported = "10.77.9.9" // of the cluster's own services
	for name, from := range map[string]*exec.Cmd{"a pod of a worker": n.worker1.pod, "a pod of a gateway": n.gw1.pod,
		"a worker": n.worker1.holder, "a gateway": n.gw1.holder} {
		script := fmt.Sprintf(`ip route show default | grep -q . || ip route add %[1]s dev cni0
			nft add table ip lb; nft add chain ip lb out '{ type nat hook output priority -110; }'
			nft add rule ip lb out ip daddr %[1]s dnat to %[2]s`, imported, serviceOfTwin2)
		if out, err := within(from, script).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		for _, network := range ofIPv4.networks() {
			server, client, err := ask(t, from, network, imported+":80")
			if err != nil || server != "gw2" && server != "worker2" || !sends["c1"].Contains(client) {
				t.Errorf("%s from %s: answered by %q, seen as %s: %v", network, name, server, client, err)
			}
		}
		if out, err := within(from, fmt.Sprintf("nft delete table ip lb; ip route del %s || true",
			imported)).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
}

func (n *twins) errors(t *testing.T) {
	t.Run("port unreachable", func(t *testing.T) {
		_, _, err := ask(t, n.worker1.pod, "udp4", serviceOfTwin2+":81")
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("fragmentation needed", func(t *testing.T) {
		// The way to the pod narrows behind the worker.
		n.worker2.run(t, "ip route replace 10.7.1.10/32 dev cni0 mtu lock 1300; ip link set pod0 mtu 1300")
		defer n.worker2.run(t, "ip route del 10.7.1.10/32; ip link set pod0 mtu 1500")
		c, err := dialFrom(t, n.worker1.pod, "udp4", serviceOfTwin2+":81")
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.(*net.UDPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		option := func(get bool, name, value int) (got int) {
			if err := raw.Control(func(fd uintptr) {
				if get {
					got, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, name)
				} else {
					err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, name, value)
				}
			}); err != nil {
				t.Fatal(err)
			}
			return got
		}
		option(false, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		eventually(t, 5*time.Second, "the sender learns the path's MTU", func() bool {
			_, _ = c.Write(make([]byte, 1340))
			return option(true, unix.IP_MTU, 0) == 1300
		})
	})
}

func (n *twins) backends(t *testing.T) {
	old, err := dialFrom(t, n.worker1.pod, "tcp4", serviceOfTwin2+":80")
	if err != nil {
		t.Fatal(err)
	}
	n.tellTwins(t, v1alpha1.MemberActive, []string{"10.7.0.10"})
	eventually(t, 5*time.Second, "only the gateway's pod answers", func() bool {
		for range 20 {
			if server, _, err := ask(t, n.worker1.pod, "tcp4", serviceOfTwin2+":80"); err != nil || server != "gw2" {
				return false
			}
		}
		return true
	})
	if _, err := old.Write([]byte("still there?")); err != nil {
		t.Error(err)
	}
	if n, err := old.Read(make([]byte, 64)); err != nil || n == 0 {
		t.Errorf("a connection from before is lost: %v", err)
	}
	n.tellTwins(t, v1alpha1.MemberActive, nil)
	eventually(t, 5*time.Second, "without backends it is unreachable", func() bool {
		_, _, err := ask(t, n.worker1.pod, "tcp4", serviceOfTwin2+":80")
		return errors.Is(err, syscall.EHOSTUNREACH)
	})
	n.tellTwins(t, v1alpha1.MemberActive, []string{"10.7.0.10", "10.7.1.10"})
	eventually(t, 5*time.Second, "answered again", func() bool {
		_, _, err := ask(t, n.worker1.pod, "tcp4", serviceOfTwin2+":80")
		return err == nil
	})
}

// oneElement shows that rules that do not change stay, with their handles: the table is not written anew.
func (n *twins) oneElement(t *testing.T) {
	var o node.Objects
	if err := n.gw2.read("cluster.json", &o); err != nil {
		t.Fatal(err)
	}
	o.GlobalAllocations = append(o.GlobalAllocations, ingressOf("second", v1alpha1.IngressAllocation{IP: "120.2.0.11",
		Ports: []v1alpha1.GlobalPort{{Protocol: corev1.ProtocolTCP, Port: 80,
			Backends: []v1alpha1.GlobalBackend{{IP: "10.7.1.10", Port: 8080}}}}}))
	if err := n.gw2.write("cluster.json", o); err != nil {
		t.Fatal(err)
	}
	handle := func() string { return n.gw2.run(t, "nft -a list chain ip sealane guard | md5sum") }
	before := handle()
	_ = n.gw2.agent.Process.Signal(syscall.SIGHUP)
	eventually(t, 5*time.Second, "the new service answers", func() bool {
		server, _, err := ask(t, n.worker1.pod, "tcp4", "120.2.0.11:80")
		return err == nil && server == "worker2"
	})
	if handle() != before {
		t.Error("rules that have not changed were written anew")
	}
}

func (n *twins) unassigned(t *testing.T) {
	// A kernel tells one host of no more than an error a second, and who connects does not ask each second.
	for _, m := range n.all() {
		m.run(t, "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit")
	}
	for name, from := range map[string]*exec.Cmd{"a worker's pod": n.worker1.pod, "a gateway": n.gw1.holder} {
		for _, to := range []string{"120.2.0.99:80", "120.2.0.140:80", serviceOfTwin2 + ":443"} {
			if _, err := dialFrom(t, from, "tcp4", to); !errors.Is(err, syscall.EHOSTUNREACH) {
				t.Errorf("%s to %s: %v", name, to, err)
			}
		}
		const twice = 1500 * time.Millisecond // the second SYN is sent after a second
		if _, err := dialFor(t, twice, from, "tcp4", "120.2.0.128:22"); err == nil {
			t.Errorf("%s connects to the gateway itself", name)
		}
	}
}

// ownNames: a cluster's own block leads nowhere from within, not to the default route either.
func (n *twins) ownNames(t *testing.T) {
	for _, to := range []string{serviceOfTwin1 + ":80", "120.1.0.99:80"} {
		for _, from := range []*exec.Cmd{n.worker1.pod, n.gw1.pod, n.worker1.holder} {
			if _, err := dialFrom(t, from, "tcp4", to); !errors.Is(err, syscall.EHOSTUNREACH) {
				t.Errorf("to %s: %v", to, err)
			}
		}
	}
	if server, client, err := ask(t, n.worker1.pod, "tcp4", "10.7.1.10:8080"); err != nil || server != "worker1" ||
		client.String() != "10.7.1.10" {
		t.Errorf("the own pod: %s sees %s, %v", server, client, err)
	}
}

// hostile: a gateway does not send what is not translated, and one that does, or that sends from addresses of others,
// is not heard.
func (n *twins) hostile(t *testing.T) {
	n.gw1.run(t, `nft add table ip evil; nft add chain ip evil out '{ type filter hook output priority -400; }'
		nft add rule ip evil out udp dport 7777 notrack`)
	n.gw2.run(t, `nft add chain ip test arrived '{ type filter hook prerouting priority -299; }'
		nft add rule ip test arrived iifname sl-c0 udp dport 7777 counter comment arrived`)
	inNetworkOf(t, n.gw1.holder, func() error {
		if err := sendRaw(udp4("10.7.1.10", serviceOfTwin2, 7777, []byte("x")))(); !errors.Is(err, syscall.EPERM) {
			return fmt.Errorf("a pod's address is sent: expected EPERM, found %w", err)
		}
		return nil
	})
	send := func(source string) {
		n.gw1.run(t, "nft delete table ip sealane 2>/dev/null || true")
		inNetworkOf(t, n.gw1.holder, func() error {
			_ = sendRaw(udp4(source, serviceOfTwin2, 7777, []byte("x")))() // the table may be back already
			return nil
		})
	}
	for _, source := range []string{"10.7.1.10", "120.9.0.1", "120.2.0.130"} {
		for range 10 {
			send(source)
		}
	}
	if got := n.gw2.counted(t, "arrived"); got != 0 {
		t.Errorf("%d packets from addresses of others arrive", got)
	}
	eventually(t, 5*time.Second, "one of its own arrives, or this could not fail", func() bool {
		send("120.1.0.130")
		return n.gw2.counted(t, "arrived") > 0
	})
}
