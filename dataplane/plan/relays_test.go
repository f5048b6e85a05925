// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// behindRelay is a cluster whose gateway reaches c2 by its two, and c3 through c2.
func behindRelay(cable v1alpha1.CableDriver) topology.Input {
	in := ofGateway()
	endpoint := func(slot int32) v1alpha1.Endpoint {
		return v1alpha1.Endpoint{Gateway: fmt.Sprintf("c2-gw%d", slot), Slot: slot, MTU: 1330,
			PublicKey: topology.Key{2, byte(slot)}.String()}
	}
	in.Peering.Spec.RemoteClusters = []v1alpha1.RemoteCluster{
		{Name: "c2", Cable: cable, Networks: v1alpha1.Networks{PodCIDRs: []string{"10.9.0.0/16"}},
			Endpoints: []v1alpha1.Endpoint{endpoint(0), endpoint(1)}},
		{Name: "c3", Relay: "c2", Networks: v1alpha1.Networks{PodCIDRs: []string{"10.10.0.0/16"}}},
	}
	return in
}

// way renders how a node sends to a prefix.
func way(p plan.Plan, dst string) string {
	for _, r := range p.Routes {
		if r.Dst == netip.MustParsePrefix(dst) && r.Table == plan.OutboundTable && r.Metric == plan.RouteMetric {
			var links []string
			for _, h := range r.NextHops {
				links = append(links, h.Link)
			}
			return fmt.Sprintf("%s, %d bytes", strings.Join(links, " "), r.MTU)
		}
	}
	return "none"
}

// TestBehindARelayTheWayIsTheRelays: whatever a gateway knows of its cables to the relay, what goes through that goes
// as what goes there.
func TestBehindARelayTheWayIsTheRelays(t *testing.T) {
	const byIPsec = v1alpha1.CableIPsec
	for name, c := range map[string]struct {
		cable  v1alpha1.CableDriver
		change func(in *topology.Input, n *plan.NodeFacts)
		want   string
	}{
		"all is well": {"", func(*topology.Input, *plan.NodeFacts) {}, "sl-c0 sl-c1, 1330 bytes"},
		"larger packets are lost on the way": {"", func(in *topology.Input, _ *plan.NodeFacts) {
			in.Gateways[0].Status.Connections = []v1alpha1.Connection{{Cluster: "c2", Gateway: "c2-gw0", MTU: 1300}}
		}, "sl-c0 sl-c1, 1300 bytes"},
		"one that carries goes on": {"", func(in *topology.Input, n *plan.NodeFacts) {
			in.Peering.Spec.Gateways.Mode = v1alpha1.GatewaysActivePassive
			n.Alive, n.Current = map[string][]int{"c2": {0, 1}}, map[string][]int{"c2": {1}}
		}, "sl-c1, 1330 bytes"},
		"one is dead": {"", func(_ *topology.Input, n *plan.NodeFacts) {
			n.Alive = map[string][]int{"c2": {1}}
		}, "sl-c1, 1330 bytes"},
		"one answers again, and all others are dead": {"", func(_ *topology.Input, n *plan.NodeFacts) {
			n.Held = map[string][]int{"c2": {1}}
		}, "sl-c1, 1330 bytes"},
		"a sibling would carry": {"", func(in *topology.Input, n *plan.NodeFacts) {
			sibling, node := *in.Gateways[0].DeepCopy(), *in.Nodes[0].DeepCopy()
			sibling.Name, sibling.Spec.Slot, node.Name = "gw2", 1, "gw2"
			sibling.Status.Endpoint.PublicKey = topology.Key{254}.String()
			node.Spec.PodCIDRs, node.Status.Addresses[0].Address = []string{"10.8.1.0/24"}, "172.31.1.2"
			in.Gateways, in.Nodes = append(in.Gateways, sibling), append(in.Nodes, node)
			n.Alive = map[string][]int{"c1": {1}, "c2": {0, 1}}
		}, "sl-c0 sl-c1, 1330 bytes"},
		"one with a next key, and a handshake tells": {"", func(in *topology.Input, n *plan.NodeFacts) {
			in.Peering.Spec.RemoteClusters[0].Endpoints[0].NextPublicKey = topology.Key{7}.String()
			n.Shaken = map[string][]int{"c2": {v1alpha1.NextKeySlots}}
		}, "sl-c1 sl-c16, 1330 bytes"},
		"by IPsec alone, though another cable is alive": {byIPsec, func(_ *topology.Input, n *plan.NodeFacts) {
			n.Alive = map[string][]int{"c2": {0, 1, v1alpha1.IPsecSlots, v1alpha1.IPsecSlots + 1}}
		}, "sl-ci0 sl-ci1, 1330 bytes"},
		"by IPsec, before that answers": {byIPsec, func(_ *topology.Input, n *plan.NodeFacts) {
			n.Alive = map[string][]int{"c2": {0, 1}}
		}, "sl-ci0 sl-ci1, 1330 bytes"},
		"by IPsec, on a kernel without IPv6": {byIPsec, func(_ *topology.Input, n *plan.NodeFacts) {
			n.IPv6, n.Alive = false, map[string][]int{"c2": {0, 1}}
		}, "none"},
		"on a kernel without IPv6": {"", func(_ *topology.Input, n *plan.NodeFacts) { n.IPv6 = false },
			"sl-c0 sl-c1, 1330 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			in := behindRelay(c.cable)
			facts := plan.NodeFacts{Name: "gw", ID: plan.PeerOf(topology.Gateway{PublicKey: topology.Key{255}}), IPv6: true,
				Carrier: "ipsec0", UnderlayMTU: 1500}
			c.change(&in, &facts)
			top := topology.Build(in)
			if len(top.Problems) > 0 {
				t.Fatal(top.Problems)
			}
			p := plan.For(top.WithNextKeys(facts.Replacement()).WithVXLAN("gw", nil), facts)
			if there, behind := way(p, "10.9.0.0/16"), way(p, "10.10.0.0/16"); there != c.want || behind != c.want {
				t.Errorf("to the relay by %s, to the cluster behind it by %s, want %s", there, behind, c.want)
			}
		})
	}
}

// TestARelayIsProbedOnce, by IPv4 too: that others are behind it makes its address nobody else's.
func TestARelayIsProbedOnce(t *testing.T) {
	facts := plan.NodeFacts{Name: "gw", ID: plan.PeerOf(topology.Gateway{PublicKey: topology.Key{255}}), UnderlayMTU: 1500}
	p := plan.For(topology.Build(behindRelay("")), facts)
	var probed []netip.Addr
	for _, tunnel := range p.Tunnels {
		for _, peer := range tunnel.Peers {
			probed = append(probed, peer.Probe)
		}
	}
	want := []netip.Addr{plan.ProbeIPv4(plan.PeerOf(topology.Gateway{PublicKey: topology.Key{2}})),
		plan.ProbeIPv4(plan.PeerOf(topology.Gateway{PublicKey: topology.Key{2, 1}}))}
	if !slices.Equal(probed, want) {
		t.Errorf("probed at %v, want %v", probed, want)
	}
}

// TestSharesOfABlockBehindARelay are the relay's to divide: from here all of it goes by any of the relay's gateways.
func TestSharesOfABlockBehindARelay(t *testing.T) {
	for _, relay := range []string{"", "c2"} {
		in := behindRelay("")
		c3 := &in.Peering.Spec.RemoteClusters[1]
		c3.Relay, c3.GlobalCIDR, c3.Networks = relay, "242.3.0.0/16", v1alpha1.Networks{}
		if relay == "" {
			for slot := range int32(2) {
				c3.Endpoints = append(c3.Endpoints, v1alpha1.Endpoint{Gateway: fmt.Sprintf("c3-gw%d", slot), Slot: slot,
					PublicKey: topology.Key{3, byte(slot)}.String(), MTU: 1330})
			}
		}
		facts := plan.NodeFacts{Name: "gw", ID: plan.PeerOf(topology.Gateway{PublicKey: topology.Key{255}}), IPv6: true,
			UnderlayMTU: 1500}
		parts := 0
		for _, r := range plan.For(topology.Build(in), facts).Routes {
			if block := netip.MustParsePrefix("242.3.0.0/16"); block.Contains(r.Dst.Addr()) && r.Dst.Bits() > block.Bits() {
				parts++
			}
		}
		if (parts > 0) != (relay == "") {
			t.Errorf("behind the relay %q: %d routes to parts of the block", relay, parts)
		}
	}
}

// relayRules are the rules and sets of a relay in a family, in which its name for them is.
func relayRules(p plan.Plan, f plan.Family) (out []string) {
	for _, t := range p.Tables {
		if t.Family != f {
			continue
		}
		for line := range strings.Lines(t.String()) {
			if strings.Contains(line, "relayfrom") || strings.Contains(line, "relayto") {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	return out
}

// TestARelayPassesOnWhatBothHave: in a family that one of the two has alone there is nothing to pass on.
func TestARelayPassesOnWhatBothHave(t *testing.T) {
	six := map[string]string{"c2": "fd09::/48", "c3": "fd10::/48"}
	for _, c := range []struct {
		with []string
		want bool
	}{{nil, false}, {[]string{"c2"}, false}, {[]string{"c3"}, false}, {[]string{"c2", "c3"}, true}} {
		in := behindRelay("")
		in.Peering.Spec.Networks.PodCIDRs = append(in.Peering.Spec.Networks.PodCIDRs, "fd08::/48")
		in.Nodes[0].Spec.PodCIDRs = append(in.Nodes[0].Spec.PodCIDRs, "fd08::/64")
		c3 := &in.Peering.Spec.RemoteClusters[1]
		c3.Relay = ""
		c3.Endpoints = []v1alpha1.Endpoint{{Gateway: "c3-gw", PublicKey: topology.Key{3}.String(), MTU: 1330}}
		for i := range in.Peering.Spec.RemoteClusters {
			if r := &in.Peering.Spec.RemoteClusters[i]; slices.Contains(c.with, r.Name) {
				r.Networks.PodCIDRs = append(r.Networks.PodCIDRs, six[r.Name])
			}
		}
		in.Peering.Spec.Relays = []v1alpha1.RelayedClusters{{Clusters: []string{"c2"}, With: []string{"c3"}},
			{Clusters: []string{"c3"}, With: []string{"c2"}}}
		facts := plan.NodeFacts{Name: "gw", ID: plan.PeerOf(topology.Gateway{PublicKey: topology.Key{255}}), IPv6: true,
			PodAddresses: []netip.Addr{netip.MustParseAddr("10.8.0.1"), netip.MustParseAddr("fd08::1")}, UnderlayMTU: 1500}
		top := topology.Build(in)
		if len(top.Problems) > 0 {
			t.Fatal(top.Problems)
		}
		p := plan.For(top, facts)
		if four := relayRules(p, plan.IPv4); len(four) == 0 {
			t.Fatal("nothing of IPv4 is passed on, so this shows nothing")
		}
		if got := relayRules(p, plan.IPv6); (len(got) > 0) != c.want {
			t.Errorf("IPv6 of %v: %q", c.with, got)
		}
	}
}

// TestARelayThatTranslates leaves what it passes on as it is: it drops what goes out with a source of none of its own.
func TestARelayThatTranslates(t *testing.T) {
	in := behindRelay("")
	in.Peering.Spec.GlobalCIDR = "242.1.0.0/16"
	for i := range in.Peering.Spec.RemoteClusters {
		r := &in.Peering.Spec.RemoteClusters[i]
		r.Translated, r.Relay = true, ""
		r.Endpoints = []v1alpha1.Endpoint{{Gateway: r.Name, PublicKey: topology.Key{9, byte(i)}.String(), MTU: 1330}}
	}
	in.Peering.Spec.Relays = []v1alpha1.RelayedClusters{{Clusters: []string{"c2", "c3"}, With: []string{"c2", "c3"}}}
	facts := plan.NodeFacts{Name: "gw", ID: plan.PeerOf(topology.Gateway{PublicKey: topology.Key{255}}), IPv6: true,
		PodAddresses: []netip.Addr{netip.MustParseAddr("10.8.0.1")}, UnderlayMTU: 1500}
	for _, table := range plan.For(topology.Build(in), facts).Tables {
		for _, chain := range table.Chains {
			if table.Family != plan.IPv4 || chain.Name != "untranslated" {
				continue
			}
			passes := slices.Index(chain.Rules, `oifname "sl-c*" ip saddr @relayfrom0 ip daddr @relayto0 accept`)
			drops := slices.IndexFunc(chain.Rules, func(rule string) bool { return strings.HasSuffix(rule, "counter drop") })
			if passes < 0 || drops < 0 || passes > drops {
				t.Errorf("%q, want what is passed on to go before the rest is dropped", chain.Rules)
			}
			return
		}
	}
	t.Error("no chain drops what is not translated, so this shows nothing")
}

// TestSetsOfARelayAreOfPrefixesThatDoNotOverlap: nft refuses others.
func TestSetsOfARelayAreOfPrefixesThatDoNotOverlap(t *testing.T) {
	in := behindRelay("")
	pods := &in.Peering.Spec.RemoteClusters[0].Networks.PodCIDRs
	*pods = append(*pods, "10.9.7.0/24")
	c3 := &in.Peering.Spec.RemoteClusters[1]
	c3.Relay, c3.Endpoints = "", []v1alpha1.Endpoint{{Gateway: "c3-gw", PublicKey: topology.Key{3}.String(), MTU: 1330}}
	in.Peering.Spec.Relays = []v1alpha1.RelayedClusters{{Clusters: []string{"c2"}, With: []string{"c3"}}}
	facts := plan.NodeFacts{Name: "gw", ID: plan.PeerOf(topology.Gateway{PublicKey: topology.Key{255}}), IPv6: true,
		PodAddresses: []netip.Addr{netip.MustParseAddr("10.8.0.1")}, UnderlayMTU: 1500}
	for _, table := range plan.For(topology.Build(in), facts).Tables {
		for _, set := range table.Sets {
			if set.Name == "relayfrom0" && fmt.Sprint(set.Elements) != "[10.9.0.0/16]" {
				t.Errorf("%v, want one prefix", set.Elements)
			}
		}
		load(t, table.String())
	}
}
