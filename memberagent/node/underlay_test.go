// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/discovery"
)

// underlayPod is a pod of a node's own network, as Spiderpool has it of macvlan. The kernels of test machines have no
// macvlan: the pod has a port at the switch, which passes nothing between it and its own node, as macvlan does. A
// second link leads to the node alone, for what the node has to translate or to route: in the pod for hijacked, on
// the node for the pod's addresses.
type underlayPod struct {
	on              *machine
	ip, ip6         string
	hijacked        []string
	router, router6 string
}

// A service of c1's with a pod on the worker, and an imported one; and a host of the nodes' VLAN that is none of a
// cluster's.
const (
	serviceOfC1, importOfC1 = "10.88.0.7", "10.88.0.8"
	stranger, stranger6     = "172.31.1.200", "fd31::200"
)

// attach gives the machine's pod such links, in place of that which it has.
func (n *network) attach(t *testing.T, p underlayPod) {
	t.Helper()
	m := p.on
	m.run(t, "ip link del pod0; ip link del cni0")
	n.run(t, fmt.Sprintf(`ip link add pod-%[1]s type veth peer name eth0 netns %[2]d; ip link set pod-%[1]s master under up
		nft add table bridge macvlan
		nft add chain bridge macvlan forward '{ type filter hook forward priority 0; }'
		nft add rule bridge macvlan forward iifname %[1]s oifname pod-%[1]s drop
		nft add rule bridge macvlan forward iifname pod-%[1]s oifname %[1]s drop`, m.name, m.pod.Process.Pid))
	m.run(t, fmt.Sprintf(`ip link add vethpod type veth peer name veth0 netns %d; ip link set vethpod up
		ip link set vethpod address 02:00:00:00:00:01`, m.pod.Process.Pid))
	script := fmt.Sprintf(`ip link set eth0 up; ip link set veth0 address 02:00:00:00:00:02; ip link set veth0 up
		ip addr add %[1]s/24 dev eth0; ip addr add %[2]s/64 dev eth0 nodad
		ip route add default via %[3]s; ip -6 route add default via %[4]s`, p.ip, p.ip6, p.router, p.router6)
	for _, of := range []struct{ family, ip, node string }{{"-4", p.ip, m.ip}, {"-6", p.ip6, m.ip6}} {
		script += fmt.Sprintf("\nip %[1]s route add %[2]s dev veth0; "+
			"ip neigh replace %[2]s lladdr 02:00:00:00:00:01 dev veth0 nud permanent", of.family, of.node)
		for _, cidr := range p.hijacked {
			if strings.Contains(cidr, ":") == (of.family == "-6") {
				script += fmt.Sprintf("\nip %s route add %s via %s dev veth0", of.family, cidr, of.node)
			}
		}
		// Without a priority the rule comes first, or after ours that are there later.
		m.run(t, fmt.Sprintf(`ip %[1]s rule add to %[2]s lookup 500; ip %[1]s route add %[2]s dev vethpod table 500
			ip neigh replace %[2]s lladdr 02:00:00:00:00:02 dev vethpod nud permanent`, of.family, of.ip))
	}
	if out, err := within(m.pod, script).CombinedOutput(); err != nil {
		t.Fatalf("set up the pod of %s: %v\n%s", m.name, err, out)
	}
}

// newUnderlay is a network in which c1's pods share VLANs with its nodes: the worker's pod that of the nodes, the
// gateway's another, and both of c1's machines forward what the pods send to the node, translate it like any other,
// and drop what connection tracking calls invalid. c2 is an overlay behind a router, with a pod on a gateway and on a
// worker.
func newUnderlay(t *testing.T) *network {
	t.Helper()
	n := withoutMachines(t)
	n.run(t, fmt.Sprintf(`ip addr add %s/24 dev under; ip addr add %s/64 dev under nodad
		ip addr add 172.31.1.254/24 dev under; ip addr add 172.31.2.254/24 dev under
		ip addr add 172.31.3.254/24 dev under
		for i in "" 0:0:2: 0:0:3:; do ip addr add fd31:$i:254/64 dev under nodad; done
		echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding`, stranger, stranger6))
	n.gw1 = n.newMachine(t, "gw1", "c1", 1, "10.8.0", "fd08:0:0:0")
	n.worker1 = n.newMachine(t, "worker1", "c1", 2, "10.8.1", "fd08:0:0:1")
	n.gw2 = n.newMachine(t, "gw2", "c2", 3, "10.9.0", "fd09:0:0:0")
	n.worker2 = n.newMachine(t, "worker2", "c2", 4, "10.9.1", "fd09:0:0:1")
	for _, m := range n.all() {
		router, router6 := "172.31.1.254", "fd31::254"
		if m.cluster == "c2" {
			router, router6 = "172.31.3.254", "fd31:0:0:3::254"
			m.run(t, "ip addr flush dev eth0 scope global")
			m.ip, m.ip6 = strings.Replace(m.ip, ".1.", ".3.", 1), strings.Replace(m.ip6, "fd31::", "fd31:0:0:3::", 1)
			m.run(t, fmt.Sprintf("ip addr add %s/24 dev eth0; ip addr add %s/64 dev eth0 nodad", m.ip, m.ip6))
		}
		m.run(t, fmt.Sprintf(`ip route add default via %s; ip -6 route add default via %s
			iptables-nft -I FORWARD -m conntrack --ctstate INVALID -j DROP
			ip6tables-nft -I FORWARD -m conntrack --ctstate INVALID -j DROP
			for i in cni0 vethpod; do for t in iptables ip6tables; do $t-nft -A FORWARD -i $i -j ACCEPT; done; done`,
			router, router6))
	}
	n.ofTheVLANs(t)
	n.tell(t, v1alpha1.MemberActive)
	return n
}

// ofTheVLANs makes c1 an underlay.
func (n *network) ofTheVLANs(t *testing.T) {
	t.Helper()
	hijacked := []string{"10.9.0.0/16", "10.99.0.0/16", "10.88.0.0/16", "fd09::/48", "fd99::/112", "fd88::/112"}
	n.attach(t, underlayPod{on: n.gw1, ip: "172.31.2.10", ip6: "fd31:0:0:2::10", hijacked: hijacked,
		router: "172.31.2.254", router6: "fd31:0:0:2::254"})
	n.attach(t, underlayPod{on: n.worker1, ip: "172.31.1.10", ip6: "fd31::10", hijacked: hijacked,
		router: "172.31.1.254", router6: "fd31::254"})
	var nodes []corev1.Node
	for _, m := range []*machine{n.gw1, n.worker1} {
		m.pods, m.pods6 = "", ""
		nodes = append(nodes, m.node())
		m.run(t, `for t in iptables ip6tables; do $t-nft -t nat -A POSTROUTING -o eth0 -j MASQUERADE; done
			for t in iptables ip6tables; do $t-nft -t nat -A POSTROUTING -o sl-+ -j MASQUERADE; done`+fmt.Sprintf(`
			nft add table ip proxy; nft add chain ip proxy services '{ type nat hook prerouting priority dstnat; }'
			nft add rule ip proxy services ip daddr %s dnat to 172.31.1.10
			nft add rule ip proxy services ip daddr %s dnat to 10.9.1.10`, serviceOfC1, importOfC1))
	}
	n.networks = map[string]v1alpha1.Networks{"c1": discovery.Networks(discovery.Hints{Nodes: nodes,
		CNI: []netip.Prefix{netip.MustParsePrefix("172.31.1.0/24"), netip.MustParsePrefix("172.31.2.0/24"),
			netip.MustParsePrefix("fd31::/64"), netip.MustParsePrefix("fd31:0:0:2::/64")},
		StatedServices: []netip.Prefix{netip.MustParsePrefix("10.88.0.0/16"), netip.MustParsePrefix("fd88::/112")},
	}, v1alpha1.Networks{})}
	n.elsewhere = []v1alpha1.NodeNetwork{
		{ObjectMeta: metav1.ObjectMeta{Name: "gw1"},
			Spec: v1alpha1.NodeNetworkSpec{PodCIDRs: []string{"172.31.2.10/32", "fd31:0:0:2::10/128"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "worker1"},
			Spec: v1alpha1.NodeNetworkSpec{PodCIDRs: []string{"172.31.1.10/32", "fd31::10/128"}}},
	}
}

// TestPodsOfAnUnderlay: pods that share their nodes' VLANs reach those of another cluster, and are reached, each with
// its own address, whichever node they are on; what is between the VLANs' hosts goes as it went, and hosts that are
// none of the cluster's are not reached from others.
func TestPodsOfAnUnderlay(t *testing.T) {
	t.Parallel()
	n := newUnderlay(t)
	for _, m := range n.all() {
		m.start(t)
		m.serve(t)
	}
	c1 := []vlanPod{{n.gw1, "172.31.2.10", "fd31:0:0:2::10"}, {n.worker1, "172.31.1.10", "fd31::10"}}
	c2 := []vlanPod{{n.gw2, "10.9.0.10", "fd09::10"}, {n.worker2, "10.9.1.10", "fd09:0:0:1::10"}}
	packets := n.capture(t)
	for _, a := range c1 {
		for _, b := range c2 {
			n.talk(t, a, b)
			n.talk(t, b, a)
		}
		n.asked(t, a.on, "tcp4", importOfC1, "worker2", a.ip)
	}
	for _, b := range c2 {
		n.asked(t, b.on, "udp4", serviceOfC1, "worker1", b.ip)
	}
	// As before: pods with each other, with nodes, their own and others, and with the VLAN's other hosts.
	for _, a := range c1 {
		for _, from := range []*exec.Cmd{n.gw1.pod, n.worker1.pod, n.gw1.holder, n.worker1.holder, n.underlay} {
			for _, address := range []string{a.ip, a.ip6} {
				if out, err := within(from, "ping -c1 -W2 "+address).CombinedOutput(); err != nil {
					t.Errorf("%s is not reached inside c1: %s", address, out)
				}
			}
		}
	}
	for _, address := range []string{stranger, stranger6} {
		if out, err := within(n.gw2.pod, "ping -c1 -W1 "+address).CombinedOutput(); err == nil {
			t.Errorf("a host that is none of c1's is reached: %s", out)
		}
	}
	if packets("control") == 0 {
		t.Error("the capture has not seen what pods of c1 say to each other")
	}
	if leaked := packets("clear"); leaked != 0 {
		t.Errorf("%d packets between the clusters were in clear on the underlay", leaked)
	}
}

// vlanPod is a machine's pod and its addresses.
type vlanPod struct {
	on      *machine
	ip, ip6 string
}

// talk wants one pod to reach another by ICMP of several sizes, UDP and TCP, with its own address.
func (n *network) talk(t *testing.T, from, to vlanPod) {
	t.Helper()
	name := from.on.name + " to " + to.on.name
	for _, address := range []string{to.ip, to.ip6} {
		eventually(t, 20*time.Second, name+": an answer of "+address, func() bool {
			return within(from.on.pod, "ping -c1 -W1 "+address).Run() == nil
		})
		// Of two large ones the first may be what finds the path's MTU.
		if out, err := within(from.on.pod, "ping -c2 -i0.1 -W2 -s4000 "+address).CombinedOutput(); err != nil {
			t.Errorf("%s: large packets to %s: %v\n%s", name, address, err, out)
		}
	}
	for _, network := range []string{"udp4", "tcp4"} {
		n.asked(t, from.on, network, to.ip, to.on.name, from.ip)
	}
}

// capture counts on the underlay what is between c1 and c2 in clear, and what c1's pods say to each other.
func (n *network) capture(t *testing.T) func(comment string) int {
	t.Helper()
	n.run(t, `nft -f - <<EOF
table bridge capture {
	chain seen {
		type filter hook prerouting priority 0;
		ip daddr { 10.9.0.0/16, 10.99.0.0/16 } counter comment "clear there"
		ip saddr { 10.9.0.0/16, 10.99.0.0/16 } counter comment "clear back"
		ip6 daddr { fd09::/48, fd99::/112 } counter comment "clear there, IPv6"
		ip6 saddr { fd09::/48, fd99::/112 } counter comment "clear back, IPv6"
		ip saddr 172.31.1.10 ip daddr 172.31.2.10 counter comment "control"
	}
}
EOF`)
	return func(comment string) int { return counted(t, n.command("nft list table bridge capture"), comment) }
}

// asked wants an answer of the pod of a machine, which sees a client.
func (n *network) asked(t *testing.T, from *machine, network, to, server, client string) {
	t.Helper()
	s, c, err := ask(t, from.pod, network, to+":8080")
	if err != nil || s != server || c.String() != client {
		t.Errorf("%s from %s to %s: expected %s to see %s, found %q, %s, %v", network, from.name, to, server, client, s, c,
			err)
	}
}
