// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"testing"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/plan/plantest"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// BenchmarkNodes is what a round takes that finds nothing to change, on a node of a cluster of 1,000 with 250 remote
// clusters of two gateways each: the plan, a look at the kernel and the difference, all of it and the look alone. The
// gateway's peers are a list and no devices.
func BenchmarkNodes(b *testing.B) {
	top := topology.Build(plantest.Fleet(250, 2, 1000))
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		b.Fatal(err)
	}
	for role, node := range map[string]string{"gateway": "node-0", "worker": "node-999"} {
		k := openDrivers(b, map[string]kernel.Driver{string(v1alpha1.CableWireGuard): bridges{}},
			func() error { return nil })
		facts := plantest.Alive(top, plan.NodeFacts{Name: node, ID: idOf(key), UnderlayMTU: 1500, IPv6: k.IPv6()})
		reach(b, k, plan.For(top, facts))
		look := func() plan.Plan {
			have, err := k.Observe(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			return have
		}
		b.Run(fmt.Sprintf("role=%s/observe", role), func(b *testing.B) {
			before := processorTime(b)
			for b.Loop() {
				look()
			}
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
		b.Run(fmt.Sprintf("role=%s/plan+observe+diff", role), func(b *testing.B) {
			before := processorTime(b)
			for b.Loop() {
				have := look()
				facts.Current = plan.Current(top, have)
				if changes := plan.Diff(plan.For(top, facts), have); len(changes) > 0 {
					b.Fatalf("%d changes, the first: %s", len(changes), changes[0])
				}
			}
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
		reach(b, k, plan.Plan{})
	}
}
