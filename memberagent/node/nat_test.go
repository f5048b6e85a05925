// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/memberagent/node"
)

// Addresses of the internet in these tests, and of the gateways behind NAT, of which each site has the same.
const (
	internet                    = "203.0.113"
	routerOfC1, routerOfC2      = internet + ".1", internet + ".2"
	publicHost                  = internet + ".9"
	insideRouter, insideGateway = "172.31.1.254", "172.31.1.10"
	secondInside                = "172.31.1.11"
	nobody, nobodyElse          = internet + ".77", "172.31.1.77"
	balancer                    = internet + ".50"
	publicHostNumber            = 9
)

// newInternet is an underlay of routers and of gateways with public addresses.
func newInternet(t *testing.T) *network {
	t.Helper()
	n := withoutMachines(t)
	n.subnet = internet
	return n
}

// site is the network behind a new router of the internet, which translates the addresses of what is inside to its own
// and, as routers of homes and clouds do, drops what it does not expect. Its name is that of a cluster.
func (n *network) site(t *testing.T, name string, number int) *network {
	t.Helper()
	s := withoutMachines(t)
	s.cable = n.cable
	n.run(t, fmt.Sprintf("ip link add %s type veth peer name out netns %d; ip link set %[1]s master under up", name,
		s.underlay.Process.Pid))
	s.run(t, fmt.Sprintf(`ip addr add %s.%d/24 dev out; ip link set out up; ip addr add %s/24 dev under
		echo 1 > /proc/sys/net/ipv4/ip_forward
		nft -f - <<EOF
table ip router {
	chain pre { type nat hook prerouting priority dstnat; }
	chain post { type nat hook postrouting priority srcnat; oifname out masquerade; }
	chain forward {
		type filter hook forward priority filter; policy drop
		iifname under accept
		ct state established,related accept
		ct status dnat accept
	}
	chain input { type filter hook input priority filter; iifname out ct state new drop; }
}
EOF`, internet, number, insideRouter))
	return s
}

// forward gives the gateway inside the port of its cables, also to those who are inside themselves.
func (n *network) forward(t *testing.T, address string) {
	t.Helper()
	n.run(t, fmt.Sprintf(`nft add rule ip router pre ip daddr %s.0/24 udp dport 4500 dnat to %s
		nft add rule ip router post oifname under ct status dnat masquerade`, internet, address))
}

// balance is a load balancer that hands what comes for the gateway's cable to a node port of the gateway, from where
// the node's service proxy leads it on: each knows the answers by what it has translated.
func (n *network) balance(t *testing.T, gateway *machine) {
	t.Helper()
	const nodePort = 31500
	n.run(t, fmt.Sprintf(`ip addr add %s/24 dev out
		nft add rule ip router pre ip daddr %[1]s udp dport 4500 dnat to %s:%d`, balancer, gateway.ip, nodePort))
	gateway.run(t, fmt.Sprintf(`nft add table ip proxy
		nft 'add chain ip proxy pre { type nat hook prerouting priority dstnat; }'
		nft add rule ip proxy pre udp dport %d dnat to %s:4500`, nodePort, gateway.ip))
}

// inside is a gateway of a cluster behind the router.
func (n *network) inside(t *testing.T, cluster string, number int) *machine {
	t.Helper()
	m := n.gateway(t, cluster, number)
	m.run(t, "ip route add default via "+insideRouter)
	return m
}

// gateway of a cluster, c1 to c9.
func (n *network) gateway(t *testing.T, cluster string, number int) *machine {
	t.Helper()
	return n.gatewayOf(t, cluster, number, 0)
}

// gatewayOf a cluster that has several: the one of a slot.
func (n *network) gatewayOf(t *testing.T, cluster string, number, slot int) *machine {
	t.Helper()
	i, err := strconv.Atoi(strings.TrimPrefix(cluster, "c"))
	if err != nil {
		t.Fatal(err)
	}
	name := "gw" + cluster
	if slot > 0 {
		name += string(rune('a' + slot))
	}
	m := n.newMachine(t, name, cluster, number, fmt.Sprintf("10.%d.%d", 7+i, slot),
		fmt.Sprintf("fd%02d:0:0:%d", 7+i, slot))
	if m.cable = n.cable; m.cable == byIPsec {
		withIPsec(t, m)
	}
	m.start(t)
	return m
}

// at are candidate addresses: private ones, and those of the internet.
func at(addresses ...string) []v1alpha1.EndpointAddress {
	var out []v1alpha1.EndpointAddress
	for _, a := range addresses {
		kind := v1alpha1.AddressPrivate
		if strings.HasPrefix(a, internet) {
			kind = v1alpha1.AddressPublic
		}
		out = append(out, v1alpha1.EndpointAddress{Type: kind, IP: a})
	}
	return out
}

// published is a gateway, and where others are told that it is.
type published struct {
	*machine
	at       []v1alpha1.EndpointAddress
	observed []v1alpha1.ObservedAddress
}

// meet tells each of some gateways, one of each cluster, of the others.
func meet(t *testing.T, all ...published) {
	t.Helper()
	meetAs(t, func(string, *v1alpha1.PeeringSpec) {}, all...)
}

// meetAs tells each of some gateways of those of other clusters, where change says what else its cluster is told. Those
// of a cluster have their slots in their order.
func meetAs(t *testing.T, change func(cluster string, spec *v1alpha1.PeeringSpec), all ...published) {
	t.Helper()
	clusters := map[string][]published{}
	for _, p := range all {
		clusters[p.cluster] = append(clusters[p.cluster], p)
	}
	networks := func(cluster string) (out v1alpha1.Networks) {
		for _, p := range clusters[cluster] {
			out.PodCIDRs = append(out.PodCIDRs, p.pods+".0/24")
		}
		return out
	}
	endpoints := func(cluster string) (out []v1alpha1.Endpoint) {
		for slot, p := range clusters[cluster] {
			key, _, err := cable.LoadKey(string(p.directory))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, v1alpha1.Endpoint{Gateway: p.name, Slot: int32(slot), PublicKey: key.PublicKey().String(),
				MTU: 1420, Addresses: p.at, Observed: p.observed})
		}
		return out
	}
	for _, p := range all {
		o := node.Objects{
			Peering: &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName},
				Spec: v1alpha1.PeeringSpec{
					Phase: v1alpha1.MemberActive, ClusterSet: "default", ClusterID: p.cluster, Networks: networks(p.cluster),
					Cable:       v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
					HealthCheck: v1alpha1.HealthCheckSpec{IntervalMilliseconds: 100, FailureThreshold: 3},
				}},
		}
		for i, e := range endpoints(p.cluster) {
			o.Gateways = append(o.Gateways, v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: e.Gateway},
				Spec: v1alpha1.GatewaySpec{Slot: e.Slot}, Status: v1alpha1.GatewayStatus{Endpoint: &e}})
			o.Nodes = append(o.Nodes, clusters[p.cluster][i].node())
		}
		for _, other := range slices.Sorted(maps.Keys(clusters)) {
			if other != p.cluster {
				o.Peering.Spec.RemoteClusters = append(o.Peering.Spec.RemoteClusters, v1alpha1.RemoteCluster{
					Name: other, Cable: clusters[other][0].cable, Networks: networks(other), Endpoints: endpoints(other)})
			}
		}
		change(p.cluster, &o.Peering.Spec)
		if err := p.write("cluster.json", o); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range all {
		_ = p.agent.Process.Signal(syscall.SIGHUP)
	}
}

// connection is what a gateway says of its first tunnel to a cluster.
func (m *machine) connection(cluster string) v1alpha1.Connection {
	if all := m.connections(cluster); len(all) > 0 {
		return all[0]
	}
	return v1alpha1.Connection{}
}

// connections are what it says of all of them.
func (m *machine) connections(cluster string) []v1alpha1.Connection {
	var s v1alpha1.GatewayStatus
	if m.read("status.json", &s) != nil {
		return nil
	}
	return slices.DeleteFunc(s.Connections, func(c v1alpha1.Connection) bool { return c.Cluster != cluster })
}

// joined says whether two gateways are connected, and each other's pods are reached.
func joined(a, b *machine) bool {
	return a.connection(b.cluster).Status == v1alpha1.ConnectionConnected &&
		b.connection(a.cluster).Status == v1alpha1.ConnectionConnected &&
		a.pings(b.pods+".10", "") && b.pings(a.pods+".10", "")
}

// TestNAT: which gateways behind routers that translate addresses connect, and how soon; and which do not.
func TestNAT(t *testing.T) {
	t.Parallel()
	const never, whileWaiting = 0, 8 * time.Second
	for _, c := range []struct {
		name string
		// within is how long it may take to connect; never.
		within time.Duration
		// setUp starts two gateways.
		setUp func(t *testing.T, n *network) (a, b published)
	}{
		{"one is public, and is told a private address", 5 * time.Second,
			func(t *testing.T, n *network) (a, b published) {
				return published{n.site(t, "c1", 1).inside(t, "c1", 10), at(insideGateway), nil},
					published{n.gateway(t, "c2", publicHostNumber), at(publicHost), nil}
			}},
		{"the third address is right", 5 * time.Second,
			func(t *testing.T, n *network) (a, b published) {
				return published{n.site(t, "c1", 1).inside(t, "c1", 10), at(insideGateway), nil},
					published{n.gateway(t, "c2", publicHostNumber), at(nobody, nobodyElse, publicHost), nil}
			}},
		{"both behind NAT with the same private address, one forwards its port", 5 * time.Second,
			func(t *testing.T, n *network) (a, b published) {
				far := n.site(t, "c2", 2)
				far.forward(t, insideGateway)
				return published{n.site(t, "c1", 1).inside(t, "c1", 10), at(insideGateway), nil},
					published{far.inside(t, "c2", 10), at(insideGateway, routerOfC2), nil}
			}},
		{"both behind one router", 5 * time.Second,
			func(t *testing.T, n *network) (a, b published) {
				s := n.site(t, "c1", 1)
				return published{s.inside(t, "c1", 10), at(insideGateway), nil},
					published{s.inside(t, "c2", 11), at(secondInside), nil}
			}},
		{"one behind a load balancer, the other behind NAT", 5 * time.Second,
			func(t *testing.T, n *network) (a, b published) {
				s := n.site(t, "c1", 1)
				gateway := s.inside(t, "c1", 10)
				gateway.sources = "lb:gateways"
				s.balance(t, gateway)
				return published{gateway, at(insideGateway, balancer), nil},
					published{n.site(t, "c2", 2).inside(t, "c2", 10), at(insideGateway), nil}
			}},
		{"hairpin with a forwarded port", 5 * time.Second,
			func(t *testing.T, n *network) (a, b published) {
				s := n.site(t, "c1", 1)
				s.forward(t, insideGateway)
				return published{s.inside(t, "c1", 10), at(routerOfC1), nil},
					published{s.inside(t, "c2", 11), at(routerOfC1), nil}
			}},
		{"hairpin without", never,
			func(t *testing.T, n *network) (a, b published) {
				s := n.site(t, "c1", 1)
				return published{s.inside(t, "c1", 10), at(routerOfC1), nil},
					published{s.inside(t, "c2", 11), at(routerOfC1), nil}
			}},
		{"both behind NAT that keeps ports and drops what it does not expect", 10 * time.Second,
			func(t *testing.T, n *network) (a, b published) {
				return published{n.site(t, "c1", 1).inside(t, "c1", 10), at(insideGateway, routerOfC1), nil},
					published{n.site(t, "c2", 2).inside(t, "c2", 10), at(insideGateway, routerOfC2), nil}
			}},
		{"both behind NAT that takes what it does not expect for its own", never,
			func(t *testing.T, n *network) (a, b published) {
				near, far := n.site(t, "c1", 1), n.site(t, "c2", 2)
				for _, s := range []*network{near, far} {
					s.run(t, "nft flush chain ip router input")
				}
				return published{near.inside(t, "c1", 10), at(insideGateway, routerOfC1), nil},
					published{far.inside(t, "c2", 10), at(insideGateway, routerOfC2), nil}
			}},
		{"both behind NAT, one takes other ports", never,
			func(t *testing.T, n *network) (a, b published) {
				far := n.site(t, "c2", 2)
				far.run(t, `nft flush chain ip router post; nft add rule ip router post oifname out masquerade fully-random`)
				return published{n.site(t, "c1", 1).inside(t, "c1", 10), at(insideGateway, routerOfC1), nil},
					published{far.inside(t, "c2", 10), at(insideGateway, routerOfC2), nil}
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, b := c.setUp(t, newInternet(t))
			meet(t, a, b)
			if c.within != never {
				took := eventually(t, c.within, "connected", func() bool { return joined(a.machine, b.machine) })
				t.Logf("connected after %s, %s at %s, %s at %s", took.Round(10*time.Millisecond), b.name,
					a.connection("c2").Address, a.name, b.connection("c1").Address)
				return
			}
			for begin := time.Now(); time.Since(begin) < whileWaiting; time.Sleep(500 * time.Millisecond) {
				if x, y := a.connection("c2").Status, b.connection("c1").Status; x == v1alpha1.ConnectionConnected ||
					y == v1alpha1.ConnectionConnected {
					t.Fatalf("expected never to connect, found %s and %s", x, y)
				}
			}
			for _, m := range []*machine{a.machine, b.machine} {
				others := slices.DeleteFunc([]string{"c1", "c2"}, func(s string) bool { return s == m.cluster })
				if r := m.connection(others[0]).Reason; r != v1alpha1.ReasonNoHandshake {
					t.Errorf("%s: expected reason %s, found %q", m.name, v1alpha1.ReasonNoHandshake, r)
				}
			}
		})
	}
}

// TestNATByIPsec: a public gateway tells two behind one router apart by what they prove, and these two are connected to
// each other. What a charon that is killed has left in the kernel is for none but who it was for.
func TestNATByIPsec(t *testing.T) {
	t.Parallel()
	n := newInternet(t)
	n.cable = byIPsec
	s := n.site(t, "c1", 1)
	a := published{s.inside(t, "c1", 10), at(insideGateway), nil}
	b := published{n.gateway(t, "c2", publicHostNumber), at(publicHost), nil}
	c := published{s.inside(t, "c3", 11), at(secondInside), nil}
	all := []published{a, b, c}
	meet(t, all...)
	connected := func(when string) {
		t.Helper()
		took := eventually(t, 20*time.Second, when+": all are connected", func() bool {
			return joined(a.machine, b.machine) && joined(c.machine, b.machine) && joined(a.machine, c.machine)
		})
		t.Logf("%s: connected after %s, c1 at %s, c3 at %s", when, took.Round(10*time.Millisecond),
			b.connection("c1").Address, b.connection("c3").Address)
		for _, m := range all {
			for _, other := range all {
				if by := m.connection(other.cluster).Cable; m.cluster != other.cluster && by != byIPsec {
					t.Errorf("%s: %s to %s is by %q", when, m.name, other.name, by)
				}
			}
		}
	}
	connected("at first")
	for _, m := range all {
		for _, what := range []string{"charon", "charon and the agent"} {
			killed := m.signalCharon(t, syscall.SIGKILL)
			if what != "charon" {
				m.stop(t, syscall.SIGKILL)
				m.start(t)
			}
			took := eventually(t, 20*time.Second, "another charon of "+m.name+" has associations with both", func() bool {
				return m.charon(t) != killed && m.established() == len(all)-1
			})
			what += " of " + m.name + " was killed"
			t.Logf("%s: there are associations after %s", what, took.Round(10*time.Millisecond))
			connected(what)
		}
	}
}

// seenBy has two gateways connect with a third, and tells each of where that sees the other.
func seenBy(t *testing.T, a, b *published, third published) {
	t.Helper()
	meet(t, *a, *b, third)
	eventually(t, 30*time.Second, "connected with the third", func() bool {
		return joined(a.machine, third.machine) && joined(b.machine, third.machine)
	})
	if s := a.connection(b.cluster).Status; s != v1alpha1.ConnectionConnecting {
		t.Fatalf("expected not to be connected by private addresses, found %s", s)
	}
	for _, p := range []*published{a, b} {
		seen := netip.MustParseAddrPort(third.connection(p.cluster).Address)
		o := v1alpha1.ObservedAddress{IP: seen.Addr().String()}
		if seen.Port() != 4500 {
			o.Port = int32(seen.Port())
		}
		p.observed = []v1alpha1.ObservedAddress{{IP: nobody}, o}
	}
	meet(t, *a, *b, third)
}

// TestGatewaysBehindNATConnectByWhatAThirdSees: both publish private addresses alone. A third, public one connects with
// both, and where it sees each is told to the other.
func TestGatewaysBehindNATConnectByWhatAThirdSees(t *testing.T) {
	t.Parallel()
	n := newInternet(t)
	a := published{n.site(t, "c1", 1).inside(t, "c1", 10), at(insideGateway), nil}
	b := published{n.site(t, "c2", 2).inside(t, "c2", 11), at(secondInside), nil}
	seenBy(t, &a, &b, published{n.gateway(t, "c3", publicHostNumber), at(publicHost), nil})
	took := eventually(t, 20*time.Second, "connected", func() bool { return joined(a.machine, b.machine) })
	t.Logf("connected after %s, at %s and %s", took.Round(time.Millisecond), a.connection("c2").Address,
		b.connection("c1").Address)
}

// TestAPairThatNeedsAForwardedPort: where NAT takes another port for each peer, what a third sees does not help. Both
// gateways say what does, and it does.
func TestAPairThatNeedsAForwardedPort(t *testing.T) {
	t.Parallel()
	n := newInternet(t)
	near, far := n.site(t, "c1", 1), n.site(t, "c2", 2)
	far.run(t, "nft flush chain ip router post; nft add rule ip router post oifname out masquerade fully-random")
	a := published{near.inside(t, "c1", 10), at(insideGateway), nil}
	b := published{far.inside(t, "c2", 11), at(secondInside), nil}
	third := published{n.gateway(t, "c3", publicHostNumber), at(publicHost), nil}
	seenBy(t, &a, &b, third)
	for begin := time.Now(); time.Since(begin) < 8*time.Second; time.Sleep(500 * time.Millisecond) {
		if a.connection("c2").Status == v1alpha1.ConnectionConnected {
			t.Fatal("expected never to connect, found that it has")
		}
	}
	for m, cluster := range map[*machine]string{a.machine: "c2", b.machine: "c1"} {
		c := m.connection(cluster)
		for _, part := range []string{"is behind NAT", "UDP 4500 to 172.31.1.10 at c1", "UDP 4500 to 172.31.1.11 at c2"} {
			if c.Reason != v1alpha1.ReasonNoHandshake || !strings.Contains(c.Message, part) {
				t.Errorf("%s: expected a message with %q, found %s: %s", m.name, part, c.Reason, c.Message)
			}
		}
	}
	near.forward(t, insideGateway)
	a.at = at(insideGateway, routerOfC1)
	meet(t, a, b, third)
	took := eventually(t, 20*time.Second, "connected by a forwarded port", func() bool {
		return joined(a.machine, b.machine)
	})
	t.Logf("with a forwarded port connected after %s", took.Round(time.Millisecond))
}
