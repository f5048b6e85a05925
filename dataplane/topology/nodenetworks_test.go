// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
)

func nodeNetwork(name string, cidrs ...string) v1alpha1.NodeNetwork {
	return v1alpha1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.NodeNetworkSpec{PodCIDRs: cidrs}}
}

// TestNodeNetworks: each address is one node's, that of the narrowest network.
func TestNodeNetworks(t *testing.T) {
	const gw, worker = "[10.8.2.0/24]", "[10.8.1.0/24]"
	for name, c := range map[string]struct {
		networks   []v1alpha1.NodeNetwork
		gw, worker string
		problem    string // ref and reason
	}{
		"none": {nil, gw, worker, ""},
		"elsewhere": {[]v1alpha1.NodeNetwork{nodeNetwork("gw", "10.8.7.0/26", "10.8.9.9/32")},
			"[10.8.2.0/24 10.8.7.0/26 10.8.9.9/32]", worker, ""},
		"beside its own": {[]v1alpha1.NodeNetwork{nodeNetwork("gw", "10.8.3.0/24")}, "[10.8.2.0/23]", worker, ""},
		"of another's": {[]v1alpha1.NodeNetwork{nodeNetwork("gw", "10.8.1.128/25")}, "[10.8.1.128/25 10.8.2.0/24]",
			"[10.8.1.0/25]", ""},
		"all of another's": {[]v1alpha1.NodeNetwork{nodeNetwork("gw", "10.8.1.0/24")}, "[10.8.1.0/24 10.8.2.0/24]", "[]",
			""},
		"of each other's": {[]v1alpha1.NodeNetwork{nodeNetwork("gw", "10.8.1.128/25"),
			nodeNetwork("worker", "10.8.1.192/26", "10.8.2.0/25")},
			"[10.8.1.128/26 10.8.2.128/25]", "[10.8.1.0/25 10.8.1.192/26 10.8.2.0/25]", ""},
		"wider than another's": {[]v1alpha1.NodeNetwork{nodeNetwork("gw", "10.8.0.0/22")},
			"[10.8.0.0/24 10.8.2.0/23]", worker, ""},
		"claimed twice": {[]v1alpha1.NodeNetwork{nodeNetwork("worker", "10.8.7.0/26"), nodeNetwork("gw", "10.8.7.0/26")},
			"[10.8.2.0/24 10.8.7.0/26]", worker, "NodeNetwork/worker Overlap"},
		"not the cluster's": {[]v1alpha1.NodeNetwork{nodeNetwork("gw", "192.0.2.1/32")}, gw, worker,
			"NodeNetwork/gw NotOfCluster"},
		"with a node in it": {[]v1alpha1.NodeNetwork{nodeNetwork("gw", "172.31.1.0/24")}, gw, worker,
			"NodeNetwork/gw ContainsNode"},
		"no network": {[]v1alpha1.NodeNetwork{nodeNetwork("gw", "10.8.7.1/24")}, gw, worker, "NodeNetwork/gw NotMasked"},
		"of nobody":  {[]v1alpha1.NodeNetwork{nodeNetwork("x", "10.8.7.0/24")}, gw, worker, "NodeNetwork/x UnknownNode"},
	} {
		t.Run(name, func(t *testing.T) {
			in := input()
			networks := &in.Peering.Spec.Networks
			networks.PodCIDRs = append(networks.PodCIDRs, "172.31.1.0/24") // an underlay's
			in.NodeNetworks = c.networks
			got := topology.Build(in)
			if fmt.Sprint(got.Local.Nodes[0].Pods) != c.gw || fmt.Sprint(got.Local.Nodes[1].Pods) != c.worker {
				t.Errorf("gw %v, want %s; worker %v, want %s", got.Local.Nodes[0].Pods, c.gw, got.Local.Nodes[1].Pods,
					c.worker)
			}
			problem := ""
			for _, p := range got.Problems {
				problem += p.Ref + " " + p.Reason
			}
			if problem != c.problem {
				t.Errorf("problems %q, want %q", got.Problems, c.problem)
			}
		})
	}
}

// FuzzNodeNetworks: whatever is claimed, no address is of two nodes, none is a node's or outside the cluster's
// networks, and the narrowest claim counts.
func FuzzNodeNetworks(f *testing.F) {
	for seed := range uint64(30) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		in := input()
		in.Nodes = append(in.Nodes, node("w2", "172.31.1.13", "10.8.3.0/24"), node("w3", "10.8.9.9"))
		claims := map[netip.Prefix]string{}
		for _, name := range []string{"worker", "w3", "w2", "gw"} { // of equals, the first by name has it
			n := v1alpha1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: name}}
			for range r.IntN(20) {
				ip := netip.AddrFrom4([4]byte{10, 8, byte(r.IntN(10)), byte(r.IntN(256))})
				p := netip.PrefixFrom(ip, 20+r.IntN(13)).Masked()
				n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, p.String())
				if !p.Contains(netip.MustParseAddr("10.8.9.9")) {
					claims[p] = name
				}
			}
			in.NodeNetworks = append(in.NodeNetworks, n)
		}
		got := topology.Build(in)
		check(t, got)
		for range 200 {
			ip := netip.AddrFrom4([4]byte{10, 8, byte(r.IntN(10)), byte(r.IntN(256))})
			if want, at := narrowest(in.Nodes, claims, ip), holders(got.Local.Nodes, ip); at != want {
				t.Errorf("%s is on %s, want %s", ip, at, want)
			}
		}
	})
}

// narrowest returns in brackets which node has an address by the claims and the spec.podCIDRs of nodes.
func narrowest(nodes []corev1.Node, claims map[netip.Prefix]string, ip netip.Addr) string {
	for bits := 32; bits >= 0; bits-- {
		p := netip.PrefixFrom(ip, bits).Masked()
		if name, ok := claims[p]; ok {
			return "[" + name + "]"
		}
		for _, n := range nodes {
			for _, cidr := range n.Spec.PodCIDRs {
				if cidr == p.String() {
					return "[" + n.Name + "]"
				}
			}
		}
	}
	return "[]"
}

func holders(nodes []topology.Node, ip netip.Addr) string {
	var out []string
	for _, n := range nodes {
		for _, p := range n.Pods {
			if p.Contains(ip) {
				out = append(out, n.Name)
			}
		}
	}
	return fmt.Sprint(out)
}
