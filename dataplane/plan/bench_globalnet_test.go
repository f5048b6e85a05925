// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/plan/plantest"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// manyAddresses is the plan of a gateway with 1,000 services and 9,000 pods of global addresses.
func manyAddresses(tb testing.TB) (topology.Input, plan.Plan) {
	tb.Helper()
	in := plantest.Globalnet(1000, 9000)
	top := topology.Build(in)
	if len(top.Local.Services) != 1000 || len(top.Local.GlobalPods) != 9000 || len(top.Problems) > 0 {
		tb.Fatalf("%d services, %d pods, problems %v", len(top.Local.Services), len(top.Local.GlobalPods), top.Problems)
	}
	return in, plan.For(top, plantest.Gateway("node-0"))
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
	changes := plan.Diff(plan.For(topology.Build(in), plantest.Gateway("node-0")), have)
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
	changed := plan.For(topology.Build(in), plantest.Gateway("node-0"))
	top := topology.Build(in)
	for _, part := range []struct {
		name string
		do   func() int
		want int
	}{
		{"topology", func() int { return len(topology.Build(in).Local.Services) }, 1000},
		{"plan", func() int { return len(plan.For(top, plantest.Gateway("node-0")).Tables) }, len(changed.Tables)},
		{"diff", func() int { return len(plan.Diff(changed, have)) }, 1},
		{"nothing to do", func() int {
			return len(plan.Diff(plan.For(topology.Build(same), plantest.Gateway("node-0")), have))
		}, 0},
		{"all", func() int {
			return len(plan.Diff(plan.For(topology.Build(in), plantest.Gateway("node-0")), have))
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
