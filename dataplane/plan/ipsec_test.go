// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// TestKeysThatWereTriedOut: a member makes keys until the outer address of one leads, in the 27 bits that IPv4 has for
// next hops, where another member's does. Both are reached by IPsec, each by its own next hop.
func TestKeysThatWereTriedOut(t *testing.T) {
	var pair []topology.Key
	byHop := map[netip.Addr]topology.Key{}
	for i := uint64(1); len(pair) == 0; i++ {
		var key topology.Key
		binary.BigEndian.PutUint64(key[:], i)
		hop := netfacts.VTEPHop(netfacts.IPsecVTEP(key))
		if other, found := byHop[hop]; found {
			pair = []topology.Key{other, key}
		}
		byHop[hop] = key
	}
	in := ofGateway()
	networks := []string{"10.9.0.0/16", "10.10.0.0/16"}
	for i, name := range []string{"c2", "c3"} {
		in.Peering.Spec.RemoteClusters = append(in.Peering.Spec.RemoteClusters, v1alpha1.RemoteCluster{
			Name: name, Cable: v1alpha1.CableIPsec, Networks: v1alpha1.Networks{PodCIDRs: networks[i : i+1]},
			Endpoints: []v1alpha1.Endpoint{{Gateway: name + "-gw", PublicKey: pair[i].String(), MTU: 1330}},
		})
	}
	facts := plan.NodeFacts{Name: "gw", ID: plan.PeerOf(topology.Gateway{PublicKey: topology.Key{255}}), IPv6: true,
		Carrier: "ipsec0", UnderlayMTU: 1500}
	p := plan.For(topology.Build(in).WithVXLAN("gw", nil), facts)
	var hops []netip.Addr
	for _, r := range p.Routes {
		if slices.Contains(networks, r.Dst.String()) && r.Type == plan.Unicast && r.Table == plan.OutboundTable {
			hops = append(hops, r.NextHops[0].Via)
		}
	}
	if len(hops) != 2 || hops[0] == hops[1] || !hops[0].IsValid() {
		t.Errorf("next hops to the two: %v, want one each", hops)
	}
}

// Where the kernel encrypts it shows packets once more that it is about to encrypt, with the link that these go by
// then. Where charon does, whatever would go by another link is in clear.
func TestNothingGoesToOuterAddressesInClear(t *testing.T) {
	in := ofGateway()
	in.Peering.Spec.RemoteClusters = []v1alpha1.RemoteCluster{{Name: "c2", Cable: v1alpha1.CableIPsec,
		Networks:  v1alpha1.Networks{PodCIDRs: []string{"10.9.0.0/16"}},
		Endpoints: []v1alpha1.Endpoint{{Gateway: "gw2", PublicKey: topology.Key{1}.String(), MTU: 1330}}}}
	for carrier, want := range map[string]string{
		"ipsec0":           `oifname != "ipsec0" ip6 daddr @carried counter drop`,
		plan.KernelCarrier: `oifname != "sealane-esp" ip6 daddr @carried rt ipsec missing counter drop`,
		"":                 `oifname != "sl-nocarrier" ip6 daddr @carried counter drop`,
	} {
		p := plan.For(topology.Build(in).WithVXLAN("gw", nil), plan.NodeFacts{Name: "gw", IPv6: true, Carrier: carrier,
			ID: plan.PeerOf(topology.Gateway{PublicKey: topology.Key{255}}), UnderlayMTU: 1500})
		var rules []string
		for _, table := range p.Tables {
			for _, c := range table.Chains {
				if c.Name == "carried" && table.Family == plan.IPv6 {
					rules = c.Rules
				}
			}
		}
		if !slices.Contains(rules, want) {
			t.Errorf("by %q: want %s, found %q", carrier, want, rules)
		}
	}
}

// TestFromVXLANToIPsec, and back: until IPsec answers, what went by VXLAN goes by WireGuard, encrypted, and what comes
// by the cable that leaves is taken, also where both have outer addresses of IPv6.
func TestFromVXLANToIPsec(t *testing.T) {
	const usual, vxlan, ipsec = 0, v1alpha1.VXLANSlots, v1alpha1.IPsecSlots
	for _, addresses := range [][2]string{{"172.31.1.1", "172.31.2.1"}, {"fd31::1", "fd32::1"}} {
		by := func(cable v1alpha1.CableDriver, leaving []topology.Gateway) topology.Topology {
			in := ofGateway()
			in.Nodes[0].Status.Addresses[0].Address = addresses[0]
			in.Peering.Spec.RemoteClusters = []v1alpha1.RemoteCluster{{Name: "c2", Cable: cable,
				Networks: v1alpha1.Networks{PodCIDRs: []string{"10.9.0.0/16"}},
				Endpoints: []v1alpha1.Endpoint{{Gateway: "gw2", PublicKey: topology.Key{1}.String(), MTU: 1330,
					Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPrivate, IP: addresses[1]}}}}}}
			return topology.Build(in).WithVXLAN("gw", map[string][]topology.Gateway{"c2": leaving})
		}
		for _, c := range []struct {
			name           string
			from, to       v1alpha1.CableDriver
			alive, current []int
			want           int
		}{
			{"nothing answers", v1alpha1.CableVXLAN, v1alpha1.CableIPsec, nil, []int{vxlan}, usual},
			{"WireGuard answers", v1alpha1.CableVXLAN, v1alpha1.CableIPsec, []int{usual}, []int{vxlan}, usual},
			{"IPsec answers, too", v1alpha1.CableVXLAN, v1alpha1.CableIPsec, []int{usual, ipsec}, []int{vxlan}, ipsec},
			{"and does so no more", v1alpha1.CableVXLAN, v1alpha1.CableIPsec, []int{usual}, []int{ipsec}, ipsec},
			{"back", v1alpha1.CableIPsec, v1alpha1.CableVXLAN, []int{usual}, []int{ipsec}, usual},
			{"back, and VXLAN answers", v1alpha1.CableIPsec, v1alpha1.CableVXLAN, []int{usual, vxlan}, []int{ipsec}, vxlan},
		} {
			t.Run(c.name+" at "+addresses[0], func(t *testing.T) {
				left := by(c.from, nil).Remotes[0].Gateways[1:]
				p := plan.For(by(c.to, left), plan.NodeFacts{Name: "gw", IPv6: true, Carrier: "ipsec0", UnderlayMTU: 1500,
					ID: plan.PeerOf(topology.Gateway{PublicKey: topology.Key{255}}), Alive: map[string][]int{"c2": c.alive},
					Current: map[string][]int{"c2": c.current}})
				if got := p.Active.Remotes["c2"]; !slices.Equal(got, []int{c.want}) {
					t.Errorf("packets go by slots %v, want %d", got, c.want)
				}
				if len(p.VXLAN) != 2 {
					t.Errorf("packets are taken by %d cables beside WireGuard's, want 2", len(p.VXLAN))
				}
				for _, table := range p.Tables {
					names := map[string]bool{}
					for _, chain := range table.Chains {
						if names[chain.Name] {
							t.Errorf("two chains of table %s are named %s", table.Family, chain.Name)
						}
						names[chain.Name] = true
					}
					load(t, table.String())
				}
			})
		}
	}
}

// ofGateway is what the one gateway of c1 has, and no other cluster.
func ofGateway() topology.Input {
	return topology.Input{
		Peering: &v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{
			Phase: v1alpha1.MemberActive, ClusterSet: "default", ClusterID: "c1",
			Cable:    v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
			Networks: v1alpha1.Networks{PodCIDRs: []string{"10.8.0.0/16"}},
		}},
		Gateways: []v1alpha1.Gateway{{ObjectMeta: metav1.ObjectMeta{Name: "gw"},
			Status: v1alpha1.GatewayStatus{Endpoint: &v1alpha1.Endpoint{PublicKey: topology.Key{255}.String(), MTU: 1330}}}},
		Nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "gw"},
			Spec:   corev1.NodeSpec{PodCIDRs: []string{"10.8.0.0/24"}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.31.1.1"}}}}},
	}
}
