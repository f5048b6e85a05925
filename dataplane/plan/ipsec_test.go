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
