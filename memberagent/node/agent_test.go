// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/memberagent/node"
)

// machine is a node with a pod, .10 and ::10 of its pod networks: namespaces, a directory for its cluster's
// objects and its resolv.conf, and the agent when it runs. The namespaces outlive the agent.
type machine struct {
	directory
	name, cluster string
	// ip and ip6 are the node's addresses, pods and pods6 the first halves of its pods'.
	ip, ip6, pods, pods6 string
	holder, pod, agent   *exec.Cmd
	// published is what the machine was last heard to publish, where a relay passes that on.
	published *v1alpha1.Endpoint
	// ipv4Only says that the machine, not its pod, has IPv6 disabled.
	ipv4Only bool
}

// network is two clusters of both families on one underlay: c1 with a gateway and a worker, c2 with a gateway. With
// gw3 c2 has a second, with gw4 c1, and with worker2 c2 has a worker.
type network struct {
	gw1, worker1, gw2, gw3, gw4, worker2 *machine
	// mesh are the machines that are published to the nodes of the other cluster.
	mesh []*machine
	// keys that clusters are asked for, and the machines that hear of nothing; a relay's mutex guards them.
	keys map[string]v1alpha1.PeeringKeys
	deaf map[*machine]bool
}

// Name servers of every machine: two that are behind other networks, and one among the nodes.
const resolver, resolver6, silentResolver = "198.51.100.53", "2001:db8:53::53", "172.31.1.53"

// newNetwork starts it, with IPv6 disabled on the machines named.
func newNetwork(t *testing.T, ipv4Only ...string) *network {
	t.Helper()
	run(t, "ip link add under type bridge; ip link set under up; ip link set lo up")
	// A namespace that ends takes its links along only a little later.
	t.Cleanup(func() {
		run(t, "ip link del under; for l in gw1 worker1 gw2 gw3 gw4 worker2; do ip link del $l 2>/dev/null || true; done")
	})
	n := &network{
		gw1:     newMachine(t, "gw1", "c1", 1, "10.8.0", "fd08:0:0:0"),
		worker1: newMachine(t, "worker1", "c1", 2, "10.8.1", "fd08:0:0:1"),
		gw2:     newMachine(t, "gw2", "c2", 3, "10.9.0", "fd09:0:0:0"),
	}
	n.disableIPv6(t, ipv4Only)
	n.tell(t, v1alpha1.MemberActive)
	for _, m := range n.all() {
		m.start(t)
	}
	return n
}

func (n *network) disableIPv6(t *testing.T, names []string) {
	t.Helper()
	for _, m := range n.all() {
		if slices.Contains(names, m.name) && !m.ipv4Only {
			m.ipv4Only = true
			m.run(t, "for d in all default; do echo 1 > /proc/sys/net/ipv6/conf/$d/disable_ipv6; done")
		}
	}
}

func (n *network) all() []*machine {
	return slices.DeleteFunc([]*machine{n.gw1, n.worker1, n.gw2, n.gw3, n.gw4, n.worker2},
		func(m *machine) bool { return m == nil })
}

func newMachine(t *testing.T, name, cluster string, number int, pods, pods6 string) *machine {
	t.Helper()
	m := &machine{directory: directory(filepath.Join(t.TempDir(), name)), name: name, cluster: cluster,
		ip: fmt.Sprintf("172.31.1.%d", number), ip6: fmt.Sprintf("fd31::%d", number), pods: pods, pods6: pods6}
	if err := os.Mkdir(string(m.directory), 0o700); err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf("nameserver %s\nnameserver %s\nnameserver %s\n", silentResolver, resolver, resolver6)
	if err := os.WriteFile(m.path("resolv.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	m.holder, m.pod = namespace(t), namespace(t)
	t.Cleanup(func() { m.stop(t, syscall.SIGKILL) })
	run(t, fmt.Sprintf("ip link add %s type veth peer name eth0 netns %d; ip link set %s master under up", name,
		m.holder.Process.Pid, name))
	m.run(t, fmt.Sprintf(`for f in forwarding accept_dad; do
			for d in all default; do echo $([ $f = forwarding ] && echo 1 || echo 0) > /proc/sys/net/ipv6/conf/$d/$f; done
		done
		ip link set lo up; ip link set eth0 up; ip addr add %s/24 dev eth0; ip addr add %s/64 dev eth0 nodad
		ip link add cni0 type bridge; ip link set cni0 up; ip addr add %s.1/24 dev cni0; ip addr add %s::1/64 dev cni0 nodad
		echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter
		iptables-nft -P FORWARD DROP; ip6tables-nft -P FORWARD DROP
		ip link add pod0 type veth peer name eth0 netns %d; ip link set pod0 master cni0 up`,
		m.ip, m.ip6, pods, pods6, m.pod.Process.Pid))
	if out, err := within(m.pod, fmt.Sprintf(`ip link set lo up; ip link set eth0 up; ip addr add %[1]s.10/24 dev eth0
		ip addr add %[2]s::10/64 dev eth0 nodad
		ip route add default via %[1]s.1; ip -6 route add default via %[2]s::1`, pods, pods6)).CombinedOutput(); err != nil {
		t.Fatalf("set up the pod of %s: %v\n%s", name, err, out)
	}
	return m
}

// namespace starts a process that holds a network namespace until the test ends.
func namespace(t *testing.T) *exec.Cmd {
	t.Helper()
	holder := exec.CommandContext(context.WithoutCancel(t.Context()), "sleep", "infinity")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	})
	return holder
}

// within prepares a script in a holder's network namespace.
func within(holder *exec.Cmd, script string) *exec.Cmd {
	return exec.CommandContext(context.Background(), "nsenter", "-t", fmt.Sprint(holder.Process.Pid), "-n", "sh",
		"-ec", script)
}

func (m *machine) command(script string) *exec.Cmd { return within(m.holder, script) }

func (m *machine) run(t *testing.T, script string) string {
	t.Helper()
	out, err := m.command(script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %s: %v\n%s", m.name, script, err, out)
	}
	return string(out)
}

func run(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-ec",
		script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// start runs the agent in the machine's network namespace and a mount namespace of its own, and returns when a
// SIGHUP tells the agent of a change; one that came before would end it.
func (m *machine) start(t *testing.T) {
	t.Helper()
	_ = os.Remove(m.path("state.json"))
	m.agent = m.newAgent(t)
}

// newAgent starts another agent on the machine, and returns once it listens.
func (m *machine) newAgent(t *testing.T) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	agent := exec.CommandContext(context.WithoutCancel(t.Context()), "nsenter", "-t", fmt.Sprint(m.holder.Process.Pid),
		"-n", self, "-agent", string(m.directory))
	agent.Stderr = os.Stderr
	agent.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	agent.Stdin = strings.NewReader("go\n")
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != listening {
		t.Fatalf("%s: the agent did not come up: it said %q, %v", m.name, line, err)
	}
	return agent
}

func (m *machine) stop(t *testing.T, s syscall.Signal) {
	t.Helper()
	if m.agent == nil {
		return
	}
	_ = m.agent.Process.Signal(s)
	if err := m.agent.Wait(); err != nil && s == syscall.SIGTERM {
		t.Errorf("%s: agent ended with %v", m.name, err)
	}
	m.agent = nil
}

// tell gives every machine its cluster's objects.
func (n *network) tell(t *testing.T, phase v1alpha1.MemberPhase) {
	t.Helper()
	networks := map[string]v1alpha1.Networks{
		"c1": {PodCIDRs: []string{"10.8.0.0/16", "fd08::/48"}, ServiceCIDRs: []string{"10.88.0.0/16", "fd88::/112"}},
		"c2": {PodCIDRs: []string{"10.9.0.0/16", "fd09::/48"}, ServiceCIDRs: []string{"10.99.0.0/16", "fd99::/112"}},
	}
	endpoints, gateways := map[string][]v1alpha1.Endpoint{}, map[string][]v1alpha1.Gateway{}
	for _, m := range []*machine{n.gw1, n.gw2, n.gw3, n.gw4} {
		if m != nil {
			e := m.endpoint(t, len(endpoints[m.cluster]))
			endpoints[m.cluster] = append(endpoints[m.cluster], e)
			gateways[m.cluster] = append(gateways[m.cluster], v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: m.name},
				Spec: v1alpha1.GatewaySpec{Slot: e.Slot}, Status: v1alpha1.GatewayStatus{Endpoint: &e}})
		}
	}
	others := map[string]string{"c1": "c2", "c2": "c1"}
	for _, m := range n.all() {
		if n.deaf[m] {
			continue
		}
		other := others[m.cluster]
		o := node.Objects{Peering: &v1alpha1.Peering{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName},
			Spec: v1alpha1.PeeringSpec{
				Phase: phase, ClusterSet: "default", ClusterID: m.cluster, Networks: networks[m.cluster],
				Cable:       v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
				HealthCheck: v1alpha1.HealthCheckSpec{IntervalMilliseconds: 100, FailureThreshold: 3},
				Keys:        n.keys[m.cluster],
				RemoteClusters: []v1alpha1.RemoteCluster{{
					Name: other, Networks: networks[other], Endpoints: endpoints[other],
				}},
			},
		}}
		o.Gateways = gateways[m.cluster]
		n.tellMesh(t, other, &o.Peering.Spec.RemoteClusters[0])
		for _, k := range n.all() {
			if k.cluster == m.cluster {
				o.Nodes = append(o.Nodes, corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: k.name},
					Spec:       corev1.NodeSpec{PodCIDRs: []string{k.pods + ".0/24", k.pods6 + "::/64"}},
					Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
						{Type: corev1.NodeInternalIP, Address: k.ip}, {Type: corev1.NodeInternalIP, Address: k.ip6},
					}},
				})
			}
		}
		if err := m.write("cluster.json", o); err != nil {
			t.Fatal(err)
		}
		if m.agent != nil {
			_ = m.agent.Process.Signal(syscall.SIGHUP)
		}
	}
}

// endpoint is what the machine publishes as a gateway. Nobody answers at its first address: the agents
// have to find the other.
func (m *machine) endpoint(t *testing.T, slot int) v1alpha1.Endpoint {
	t.Helper()
	var public, next string
	if m.published != nil {
		public, next = m.published.PublicKey, m.published.NextPublicKey
	} else {
		key, _, err := cable.LoadKey(string(m.directory))
		if err != nil {
			t.Fatal(err)
		}
		public = key.PublicKey().String()
	}
	return v1alpha1.Endpoint{Gateway: m.name, Slot: int32(slot), PublicKey: public, NextPublicKey: next, MTU: 1420,
		IPv4Probes: m.ipv4Only,
		Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPrivate, IP: "172.31.1.99"},
			{Type: v1alpha1.AddressPrivate, IP: m.ip}}}
}

// eventually polls until the condition holds.
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	within *= time.Duration(*slow)
	for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
		if holds() {
			return time.Since(start)
		}
		if time.Since(start) > within {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}

func (m *machine) pings(to string, flags string) bool {
	return m.command("ping -c1 -W1 "+flags+" "+to).Run() == nil
}

func (m *machine) connected() bool {
	var s v1alpha1.GatewayStatus
	return m.read("status.json", &s) == nil && len(s.Connections) == 1 &&
		s.Connections[0].Status == v1alpha1.ConnectionConnected
}

func (m *machine) says(programmed string) bool {
	var have node.NodeState
	return m.read("state.json", &have) == nil && have.Programmed == programmed
}

// ours lists what of Sealane is on the machine.
func (m *machine) ours(t *testing.T) string {
	t.Helper()
	return m.run(t, `ip -o link | grep -o 'sl-[a-z0-9]*' || true
		for f in -4 -6; do
			ip $f rule | grep 'lookup 510[012]' || true
			ip $f route show table all | grep 'table 510[012]' || true
		done
		nft list tables | grep sealane | sort || true
		iptables-nft -S FORWARD | grep sealane || true; ip6tables-nft -S FORWARD | grep sealane || true`)
}

func TestTwoClusters(t *testing.T) {
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
	n.gw2.stop(t, syscall.SIGKILL)
	if *wanted == string(v1alpha1.CableKernel) && !n.worker1.pings("10.9.0.10", "") {
		t.Error("the kernel's tunnel went with the agent")
	}
	n.gw2.start(t)
	gap := eventually(t, 5*time.Second, "traffic again", func() bool { return n.worker1.pings("10.9.0.10", "") })
	t.Logf("gap %s", gap)
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
	n.gw2.run(t, "ip link set eth0 down")
	eventually(t, 3*time.Second, "error", func() bool {
		return n.gw1.read("status.json", &s) == nil && s.Connections[0].Status == v1alpha1.ConnectionError
	})
	n.gw2.run(t, "ip link set eth0 up")
	eventually(t, 20*time.Second, "connected", n.gw1.connected)
}

func (n *network) othersBreak(t *testing.T) {
	n.gw1.run(t, "ip link del sl-c0; ip route flush table 5100")
	eventually(t, 15*time.Second, "traffic again", func() bool { return n.worker1.pings("10.9.0.10", "") })
	whole := n.gw1.ours(t)
	n.gw1.run(t, "nft delete table ip sealane; iptables-nft -F FORWARD; ip rule del pref 105")
	eventually(t, 5*time.Second, "as before", func() bool { return n.gw1.ours(t) == whole })
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
	eventually(t, 5*time.Second, "as before", func() bool { return m.ours(t) == whole })
	before := answers()
	eventually(t, 5*time.Second, "the service still answers", func() bool { return answers() > before+3 })
}

func (n *network) peeringIsMissing(t *testing.T) {
	var o node.Objects
	if err := n.gw1.read("cluster.json", &o); err != nil {
		t.Fatal(err)
	}
	kept := o.Peering
	o.Peering = nil
	if err := n.gw1.write("cluster.json", o); err != nil {
		t.Fatal(err)
	}
	n.gw1.stop(t, syscall.SIGKILL)
	n.gw1.start(t)
	eventually(t, 15*time.Second, "traffic again", func() bool { return n.worker1.pings("10.9.0.10", "") })
	o.Peering = kept
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
		for f in -4 -6; do ip $f route flush table 5100; ip $f rule del pref 105; ip $f rule del pref 103 || true; done
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
