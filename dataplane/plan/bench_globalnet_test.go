// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

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
	last := &in.GlobalAllocations[len(in.GlobalAllocations)-1]
	last.Spec.Ingress.Pods[0].IP = "10.7.0.5"
}

// TestOneChangedAddressIsOneElement: of 10,000 addresses one leads elsewhere. In the maps there and back one element
// goes and one comes, no other element and no chain is written.
func TestOneChangedAddressIsOneElement(t *testing.T) {
	in, have := manyAddresses(t)
	was := in.GlobalAllocations[len(in.GlobalAllocations)-1].Spec.Ingress.Pods[0]
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

// TestOrderOfElementsDoesNotMatter: a kernel may list elements in any order. What differs is found all the same, and
// nothing of what was observed is moved.
func TestOrderOfElementsDoesNotMatter(t *testing.T) {
	table := func(prefixes []string, elements ...plan.MapElement) plan.Plan {
		s := plan.Set{Name: "remote"}
		for _, p := range prefixes {
			s.Elements = append(s.Elements, netip.MustParsePrefix(p))
		}
		return plan.Plan{Tables: []plan.Table{{Family: plan.IPv4, Sets: []plan.Set{s}, Maps: []plan.Map{{Name: "globalpods",
			Key: "ipv4_addr", Value: "ipv4_addr", Elements: elements}}}}}
	}
	want := table([]string{"10.1.0.0/16", "10.2.0.0/16", "10.4.0.0/16"},
		plan.MapElement{Key: "120.1.0.1", Value: "10.0.0.1"},
		plan.MapElement{Key: "120.1.0.2", Value: "10.0.0.9"}, plan.MapElement{Key: "120.1.0.4", Value: "10.0.0.4"})
	have := table([]string{"10.4.0.0/16", "10.3.0.0/16", "10.1.0.0/16"},
		plan.MapElement{Key: "120.1.0.3", Value: "10.0.0.3"},
		plan.MapElement{Key: "120.1.0.2", Value: "10.0.0.2"}, plan.MapElement{Key: "120.1.0.1", Value: "10.0.0.1"})
	var got []string
	for _, c := range plan.Diff(want, have) {
		if e, ok := c.Element.(plan.TableEdit); ok {
			got = append(got, e.String())
		}
	}
	const edit = "ip sealane: delete remote { 10.3.0.0/16 }, delete globalpods { 120.1.0.2 : 10.0.0.2 }, " +
		"delete globalpods { 120.1.0.3 : 10.0.0.3 }, add remote { 10.2.0.0/16 }, " +
		"add globalpods { 120.1.0.2 : 10.0.0.9 }, add globalpods { 120.1.0.4 : 10.0.0.4 }"
	if len(got) != 1 || got[0] != edit {
		t.Errorf("got %q\nwant %q", got, edit)
	}
	if first := have.Tables[0].Maps[0].Elements[0].Key; first != "120.1.0.3" {
		t.Errorf("what was observed begins with %s now", first)
	}
}

// BenchmarkGlobalnet is one round of a gateway with 10,000 global addresses, of which one has changed: the topology
// from the objects, the plan from that, and the difference to the kernel.
func BenchmarkGlobalnet(b *testing.B) {
	in, have := manyAddresses(b)
	same := in
	in.GlobalAllocations = slices.Clone(in.GlobalAllocations)
	last := &in.GlobalAllocations[len(in.GlobalAllocations)-1]
	last.Spec = *last.Spec.DeepCopy()
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
			before := processorTime(b)
			for b.Loop() {
				if got := part.do(); got != part.want {
					b.Fatalf("%d, want %d", got, part.want)
				}
			}
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime is what this process has used: on a machine that others use too, it tells more than a clock does.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
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
		in.GlobalAllocations = append(in.GlobalAllocations, ingressOf(fmt.Sprintf("web-%d", n), v1alpha1.IngressAllocation{
			IP: globalnet.At(block, 1+n).String(), Ports: []v1alpha1.GlobalPort{{Protocol: corev1.ProtocolTCP, Port: 80,
				Backends: []v1alpha1.GlobalBackend{{IP: podIP(n), Port: 8080}, {IP: podIP(n + 1), Port: 8080}}}}}))
	}
	for n := range pods {
		if n%1000 == 0 {
			in.GlobalAllocations = append(in.GlobalAllocations, ingressOf(fmt.Sprintf("db-%d", n/1000),
				v1alpha1.IngressAllocation{}))
		}
		of := in.GlobalAllocations[len(in.GlobalAllocations)-1].Spec.Ingress
		of.Pods = append(of.Pods, v1alpha1.GlobalPod{Name: fmt.Sprintf("db-%d-%d", n/1000, n%1000),
			IP: podIP(n), GlobalIP: globalnet.At(block, 1+services+n).String()})
	}
	return in
}

// ingressOf is what a GlobalIngressIP has.
func ingressOf(name string, ingress v1alpha1.IngressAllocation) v1alpha1.GlobalAllocation {
	a := v1alpha1.NewGlobalAllocation(v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalIngress, Namespace: "sample", Name: name})
	a.Spec.Ingress = &ingress
	return *a
}

// podIP is the address of a pod, on one node after the other.
func podIP(n int) string { return fmt.Sprintf("10.7.%d.%d", 16*(n%10)+n/10/200, n/10%200+10) }
