// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/globalnet"
)

const blockOfOwn, ipv6OfOwn = "120.1.0.0/20", "fd5e:a1a4:e242:7801::/116"

// ledger has, of each name, what connections reach and, of "egress-" and the name, what some come from.
func ledger(names ...string) []v1alpha1.GlobalAllocation {
	var out []v1alpha1.GlobalAllocation
	for i, name := range names {
		created := metav1.NewTime(time.Unix(int64(i), 0))
		in := v1alpha1.NewGlobalAllocation(v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalIngress, Namespace: "sample",
			Name: name})
		in.CreationTimestamp, in.Spec.Ingress = created, &v1alpha1.IngressAllocation{}
		from := v1alpha1.NewGlobalAllocation(v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalEgress, Namespace: "sample",
			Name: "egress-" + name})
		from.CreationTimestamp, from.Spec.Egress = created, &v1alpha1.PodEgressAllocation{}
		out = append(out, *in, *from)
	}
	return out
}

// FuzzGlobalAllocations feeds whatever an allocation can say, beside one that is good and older. The result does not
// depend on the order; gateways translate to pods and nodes of the cluster alone, an address has one owner, and what is
// older stays as it is.
func FuzzGlobalAllocations(f *testing.F) {
	f.Add("120.1.0.10", "TCP", int32(80), "10.8.0.10", int32(8080), "120.1.0.11", "10.8.1.10", int32(9), int32(10),
		"10.8.0.10", true)
	f.Add("120.1.0.12", "ICMP", int32(0), "192.0.2.1", int32(70000), "120.1.0.12", "172.31.1.11", int32(0),
		int32(1<<31-1), "::1", false)
	f.Add("fd00::1", "UDP", int32(-1), "", int32(1), "120.1.8.1", "10.9.0.10", int32(10), int32(9), "10.8.0.11", true)
	f.Add("120.1.0.12", "TCP", int32(80), "fd08::7", int32(8080), "120.1.0.13", "fd08::8", int32(11), int32(12), "fd08::9",
		false)
	f.Fuzz(func(t *testing.T, ip, protocol string, port int32, backend string, backendPort int32, podGlobal, pod string,
		first, last int32, client string, selected bool) {
		in := input()
		in.Peering.Spec.GlobalCIDR, in.Peering.Spec.GlobalIPv6CIDR = blockOfOwn, ipv6OfOwn
		in.Peering.Spec.Networks.PodCIDRs = append(in.Peering.Spec.Networks.PodCIDRs, "fd08::/48")
		in.GlobalAllocations = ledger("good", "hostile")
		good, goodEgress := in.GlobalAllocations[0].Spec.Ingress, in.GlobalAllocations[1].Spec.Egress
		good.IP = "120.1.0.10"
		good.Ports = []v1alpha1.GlobalPort{{Protocol: corev1.ProtocolTCP, Port: 80,
			Backends: []v1alpha1.GlobalBackend{{IP: "10.8.0.10", Port: 8080}}}}
		goodEgress.EgressRange, goodEgress.Pods, goodEgress.Selected = v1alpha1.EgressRange{First: 9, Last: 9},
			[]string{"10.8.0.10"}, true
		in.GlobalAllocations[2].Spec.Ingress = &v1alpha1.IngressAllocation{IP: ip,
			Ports: []v1alpha1.GlobalPort{{Protocol: corev1.Protocol(protocol), Port: port,
				Backends: []v1alpha1.GlobalBackend{{IP: backend, Port: backendPort}, {IP: pod, Port: backendPort}}}},
			Pods: []v1alpha1.GlobalPod{{Name: "a", IP: pod, IPv6: backend, GlobalIP: podGlobal},
				{Name: "b", IP: backend, IPv6: pod, GlobalIP: ip}}}
		hostile := in.GlobalAllocations[3].Spec.Egress
		hostile.EgressRange, hostile.Pods, hostile.Selected = v1alpha1.EgressRange{First: first, Last: last},
			[]string{client, pod}, selected

		got := topology.Build(in)
		checkGlobal(t, got.Local)
		r := rand.New(rand.NewPCG(uint64(port), uint64(first)))
		shuffle(r, in.GlobalAllocations)
		if diff := cmp.Diff(got, topology.Build(in), exact); diff != "" {
			t.Errorf("the order matters (-one +other)\n%s", diff)
		}
	})
}

// checkGlobal holds what gateways rely on, and that the good one of FuzzGlobalAllocations has what it had.
func checkGlobal(t *testing.T, local topology.Local) {
	t.Helper()
	nodes := map[netip.Addr]bool{}
	for _, n := range local.Nodes {
		for _, a := range n.Addresses {
			nodes[a] = true
		}
	}
	pod := func(a netip.Addr) bool {
		return !nodes[a] && slices.ContainsFunc(local.Pods, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	owned := map[netip.Addr]bool{}
	own := func(a netip.Addr) {
		block := local.Global
		if a.Is6() {
			block = local.GlobalIPv6
		}
		if _, ok := globalnet.Number(block, a); !ok || owned[a] {
			t.Errorf("%s is not for services, or has two owners", a)
		}
		owned[a] = true
	}
	good := false
	for _, s := range local.Services {
		own(s.Address)
		for _, p := range s.Ports {
			for _, b := range p.Backends {
				if !pod(b.Addr()) && !nodes[b.Addr()] || b.Port() == 0 || p.Port == 0 || b.Addr().Is4() != s.Address.Is4() {
					t.Errorf("%s leads from port %d to %s", s.Address, p.Port, b)
				}
			}
			good = good || s.Address.String() == "120.1.0.10" && p.Backends[0].String() == "10.8.0.10:8080"
		}
	}
	for _, p := range local.GlobalPods {
		own(p.Global)
		if !pod(p.IP) || p.IP.Is4() != p.Global.Is4() {
			t.Errorf("%s leads to %s", p.Global, p.IP)
		}
	}
	pooled, next := map[netip.Addr]bool{}, local.ClusterEgress.Last+1
	for _, e := range local.Egress {
		if e.First < next || e.Last < e.First || e.Last > globalnet.EgressSize(local.Global) {
			t.Errorf("range %v of the share, of which %d is the first that is free", e.EgressRange, next)
		}
		next = e.Last + 1
		for _, a := range e.Pods {
			if !pod(a) || pooled[a] {
				t.Errorf("%s is no pod, or in two pools", a)
			}
			pooled[a] = true
		}
	}
	if !good || len(local.Egress) == 0 || !slices.ContainsFunc(local.Egress, func(e topology.EgressPool) bool {
		return e.First == 9 && e.Last == 9 && slices.Contains(e.Pods, netip.MustParseAddr("10.8.0.10"))
	}) {
		t.Errorf("the older has lost something: %v %v", local.Services, local.Egress)
	}
}
