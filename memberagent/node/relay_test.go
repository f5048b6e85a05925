// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// relaying are two clusters behind routers, c1 and c2, a relay with two public gateways, c3, and a cluster of which
// nothing is to be passed on, c4.
type relaying struct {
	all                      []published
	gw1, gw2, gw3, gw3b, gw4 *machine
}

func newRelaying(t *testing.T, driver v1alpha1.CableDriver) *relaying {
	t.Helper()
	world := newInternet(t)
	world.cable = driver
	r := &relaying{
		gw1: world.site(t, "c1", 1).inside(t, "c1", 10), gw2: world.site(t, "c2", 2).inside(t, "c2", 11),
		gw3: world.gatewayOf(t, "c3", 9, 0), gw3b: world.gatewayOf(t, "c3", 8, 1), gw4: world.gateway(t, "c4", 7),
	}
	for _, m := range []*machine{r.gw1, r.gw2, r.gw3, r.gw3b, r.gw4} {
		r.all = append(r.all, published{machine: m, at: at(m.ip)})
	}
	return r
}

// TestARelayByVXLAN: in a network where all gateways see each other, two have their traffic go through a third, which
// takes from each what is its own alone.
func TestARelayByVXLAN(t *testing.T) {
	t.Parallel()
	world := newInternet(t)
	world.cable = v1alpha1.CableVXLAN
	r := &relaying{gw1: world.gateway(t, "c1", 1), gw2: world.gateway(t, "c2", 2), gw3: world.gatewayOf(t, "c3", 9, 0),
		gw3b: world.gatewayOf(t, "c3", 8, 1), gw4: world.gateway(t, "c4", 7)}
	for _, m := range []*machine{r.gw1, r.gw2, r.gw3, r.gw3b, r.gw4} {
		own := v1alpha1.EndpointAddress{Type: v1alpha1.AddressPrivate, IP: m.ip}
		r.all = append(r.all, published{machine: m, at: []v1alpha1.EndpointAddress{own}})
	}
	r.tell(t, true, "")
	byVXLAN := func(m *machine) bool {
		return slices.ContainsFunc(m.connections("c3"), func(c v1alpha1.Connection) bool {
			return c.Cable == v1alpha1.CableVXLAN && c.Active && c.Status == v1alpha1.ConnectionConnected
		})
	}
	eventually(t, 20*time.Second, "c1 and c2 by the relay", func() bool {
		return byVXLAN(r.gw1) && byVXLAN(r.gw2) && reach(r.gw1, r.gw2)
	})
	if out := r.gw1.run(t, "ip route get "+r.gw2.pods+".10"); !strings.Contains(out, "sl-cv") {
		t.Errorf("it does not go by VXLAN: %s", out)
	}
	r.onlyThePair(t)
	r.tell(t, false, "")
	eventually(t, 10*time.Second, "what the relay is told no more", func() bool {
		return !r.gw1.pings(r.gw2.pods+".10", "")
	})
}

// both says that networks are of both families, and that one gateway carries for each cluster, as is known then.
func (r *relaying) both(spec *v1alpha1.PeeringSpec) {
	spec.Gateways.Mode = v1alpha1.GatewaysActivePassive
	add := func(cluster string, n *v1alpha1.Networks) {
		for _, p := range r.all {
			if p.cluster == cluster {
				n.PodCIDRs = append(n.PodCIDRs, p.pods6+"::/64")
			}
		}
	}
	add(spec.ClusterID, &spec.Networks)
	for i := range spec.RemoteClusters {
		add(spec.RemoteClusters[i].Name, &spec.RemoteClusters[i].Networks)
	}
}

// behind says that a cluster reaches another by c3.
func behind(spec *v1alpha1.PeeringSpec, other string, status v1alpha1.ConnectionStatus) {
	for i := range spec.RemoteClusters {
		if c := &spec.RemoteClusters[i]; c.Name == other {
			c.Relay, c.RelayStatus, c.Endpoints, c.Cable = "c3", status, []v1alpha1.Endpoint{}, ""
		}
	}
}

// tell all that c1 and c2 have the relay c3, which is told too if it passes on; c4 takes it for one as well, and is
// mistaken. status is what c1 hears of the relay's connection to c2.
func (r *relaying) tell(t *testing.T, passesOn bool, status v1alpha1.ConnectionStatus) {
	t.Helper()
	r.tellAs(t, passesOn, status, func(string, *v1alpha1.PeeringSpec) {})
}

// tellAs is tell, where change says what else clusters are told.
func (r *relaying) tellAs(t *testing.T, passesOn bool, status v1alpha1.ConnectionStatus,
	change func(cluster string, spec *v1alpha1.PeeringSpec)) {
	t.Helper()
	meetAs(t, func(cluster string, spec *v1alpha1.PeeringSpec) {
		r.both(spec)
		defer change(cluster, spec)
		switch {
		case cluster == "c1":
			behind(spec, "c2", status)
		case cluster == "c2":
			behind(spec, "c1", "")
			behind(spec, "c4", "")
		case cluster == "c4":
			behind(spec, "c2", "")
		case cluster == "c3" && passesOn:
			spec.Relays = passedOnBetween("c1", "c2")
		}
	}, r.all...)
}

// reach says whether two gateways reach each other's pods in both families, also with packets that are fragmented.
func reach(a, b *machine) bool {
	return a.pings(b.pods+".10", "-s 3000") && b.pings(a.pods+".10", "") &&
		a.pings(b.pods6+"::10", "-s 3000") && b.pings(a.pods6+"::10", "")
}

// TestARelay: two clusters behind routers that never connect reach each other by a third, and nobody else does that is
// not told to; where a gateway of the relay loses its cable to one of them, its sibling carries.
func TestARelay(t *testing.T) {
	t.Parallel()
	for _, driver := range []v1alpha1.CableDriver{v1alpha1.CableWireGuard, byIPsec} {
		t.Run(string(driver), func(t *testing.T) {
			t.Parallel()
			r := newRelaying(t, driver)
			meetAs(t, func(_ string, spec *v1alpha1.PeeringSpec) { r.both(spec) }, r.all...)
			for _, m := range []*machine{r.gw1, r.gw2} {
				eventually(t, 20*time.Second, m.name+" and the relay", func() bool { return joined(m, r.gw3) })
			}
			if c := r.gw1.connection("c2"); c.Status == v1alpha1.ConnectionConnected || c.Through != "" || reach(r.gw1, r.gw2) {
				t.Fatalf("without a relay c1 reaches c2, so this shows nothing: %+v", c)
			}
			redirects := r.watchRedirects(t)
			r.tell(t, true, "")
			took := eventually(t, 20*time.Second, "c1 and c2 by the relay", func() bool { return reach(r.gw1, r.gw2) })
			t.Logf("they reach each other after %v", took)
			eventually(t, 5*time.Second, "c1 says so", func() bool {
				c := r.gw1.connection("c2")
				return c.Through == "c3" && c.Status == v1alpha1.ConnectionConnected && c.Gateway == "gwc3" && c.Traffic == nil &&
					c.Cable == cmp.Or(driver, v1alpha1.CableWireGuard)
			})
			r.saysWhatIsInForce(t)
			r.onlyThePair(t)
			redirects(t, driver != byIPsec)
			r.handsOver(t)
			r.relayIsCut(t)
			r.secondLegIsNarrow(t)
			r.tell(t, false, "")
			eventually(t, 10*time.Second, "what the relay is told no more", func() bool {
				return !r.gw1.pings(r.gw2.pods+".10", "") && !r.gw1.pings(r.gw2.pods6+"::10", "")
			})
			r.tell(t, true, "")
			eventually(t, 20*time.Second, "again", func() bool { return reach(r.gw1, r.gw2) })
		})
	}
}

// saysWhatIsInForce: the relay's gateways, of what they are told, and those of others, of nothing.
func (r *relaying) saysWhatIsInForce(t *testing.T) {
	t.Helper()
	for _, m := range []*machine{r.gw1, r.gw3, r.gw3b} {
		want := v1alpha1.DigestOfRelays(nil)
		if m != r.gw1 {
			want = v1alpha1.DigestOfRelays(passedOnBetween("c1", "c2"))
		}
		eventually(t, 5*time.Second, m.name+" says what it has in force", func() bool {
			var s v1alpha1.GatewayStatus
			return m.read("status.json", &s) == nil && s.Relays == want
		})
	}
}

func passedOnBetween(a, b string) []v1alpha1.RelayedClusters {
	return []v1alpha1.RelayedClusters{{Clusters: []string{a}, With: []string{b}},
		{Clusters: []string{b}, With: []string{a}}}
}

// onlyThePair: the relay tracks nothing of what it passes on, and passes on nothing of a cluster that it is not told
// of, whose gateways send it that all the same.
func (r *relaying) onlyThePair(t *testing.T) {
	t.Helper()
	eventually(t, 10*time.Second, "the relay's own pods beside it", func() bool {
		return r.gw4.pings(r.gw3.pods+".10", "") && r.gw2.pings(r.gw3.pods+".10", "")
	})
	tracked := r.gw3.run(t, "conntrack -L 2>/dev/null")
	if !strings.Contains(tracked, "="+r.gw2.pods+".") {
		t.Error("the relay tracks nothing at all, so this shows nothing")
	}
	for line := range strings.Lines(tracked) {
		if strings.Contains(line, "="+r.gw1.pods+".") && strings.Contains(line, "="+r.gw2.pods+".") {
			t.Errorf("the relay tracks what it passes on: %s", line)
		}
	}
	eventually(t, 10*time.Second, "c4 takes c3 for a relay", func() bool { return r.gw4.connection("c2").Through == "c3" })
	sent := func() string {
		return r.gw4.run(t, "ip route get "+r.gw2.pods+".10")
	}
	if !strings.Contains(sent(), "sl-c") {
		t.Errorf("c4 sends nothing, so this shows nothing: %s", sent())
	}
	if r.gw4.pings(r.gw2.pods+".10", "") || r.gw4.pings(r.gw2.pods6+"::10", "") || r.gw2.pings(r.gw4.pods+".10", "") {
		t.Error("the relay passes packets on of a cluster that it is not told of")
	}
}

// watchRedirects counts the ICMP redirects of IPv4 that the kernel of the relay's gateways is about to send by cables.
// What it returns says that some were, where the kernel has a reason for them, and that none is sent.
func (r *relaying) watchRedirects(t *testing.T) func(t *testing.T, reason bool) {
	t.Helper()
	gateways := []*machine{r.gw3, r.gw3b}
	for _, m := range gateways {
		m.run(t, `nft add table ip seen
			nft 'add chain ip seen before { type filter hook output priority -350; }'
			nft 'add chain ip seen after { type filter hook output priority -250; }'
			nft add rule ip seen before 'oifname "sl-c*" icmp type redirect counter'
			nft add rule ip seen after 'oifname "sl-c*" icmp type redirect counter'`)
	}
	return func(t *testing.T, reason bool) {
		t.Helper()
		before, after := 0, 0
		for _, m := range gateways {
			var n, sent int
			counted := m.run(t, `nft list chain ip seen before | grep -o 'packets [0-9]*'; nft list chain ip seen after |
				grep -o 'packets [0-9]*'; nft delete table ip seen`)
			if _, err := fmt.Sscanf(counted, "packets %d\npackets %d", &n, &sent); err != nil {
				t.Fatalf("%v: %q", err, counted)
			}
			before, after = before+n, after+sent
		}
		if after > 0 {
			t.Errorf("of %d redirects %d are sent to pods of other clusters", before, after)
		}
		if reason && before == 0 {
			t.Error("the kernel makes no redirect, so this shows nothing")
		}
	}
}

// handsOver: the gateway that c1 sends to loses its cable to c2.
func (r *relaying) handsOver(t *testing.T) {
	t.Helper()
	r.gw3.run(t, `nft add table ip cut
		nft 'add chain ip cut in { type filter hook prerouting priority -400; }'
		nft add rule ip cut in ip saddr `+routerOfC2+` drop`)
	took := eventually(t, 20*time.Second, "by the sibling", func() bool {
		return slices.ContainsFunc(r.gw3.connections("c2"), func(c v1alpha1.Connection) bool {
			return c.Status == v1alpha1.ConnectionError
		}) && reach(r.gw1, r.gw2)
	})
	t.Logf("the sibling carries after %v", took)
	if out := r.gw3.run(t, "ip route get "+r.gw2.pods+".10"); !strings.Contains(out, "sl-vx") {
		t.Errorf("it is not handed over, so this shows nothing: %s", out)
	}
	r.gw3.run(t, "nft delete table ip cut")
	eventually(t, 30*time.Second, "back", func() bool {
		return r.gw3.connection("c2").Status == v1alpha1.ConnectionConnected && reach(r.gw1, r.gw2)
	})
}

// secondLegIsNarrow: less passes from the relay to c2 than to the relay. c1 sends no more than that, and datagrams of a
// size between the two pass in fragments.
func (r *relaying) secondLegIsNarrow(t *testing.T) {
	t.Helper()
	const narrow = 1290
	r.tellAs(t, true, "", func(cluster string, spec *v1alpha1.PeeringSpec) {
		for i := range spec.RemoteClusters {
			c := &spec.RemoteClusters[i]
			if cluster == "c1" && c.Name == "c2" {
				c.RelayMTU = narrow
			}
			for k := range c.Endpoints {
				if cluster == "c3" && c.Name == "c2" {
					c.Endpoints[k].MTU = narrow
				}
			}
		}
	})
	for _, m := range []*machine{r.gw1, r.gw3} {
		eventually(t, 10*time.Second, m.name+" sends less", func() bool {
			return strings.Contains(m.run(t, "ip -6 route show table all "+r.gw2.pods6+"::/64"), "mtu lock 1290") &&
				strings.Contains(m.run(t, "ip route show table all "+r.gw2.pods+".0/24"), "mtu 1290")
		})
	}
	eventually(t, 20*time.Second, "datagrams of a size between the two", func() bool {
		return r.gw1.pings(r.gw2.pods6+"::10", "-s 1300") && r.gw1.pings(r.gw2.pods+".10", "-s 1300")
	})
}

// relayIsCut: what the relay says of its own connection is what c1 says of its.
func (r *relaying) relayIsCut(t *testing.T) {
	t.Helper()
	r.tell(t, true, v1alpha1.ConnectionError)
	eventually(t, 10*time.Second, "c1 says that the relay does not reach c2", func() bool {
		c := r.gw1.connection("c2")
		return c.Status == v1alpha1.ConnectionError && c.Reason == v1alpha1.ReasonRelayNotConnected &&
			strings.Contains(c.Message, "c3 reports")
	})
	if c := r.gw1.connection("c3"); c.Status != v1alpha1.ConnectionConnected {
		t.Errorf("and of the relay: %+v", c)
	}
}
