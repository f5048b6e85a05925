// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"fmt"
	"slices"
	"testing"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// inShard0 are as many exports of shard 0, with a pod each.
func inShard0(count int) (out []v1alpha1.Export) {
	for i := 0; len(out) < count; i++ {
		if name := fmt.Sprintf("web-%d", i); v1alpha1.Shard("sample", name, 4) == 0 {
			n := len(out)
			out = append(out, export("sample", name, fmt.Sprintf("10.101.0.%d", 1+n), fmt.Sprintf("10.1.0.%d", 1+n)))
		}
	}
	return out
}

// halvesOf are the halves that a cluster's own Bundle of shard 0 lists, and how many Works of halves it has.
func (f *fleet) halvesOf(cluster string) (listed []string, works int) {
	f.t.Helper()
	var list workv1alpha1.WorkList
	f.must(f.client.List(f.t.Context(), &list, client.InNamespace("karmada-es-"+cluster),
		client.HasLabels{propagation.LabelHalf}))
	if own := f.half(cluster, 0, ""); own != nil {
		listed = own.Halves
	}
	return listed, len(list.Items)
}

// TestALargeShardIsHalved: while endpoints change and the controller starts anew, each service is found where the
// shard's own Bundle says, and when most are gone all is in one Bundle again.
func TestALargeShardIsHalved(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	all := inShard0(80)
	f.export("c1", all[:10]...)
	f.eventually("c2 imports some", func() bool { return f.imported("c2", all[9].Name) != nil })
	round := 0
	// change gives the first export another pod, and checks that c2 finds all of the first five.
	change := func(exports []v1alpha1.Export) {
		t.Helper()
		round++
		exports = slices.Clone(exports)
		exports[0] = export("sample", all[0].Name, all[0].ClusterIPs[0], fmt.Sprintf("10.1.9.%d", round))
		f.export("c1", exports...)
		for i := range 5 {
			if f.imported("c2", all[i].Name) == nil {
				t.Fatalf("round %d: c2 does not find %s", round, all[i].Name)
			}
		}
	}
	f.eventually("all are in halves", func() bool {
		change(all)
		listed, works := f.halvesOf("c2")
		return len(listed) > 1 && works == len(listed)
	})
	f.settled() // the last change may still be on its way
	f.stop()
	f.start()
	f.settled()
	f.never("a controller that starts writes Works", func() bool { return len(f.counted()) > 0 })
	f.mu.Lock()
	before := f.sent
	f.mu.Unlock()
	change(all)
	pod := fmt.Sprintf("10.1.9.%d", round)
	f.eventually("c2 imports the pod", func() bool {
		i := f.imported("c2", all[0].Name)
		return i.Clusters[0].Backends[0].Addresses[0].IP == pod
	})
	if got := f.counted(); fmt.Sprint(got) != "map[c2 PUT:1]" {
		t.Errorf("writes of Works: %v", got)
	}
	f.mu.Lock()
	if f.sent-before > 16<<10 {
		t.Errorf("a change of an endpoint takes %d bytes", f.sent-before)
	}
	f.mu.Unlock()
	f.export("c1", all[:5]...)
	f.eventually("all are in one Bundle again", func() bool {
		change(all[:5])
		listed, works := f.halvesOf("c2")
		return len(listed) == 0 && works == 0
	})
}
