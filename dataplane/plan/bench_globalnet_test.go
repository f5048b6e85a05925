// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/globalnet"
)

// manyAddresses is the plan of a gateway with 1,000 services and 9,000 pods of global addresses.
func manyAddresses(tb testing.TB) (topology.Input, plan.Plan) {
	tb.Helper()
	in := manyInput(1000, 9000)
	top := topology.Build(in)
	if len(top.Local.Services) != 1000 || len(top.Local.GlobalPods) != 9000 || len(top.Problems) > 0 {
		tb.Fatalf("%d services, %d pods, problems %v", len(top.Local.Services), len(top.Local.GlobalPods), top.Problems)
	}
	return in, plan.For(top, translating("node-0"))
}

// move gives one pod another address of its own.
func move(in topology.Input) {
	last := &in.GlobalIngressIPs[len(in.GlobalIngressIPs)-1]
	last.Status.Pods[0].IP = "10.7.0.5"
}

// TestOneChangedAddressIsOneElement: of 10,000 addresses one leads elsewhere. In the maps there and back one element
// goes and one comes, no other element and no chain is written.
func TestOneChangedAddressIsOneElement(t *testing.T) {
	in, have := manyAddresses(t)
	was := in.GlobalIngressIPs[len(in.GlobalIngressIPs)-1].Status.Pods[0]
	move(in)
	changes := plan.Diff(plan.For(topology.Build(in), translating("node-0")), have)
	if len(changes) != 1 {
		t.Fatalf("changes %v", changes)
	}
	e, ok := changes[0].Element.(plan.TableEdit)
	if !ok {
		t.Fatalf("a %T is no edit", changes[0].Element)
	}
	want := fmt.Sprintf("ip sealane: delete globalpods { %[1]s : %[2]s }, delete podglobals { %[2]s : %[1]s }, "+
		"add globalpods { %[1]s : 10.7.0.5 }, add podglobals { 10.7.0.5 : %[1]s }", was.GlobalIP, was.IP)
	if got := e.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// BenchmarkGlobalnet is one round of a gateway with 10,000 global addresses, of which one has changed: the topology
// from the objects, the plan from that, and the difference to the kernel.
func BenchmarkGlobalnet(b *testing.B) {
	in, have := manyAddresses(b)
	same := in
	in.GlobalIngressIPs = append([]v1alpha1.GlobalIngressIP(nil), in.GlobalIngressIPs...)
	last := &in.GlobalIngressIPs[len(in.GlobalIngressIPs)-1]
	last.Status.Pods = append([]v1alpha1.GlobalPod(nil), last.Status.Pods...)
	move(in)
	changed := plan.For(topology.Build(in), translating("node-0"))
	top := topology.Build(in)
	for _, part := range []struct {
		name string
		do   func() int
		want int
	}{
		{"topology", func() int { return len(topology.Build(in).Local.Services) }, 1000},
		{"plan", func() int { return len(plan.For(top, translating("node-0")).Tables) }, len(changed.Tables)},
		{"diff", func() int { return len(plan.Diff(changed, have)) }, 1},
		{"nothing to do", func() int {
			return len(plan.Diff(plan.For(topology.Build(same), translating("node-0")), have))
		}, 0},
		{"all", func() int {
			return len(plan.Diff(plan.For(topology.Build(in), translating("node-0")), have))
		}, 1},
	} {
		b.Run(part.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := part.do(); got != part.want {
					b.Fatalf("%d, want %d", got, part.want)
				}
			}
		})
	}
}

// translating is the node of manyInput's cluster that translates, whose key has this ID.
func translating(id plan.PeerID) plan.NodeFacts {
	return plan.NodeFacts{Name: "node-0", ID: id, UnderlayMTU: 1500}
}

// manyInput is a cluster of ten nodes with one gateway and a block, and another cluster that knows it by that. Each of
// its services has a global address, a port and two backends, and each of the pods, which are behind headless services
// of a thousand, has one of its own. There are 32767 addresses.
func manyInput(services, pods int) topology.Input {
	block := netip.MustParsePrefix("120.1.0.0/16")
	in := topology.Input{Peering: &v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{
		Phase: v1alpha1.MemberActive, ClusterID: "g1", GlobalCIDR: block.String(),
		Cable:    v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
		Networks: v1alpha1.Networks{PodCIDRs: []string{"10.7.0.0/16"}, ServiceCIDRs: []string{"10.77.0.0/16"}},
		RemoteClusters: []v1alpha1.RemoteCluster{{Name: "g2", GlobalCIDR: "120.2.0.0/16", Translated: true,
			Endpoints: []v1alpha1.Endpoint{{Gateway: "gw", MTU: 1420, PublicKey: topology.Key{1}.String(),
				Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPublic, IP: "198.18.0.1"}}}}}},
	}}}
	for i := range 10 {
		in.Nodes = append(in.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)},
			Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.7.%d.0/20", 16*i)}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.31.0.%d", i+1)}}}})
	}
	in.Gateways = []v1alpha1.Gateway{{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}}}
	for n := range services {
		o := v1alpha1.GlobalIngressIP{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: fmt.Sprintf("web-%d", n)}}
		o.Status.IP = globalnet.At(block, 1+n).String()
		o.Status.Ports = []v1alpha1.GlobalPort{{Protocol: corev1.ProtocolTCP, Port: 80,
			Backends: []v1alpha1.GlobalBackend{{IP: podIP(n), Port: 8080}, {IP: podIP(n + 1), Port: 8080}}}}
		in.GlobalIngressIPs = append(in.GlobalIngressIPs, o)
	}
	for n := range pods {
		if n%1000 == 0 {
			in.GlobalIngressIPs = append(in.GlobalIngressIPs, v1alpha1.GlobalIngressIP{
				ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: fmt.Sprintf("db-%d", n/1000)}})
		}
		o := &in.GlobalIngressIPs[len(in.GlobalIngressIPs)-1]
		o.Status.Pods = append(o.Status.Pods, v1alpha1.GlobalPod{Name: fmt.Sprintf("db-%d-%d", n/1000, n%1000),
			IP: podIP(n), GlobalIP: globalnet.At(block, 1+services+n).String()})
	}
	return in
}

// podIP is the address of a pod, on one node after the other.
func podIP(n int) string { return fmt.Sprintf("10.7.%d.%d", 16*(n%10)+n/10/200, n/10%200+10) }
