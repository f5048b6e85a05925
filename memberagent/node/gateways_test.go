// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"cmp"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

var deviceOf = regexp.MustCompile(`dev (sl-\S+)|via (\S+) dev sl-vx`)

// hops lists where a machine's route to a prefix leads, sorted: cables, and nodes over the overlay.
func (m *machine) hops(prefix string) []string {
	family := "-4"
	if strings.Contains(prefix, ":") {
		family = "-6"
	}
	out, err := m.command("ip " + family + " route show " + prefix + " table 5100 metric 100").CombinedOutput()
	if err != nil {
		return []string{string(out)}
	}
	var hops []string
	for _, match := range deviceOf.FindAllStringSubmatch(string(out), -1) {
		if match[2] != "" {
			hops = append(hops, match[2])
		} else if match[1] != "sl-vx" {
			hops = append(hops, match[1])
		}
	}
	slices.Sort(hops)
	return hops
}

// carries says whether a machine's traffic to a prefix goes by these hops and no others.
func (m *machine) carries(prefix string, hops ...string) bool {
	return slices.Equal(m.hops(prefix), hops)
}

// highlyAvailable is a network with two gateways and a worker in each cluster, in which kube-proxy's rule drops what
// connection tracking calls invalid. IPv6 is disabled on the machines named.
func highlyAvailable(t *testing.T, ipv4Only ...string) *network {
	t.Helper()
	return highlyAvailableBy(t, "", ipv4Only...)
}

// highlyAvailableBy is one whose clusters reach each other by a cable; empty is WireGuard, of which nobody is told.
func highlyAvailableBy(t *testing.T, cable v1alpha1.CableDriver, ipv4Only ...string) *network {
	t.Helper()
	n := withoutMachines(t)
	n.gw1 = n.newMachine(t, "gw1", "c1", 1, "10.8.0", "fd08:0:0:0")
	n.worker1 = n.newMachine(t, "worker1", "c1", 2, "10.8.1", "fd08:0:0:1")
	n.gw2 = n.newMachine(t, "gw2", "c2", 3, "10.9.0", "fd09:0:0:0")
	n.gw3 = n.newMachine(t, "gw3", "c2", 4, "10.9.1", "fd09:0:0:1")
	n.gw4 = n.newMachine(t, "gw4", "c1", 5, "10.8.2", "fd08:0:0:2")
	n.worker2 = n.newMachine(t, "worker2", "c2", 6, "10.9.2", "fd09:0:0:2")
	n.disableIPv6(t, ipv4Only)
	if cable != "" {
		n.cables = map[string]v1alpha1.CableDriver{"c1": cable, "c2": cable}
	}
	if cable == byIPsec {
		withIPsec(t, n.gateways()...)
	}
	n.tell(t, v1alpha1.MemberActive)
	for _, m := range n.all() {
		m.start(t)
	}
	for _, m := range n.all() {
		for _, iptables := range []string{"iptables-nft", "ip6tables-nft"} {
			m.run(t, iptables+" -I FORWARD -m conntrack --ctstate INVALID -j DROP")
		}
	}
	n.settled(t)
	// The CNIs, by which ICMP errors come too, and c2's proxy with a service whose backend is the worker's pod.
	for _, m := range n.all() {
		n.cni(t, m)
		m.forwardsItsPods(t)
		if m.cluster == "c2" {
			// Nodes have a route for services, for what their own processes send there.
			m.run(t, fmt.Sprintf(`ip route add 10.99.0.0/16 dev eth0
			nft add table ip proxy
			nft add chain ip proxy services '{ type nat hook prerouting priority dstnat; }'
			nft add rule ip proxy services ip daddr %s dnat to %s.10`, serviceOfC2, n.worker2.pods))
		}
	}
	return n
}

// cni routes the pods of the other nodes of a machine's cluster.
func (n *network) cni(t *testing.T, m *machine) {
	t.Helper()
	for _, other := range n.all() {
		if m != other && m.cluster == other.cluster {
			m.run(t, fmt.Sprintf("ip route replace %s.0/24 via %s", other.pods, other.ip))
			if !m.ipv4Only && !other.ipv4Only {
				m.run(t, fmt.Sprintf("ip -6 route replace %s::/64 via %s", other.pods6, other.ip6))
			}
		}
	}
}

// remotePods are the pods of IPv4 that those of a cluster reach in the other one.
var remotePods = map[string]string{"c1": "10.9.0.0/16", "c2": "10.8.0.0/16"}

// cablesOf are those of a gateway to the two of the other cluster, by their slots.
func (n *network) cablesOf(m *machine) []string {
	link := map[v1alpha1.CableDriver]string{byVXLAN: "sl-cv", byIPsec: "sl-ci"}[n.cables[m.cluster]]
	link = cmp.Or(link, "sl-c")
	return []string{link + "0", link + "1"}
}

// settled waits until every node's traffic is spread over all gateways.
func (n *network) settled(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, "all gateways carry", func() bool {
		for _, m := range []*machine{n.gw1, n.gw4} {
			cables := n.cablesOf(m)
			if !m.carries("10.9.0.0/16", cables...) || !m.ipv4Only && !m.carries("fd09::/48", cables...) {
				return false
			}
		}
		for _, m := range []*machine{n.gw2, n.gw3} {
			if !m.carries("10.8.0.0/16", n.cablesOf(m)...) {
				return false
			}
		}
		return n.worker1.carries("10.9.0.0/16", n.gw1.ip, n.gw4.ip) && n.worker2.carries("10.8.0.0/16", n.gw2.ip, n.gw3.ip)
	})
}

// mayDie has a gateway fail and return, and fails the test unless flows go on meanwhile. gone is called while the
// gateway is away.
func (n *network) mayDie(t *testing.T, flows []*flow, m *machine, fault fault, gone func()) {
	t.Helper()
	most := allowed{lost: 200, outage: 2 * time.Second}
	// What a gateway has translated comes back to it alone, by the overlay that it does not hear.
	most.exempt = func(f *flow) bool {
		return strings.HasPrefix(fault.name, "overlay") && strings.Contains(f.name, serviceOfC2)
	}
	s := begin(flows)
	fault.do(t, m)
	s.lasts(t, 3*time.Second)
	gone()
	s.check(t, "lost", most)
	s = begin(flows)
	fault.repair(t, m)
	n.settled(t)
	s.check(t, "returned", most)
}

// TestGatewaysMayDieByOtherCables than WireGuard's, within the same bounds. By VXLAN the kernel carries on without an
// agent, and WireGuard carries where VXLAN is cut. By IPsec charon dies with its container, and nothing is in clear
// meanwhile.
func TestGatewaysMayDieByOtherCables(t *testing.T) {
	t.Parallel()
	killed := ""
	if espOfKernel() {
		killed = "sl-ci1"
	}
	for _, c := range []struct {
		cable v1alpha1.CableDriver
		port  string
		// What the others send by to a gateway of slot 1 that is killed, and to one of slot 0 whose cables are cut; empty
		// if they send to its sibling alone.
		killed, cut string
	}{{byVXLAN, "4533", "sl-cv1", "sl-c0"}, {byIPsec, "4534", killed, ""}} {
		t.Run(string(c.cable), func(t *testing.T) {
			t.Parallel()
			n := highlyAvailableBy(t, c.cable)
			if c.cable == byIPsec {
				n.looksForIPsec(t)
			}
			kill := func(t *testing.T, m *machine) {
				if c.cable == byIPsec {
					m.killIPsec()
				}
				m.stop(t, syscall.SIGKILL)
			}
			start := func(_ *testing.T, m *machine) {
				if c.cable == byIPsec {
					m.endIPsec = m.runIPsec(t) // for as long as this test
				}
				m.start(t)
			}
			flows := n.flows(t)
			for _, f := range []struct {
				fault
				of      *machine
				slot    int
				instead string
			}{
				{n.lasting()[0], n.gw1, 0, ""},
				{fault{"killed", kill, start}, n.gw3, 1, c.killed},
				{deaf("cables cut in one direction", c.port), n.gw2, 0, c.cut},
			} {
				t.Run(f.of.name+" "+f.name, func(t *testing.T) {
					n.mayDie(t, flows, f.of, f.fault, func() {
						for _, m := range n.gateways() {
							want := n.cablesOf(m)
							want[f.slot] = f.instead
							want = slices.DeleteFunc(want, func(link string) bool { return link == "" })
							if m.cluster != f.of.cluster && !m.carries(remotePods[m.cluster], want...) {
								t.Errorf("%s sends by %v, want by %v", m.name, m.hops(remotePods[m.cluster]), want)
							}
						}
					})
				})
			}
			if c.cable == byIPsec {
				n.sealed(t)
			}
		})
	}
}

// TestGatewaysMayDie: of two gateways in each cluster any one is lost in any way, and no connection breaks, nor does a
// new one fail.
func TestGatewaysMayDie(t *testing.T) {
	t.Parallel()
	n := highlyAvailable(t)
	flows := n.flows(t)
	// Each fault at one gateway of each cluster; TestGatewaysWalk tries them at all others.
	for i, fault := range n.lasting() {
		for _, m := range []*machine{n.gw1, []*machine{n.gw3, n.gw2}[i%2]} {
			t.Run(m.name+" "+fault.name, func(t *testing.T) {
				n.mayDie(t, flows, m, fault, func() {})
			})
		}
	}
	t.Run("every cable loses half of its packets", func(t *testing.T) {
		const lossy = `iptables-nft -t raw -%s PREROUTING -p udp --dport 4500:4531 ` +
			`-m statistic --mode random --probability 0.5 -j DROP`
		gateways := []*machine{n.gw1, n.gw2, n.gw3, n.gw4}
		for _, m := range gateways {
			m.run(t, fmt.Sprintf(lossy, "I"))
		}
		time.Sleep(6 * time.Second) // by now they have failed often, and each is held for longer than this takes
		s := begin(flows)
		time.Sleep(6 * time.Second)
		for i, seen := range s.end() {
			f := flows[i]
			t.Logf("%s: %s", f.name, seen)
			// TCP waits longer each time that what it sends again is lost too, as SYNs are, and what a gateway has translated
			// stays with that one.
			datagrams := strings.HasPrefix(f.name, "udp") && !strings.Contains(f.name, serviceOfC2)
			broken := len(seen.broken) > 0 && !strings.HasPrefix(f.name, "connects")
			if broken || datagrams && seen.silence > 2*time.Second*time.Duration(*slow) {
				t.Errorf("%s: expected at most 2 s of silence, found %s", f.name, seen)
			}
		}
		for _, m := range gateways {
			m.run(t, fmt.Sprintf(lossy, "D"))
		}
		n.settled(t)
	})
}

// ofTheGateway starts flows of a gateway's own pod and processes with a worker of the other cluster, which end with the
// test.
func (n *network) ofTheGateway(t *testing.T, m *machine) []*flow {
	t.Helper()
	other := map[string]*machine{"c1": n.worker2, "c2": n.worker1}[m.cluster]
	var out []*flow
	for i, f := range []struct {
		from, to *exec.Cmd
		at       string
	}{
		{m.pod, other.pod, other.pods + ".10"}, {m.pod, other.pod, "[" + other.pods6 + "::10]"},
		{other.pod, m.pod, m.pods + ".10"}, {other.pod, m.pod, "[" + m.pods6 + "::10]"},
		{m.holder, other.pod, other.pods + ".10"},
	} {
		at := fmt.Sprintf("%s:%d", f.at, 7300+i)
		out = append(out, udpFlow(t, f.from, f.to, at, at))
	}
	at := other.pods + ".10:7310"
	out = append(out, tcpFlow(t, m.pod, other.pod, at, at))
	for _, f := range out {
		eventually(t, 10*time.Second, f.name+" flows", func() bool { s := f.since(0, -1); return s.sent-s.lost > 10 })
	}
	return out
}

// TestSiblingsPassAnswersOn: a gateway takes its cables for dead, by which others go on sending, since its probes are
// not answered. What services answer that it has translated goes by its sibling, and arrives.
func TestSiblingsPassAnswersOn(t *testing.T) {
	t.Parallel()
	n := highlyAvailable(t)
	// Services enough that requests for some pass by each gateway, with backends on a worker and on a gateway.
	const services = 8
	var asked []string
	for i, backend := range []*machine{n.worker2, n.gw2} {
		backend.serve(t)
		for j := range services {
			asked = append(asked, fmt.Sprintf("10.99.%d.%d", i+1, j+1))
		}
		for _, m := range []*machine{n.gw2, n.gw3} {
			m.run(t, fmt.Sprintf("nft add rule ip proxy services ip daddr 10.99.%d.0/24 dnat to %s.10", i+1, backend.pods))
		}
	}
	answer := func(when string) {
		t.Helper()
		for _, service := range asked {
			for _, network := range []string{"udp4", "tcp4"} {
				if _, _, err := ask(t, n.worker1.pod, network, service+":8080"); err != nil {
					t.Errorf("%s: %s %s: %v", when, network, service, err)
				}
			}
		}
	}
	answer("all is well")
	n.gw2.run(t, `nft add table ip test; nft add chain ip test pre '{ type filter hook prerouting priority -400; }'
		nft add rule ip test pre iifname "sl-c*" ip daddr 10.99.0.0/16 counter comment requests
		nft add table ip6 test; nft add chain ip6 test pre '{ type filter hook prerouting priority -400; }'
		nft add rule ip6 test pre iifname "sl-c*" icmpv6 type echo-reply drop`)
	eventually(t, 10*time.Second, "it hands over", func() bool { return n.gw2.carries("10.8.0.0/16", n.gw3.ip) })
	before := n.gw2.counted(t, "requests")
	answer("handed over")
	if n.gw2.counted(t, "requests") == before {
		t.Error("no request has passed by the gateway, so this could not fail")
	}
}

func (m *machine) hasCable() bool { return m.command("ip link show sl-c0").Run() == nil }

// TestGatewaysLeave: a gateway ends, or is to be none any more, and not a datagram is lost.
func TestGatewaysLeave(t *testing.T) {
	t.Parallel()
	n := highlyAvailable(t)
	flows := n.flows(t)
	for i, m := range []*machine{n.gw1, n.gw3, n.gw1} {
		t.Run(fmt.Sprintf("%d %s ends", i, m.name), func(t *testing.T) {
			all := slices.Concat(flows, n.ofTheGateway(t, m))
			loseNothing(t, all, func(s stretch) {
				m.stop(t, syscall.SIGTERM)
				s.lasts(t, 3*time.Second)
				m.start(t)
				n.settled(t)
			})
		})
	}
	others := []*machine{n.gw2, n.gw3, n.worker2}
	// tell the nodes of c1 of its gateways, and later those of c2.
	tell := func(t *testing.T, gateways ...*machine) {
		t.Helper()
		n.labelled = append([]*machine{n.gw2, n.gw3}, gateways...)
		n.tellSome(t, v1alpha1.MemberActive, n.gw1, n.gw4, n.worker1)
		eventually(t, 20*time.Second, "the worker hears", func() bool {
			var hops []string
			for _, g := range gateways {
				hops = append(hops, g.ip)
			}
			slices.Sort(hops)
			return n.worker1.carries("10.9.0.0/16", hops...)
		})
		n.tellSome(t, v1alpha1.MemberActive, others...)
	}
	// forgotten waits until c2 takes nothing more from the gateway of a slot: until then it answers one that returns, and
	// then it would not for a moment.
	forgotten := func(t *testing.T, slot int) {
		t.Helper()
		eventually(t, 20*time.Second, "the others have forgotten it", func() bool {
			show := fmt.Sprintf("ip link show sl-c%d", slot)
			return n.gw2.command(show).Run() != nil && n.gw3.command(show).Run() != nil
		})
	}
	slots := map[*machine]int{n.gw1: 0, n.gw4: 1}
	t.Run("a label goes and comes back", func(t *testing.T) {
		loseNothing(t, flows, func(s stretch) {
			tell(t, n.gw4)
			eventually(t, 20*time.Second, "no cable is left", func() bool { return !n.gw1.hasCable() })
			s.lasts(t, 3*time.Second)
			forgotten(t, slots[n.gw1])
			tell(t, n.gw4, n.gw1)
			n.settled(t)
		})
	})
	t.Run("the label of the only gateway moves", func(t *testing.T) {
		from, to := n.gw1, n.gw4
		tell(t, from)
		eventually(t, 20*time.Second, "one gateway", func() bool { return !to.hasCable() })
		forgotten(t, slots[to])
		loseNothing(t, flows, func(s stretch) {
			tell(t, from, to)
			n.settled(t)
			tell(t, to)
			eventually(t, 20*time.Second, "the other gateway", func() bool { return !from.hasCable() })
			s.lasts(t, 3*time.Second)
			forgotten(t, slots[from])
			from, to = to, from
		})
	})
}
