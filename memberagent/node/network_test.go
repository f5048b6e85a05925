// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	// endIPsec ends what runs charon, as the end of the test does, killIPsec both at once, as when their container is
	// killed, and ipsecPods counts the directories that it has had.
	endIPsec, killIPsec func()
	ipsecPods           int
	// patience of what runs charon with one that hangs, on a machine that is not slow; 0 is the usual one.
	patience time.Duration
	// published is what the machine was last heard to publish, where a relay passes that on.
	published *v1alpha1.Endpoint
	// ipv4Only says that the machine, not its pod, has IPv6 disabled.
	ipv4Only bool
	// ipv6Only says that its node has an IPv6 address alone.
	ipv6Only bool
	// sources of the gateway's public addresses, as its node's annotation has them.
	sources string
	// cable by which others are told to reach it, where gateways meet over the internet.
	cable v1alpha1.CableDriver
}

// network is two clusters of both families on one underlay: c1 with a gateway and a worker, c2 with a gateway. With
// gw3 c2 has a second, with gw4 c1, with gw5 c1 a third, and with worker2 c2 has a worker.
type network struct {
	// underlay is the network namespace with the bridge between the machines, whose links are named as they are.
	underlay *exec.Cmd
	// subnet of the machines' IPv4 addresses, where it is not the usual one: their first three bytes.
	subnet string
	// cable of the gateways of an internet, or of a site; empty is WireGuard.
	cable                                     v1alpha1.CableDriver
	gw1, worker1, gw2, gw3, gw4, gw5, worker2 *machine
	// mesh are the machines that are published to the nodes of the other cluster.
	mesh []*machine
	// mode of all clusters; empty is the default.
	mode v1alpha1.GatewayMode
	// keys that clusters are asked for, and the machines that hear of nothing; a relay's mutex guards them.
	keys map[string]v1alpha1.PeeringKeys
	deaf map[*machine]bool
	// labelled are the machines that are to be gateways; nil is all that are named so.
	labelled []*machine
	// elsewhere are the NodeNetworks of c1.
	elsewhere []v1alpha1.NodeNetwork
	// health is how the tunnels are probed, where it is not as usual.
	health v1alpha1.HealthCheckSpec
	// networks of clusters that have others than usual.
	networks map[string]v1alpha1.Networks
	// cables by which clusters are told to reach the other one; then they publish where that goes.
	cables map[string]v1alpha1.CableDriver
	// algorithms that clusters are told for cables by IPsec, and the machines of whose key for these nobody is told.
	algorithms map[string]v1alpha1.IPsecAlgorithms
	keyless    map[*machine]bool
	// others are clusters that c1 is told of besides, of which there are no machines.
	others []v1alpha1.RemoteCluster
	// lastPort is the number of ports that TestGlobalThroughput has used.
	lastPort int
}

// Name servers of every machine: two that are behind other networks, and one among the nodes.
const resolver, resolver6, silentResolver = "198.51.100.53", "2001:db8:53::53", "172.31.1.53"

// newNetwork starts it, with IPv6 disabled on the machines named.
func newNetwork(t *testing.T, ipv4Only ...string) *network {
	t.Helper()
	n := withoutMachines(t)
	n.gw1 = n.newMachine(t, "gw1", "c1", 1, "10.8.0", "fd08:0:0:0")
	n.worker1 = n.newMachine(t, "worker1", "c1", 2, "10.8.1", "fd08:0:0:1")
	n.gw2 = n.newMachine(t, "gw2", "c2", 3, "10.9.0", "fd09:0:0:0")
	n.disableIPv6(t, ipv4Only)
	n.tell(t, v1alpha1.MemberActive)
	for _, m := range n.all() {
		m.start(t)
	}
	return n
}

// withoutMachines is an underlay alone.
func withoutMachines(t *testing.T) *network {
	t.Helper()
	n := &network{underlay: namespace(t)}
	n.run(t, "ip link add under type bridge; ip link set under up; ip link set lo up")
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
	return slices.DeleteFunc([]*machine{n.gw1, n.worker1, n.gw2, n.gw3, n.gw4, n.gw5, n.worker2},
		func(m *machine) bool { return m == nil })
}

func (n *network) newMachine(t *testing.T, name, cluster string, number int, pods, pods6 string) *machine {
	t.Helper()
	m := &machine{directory: directory(filepath.Join(t.TempDir(), name)), name: name, cluster: cluster,
		ip:  fmt.Sprintf("%s.%d", cmp.Or(n.subnet, "172.31.1"), number),
		ip6: fmt.Sprintf("fd31::%d", number), pods: pods, pods6: pods6}
	if err := os.Mkdir(string(m.directory), 0o700); err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf("nameserver %s\nnameserver %s\nnameserver %s\n", silentResolver, resolver, resolver6)
	if err := os.WriteFile(m.path("resolv.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	m.holder, m.pod = namespace(t), namespace(t)
	t.Cleanup(func() { m.stop(t, syscall.SIGKILL) })
	n.run(t, fmt.Sprintf("ip link add %s type veth peer name eth0 netns %d; ip link set %s master under up", name,
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

// command prepares a script on the underlay.
func (n *network) command(script string) *exec.Cmd { return within(n.underlay, script) }

func (n *network) run(t *testing.T, script string) {
	t.Helper()
	if out, err := n.command(script).CombinedOutput(); err != nil {
		t.Fatalf("underlay: %s: %v\n%s", script, err, out)
	}
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

// others are the clusters that those of machines are connected to.
var others = map[string]string{"c1": "c2", "c2": "c1"}

// tell gives every machine its cluster's objects.
func (n *network) tell(t *testing.T, phase v1alpha1.MemberPhase) {
	t.Helper()
	n.tellSome(t, phase, n.all()...)
}

// tellSome of the machines.
func (n *network) tellSome(t *testing.T, phase v1alpha1.MemberPhase, some ...*machine) {
	t.Helper()
	networks := map[string]v1alpha1.Networks{
		"c1": {PodCIDRs: []string{"10.8.0.0/16", "fd08::/48"}, ServiceCIDRs: []string{"10.88.0.0/16", "fd88::/112"}},
		"c2": {PodCIDRs: []string{"10.9.0.0/16", "fd09::/48"}, ServiceCIDRs: []string{"10.99.0.0/16", "fd99::/112"}},
	}
	maps.Copy(networks, n.networks)
	endpoints, gateways := map[string][]v1alpha1.Endpoint{}, map[string][]v1alpha1.Gateway{}
	for i, m := range []*machine{n.gw1, n.gw2, n.gw3, n.gw4} {
		if m != nil && (n.labelled == nil || slices.Contains(n.labelled, m)) {
			e := m.endpoint(t, i/2)
			if n.keyless[m] {
				e.IPsecPublicKey = ""
			}
			if n.cables != nil {
				e.Addresses = nil
				for _, ip := range m.addresses() {
					e.Addresses = append(e.Addresses, v1alpha1.EndpointAddress{Type: v1alpha1.AddressPrivate, IP: ip})
				}
			}
			endpoints[m.cluster] = append(endpoints[m.cluster], e)
			gateways[m.cluster] = append(gateways[m.cluster], v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: m.name},
				Spec: v1alpha1.GatewaySpec{Slot: e.Slot}, Status: v1alpha1.GatewayStatus{Endpoint: &e}})
		}
	}
	for _, m := range some {
		if n.deaf[m] {
			continue
		}
		other := others[m.cluster]
		o := node.Objects{Peering: &v1alpha1.Peering{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName},
			Spec: v1alpha1.PeeringSpec{
				Phase: phase, ClusterSet: "default", ClusterID: m.cluster, Networks: networks[m.cluster],
				Cable: v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800,
					IPsecAlgorithms: n.algorithms[m.cluster]},
				HealthCheck: cmp.Or(n.health, v1alpha1.HealthCheckSpec{IntervalMilliseconds: 100, FailureThreshold: 3}),
				Gateways:    v1alpha1.GatewaysSpec{Mode: n.mode},
				Keys:        n.keys[m.cluster],
				RemoteClusters: []v1alpha1.RemoteCluster{{
					Name: other, Cable: n.cables[m.cluster], Networks: networks[other], Endpoints: endpoints[other],
				}},
			},
		}}
		o.Gateways = gateways[m.cluster]
		if m.cluster == "c1" {
			o.NodeNetworks = n.elsewhere
			o.Peering.Spec.RemoteClusters = append(o.Peering.Spec.RemoteClusters, n.others...)
		}
		n.tellMesh(t, other, &o.Peering.Spec.RemoteClusters[0])
		for _, k := range n.all() {
			if k.cluster == m.cluster {
				o.Nodes = append(o.Nodes, k.node())
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

// node is the machine as its API server lists it; without pods of its own it has no pod CIDRs.
func (m *machine) node() corev1.Node {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}}
	if m.sources != "" {
		node.Annotations = map[string]string{v1alpha1.AnnotationPublicIP: m.sources}
	}
	if m.pods != "" {
		node.Spec.PodCIDRs = []string{m.pods + ".0/24", m.pods6 + "::/64"}
	}
	for _, ip := range m.addresses() {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	return node
}

// addresses of the machine.
func (m *machine) addresses() []string {
	if m.ipv6Only {
		return []string{m.ip6}
	}
	return []string{m.ip, m.ip6}
}

// endpoint is what the machine publishes as a gateway. Nobody answers at its first address: the agents
// have to find the other.
func (m *machine) endpoint(t *testing.T, slot int) v1alpha1.Endpoint {
	t.Helper()
	var public, next, ipsec string
	if m.published != nil {
		public, next, ipsec = m.published.PublicKey, m.published.NextPublicKey, m.published.IPsecPublicKey
	} else {
		key, _, err := cable.LoadKey(string(m.directory))
		if err != nil {
			t.Fatal(err)
		}
		public = key.PublicKey().String()
		if ipsecDir(string(m.directory)) != "" {
			ipsec = m.ipsecKey(t)
		}
	}
	return v1alpha1.Endpoint{Gateway: m.name, Slot: int32(slot), PublicKey: public, NextPublicKey: next, MTU: 1420,
		IPsecPublicKey: ipsec, IPv4Probes: m.ipv4Only,
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

// becomes waits until exactly this of Sealane is on the machine.
func (m *machine) becomes(t *testing.T, within time.Duration, want string) {
	t.Helper()
	within *= time.Duration(*slow)
	var have string
	for begin := time.Now(); time.Since(begin) < within; time.Sleep(50 * time.Millisecond) {
		if have = m.ours(t); have == want {
			return
		}
	}
	t.Fatalf("%s: not within %s: expected of Sealane:\n%s\nfound:\n%s", m.name, within, want, have)
}

// ours lists what of Sealane is on the machine.

func (m *machine) ours(t *testing.T) string {
	t.Helper()
	return m.run(t, `ip -o link | grep -o 'sl-[a-z0-9]*' || true
		for f in -4 -6; do
			ip $f rule | grep 'lookup 51[012][0-9]' || true
			ip $f route show table all | grep 'table 51[012][0-9]' || true
		done
		nft list tables | grep sealane | sort || true
		iptables-nft -S FORWARD | grep sealane || true; ip6tables-nft -S FORWARD | grep sealane || true`)
}
