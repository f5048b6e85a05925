// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"fmt"
	"testing"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// setStatus changes the status of a Cluster.
func (f *fleet) setStatus(name string, change func(*clusterv1alpha1.ClusterStatus)) {
	f.t.Helper()
	f.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		c := f.cluster(name)
		change(&c.Status)
		return f.client.Status().Update(f.t.Context(), c)
	}))
}

// setBinding changes the status of a binding.
func (f *fleet) setBinding(name string, change func(*workv1alpha2.ResourceBindingStatus)) {
	f.t.Helper()
	f.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var b workv1alpha2.ClusterResourceBinding
		if err := f.client.Get(f.t.Context(), client.ObjectKey{Name: name}, &b); err != nil {
			return err
		}
		change(&b.Status)
		return f.client.Status().Update(f.t.Context(), &b)
	}))
}

// TestEventsThatChangeNothingDecideNothing: Karmada writes the status of each cluster every few seconds, and that of
// each CRD of anybody's. None of it is decided on.
func TestEventsThatChangeNothingDecideNothing(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	f.ready("c1")
	f.ready("c2")
	f.report("c1", connections(1, "c2=Connected"))
	f.report("c2", connections(2, "c1=Connected"))
	f.becomes("all is well", allWell)
	other := &workv1alpha2.ClusterResourceBinding{ObjectMeta: metav1.ObjectMeta{Name: "others-customresourcedefinition"}}
	other.Spec.Resource = workv1alpha2.ObjectReference{APIVersion: "v1", Kind: "X", Name: "x"}
	f.create(other)
	f.settled()
	const events, shards, paths = 30, 4, 2
	services, network := f.decided("services"), f.decided("fabric")
	for i := range events {
		f.setStatus("c1", func(s *clusterv1alpha1.ClusterStatus) {
			s.NodeSummary = &clusterv1alpha1.NodeSummary{TotalNum: 100, ReadyNum: int32(i)}
		})
		for _, name := range append(propagation.WireBindings(), other.Name) {
			f.setBinding(name, func(s *workv1alpha2.ResourceBindingStatus) {
				if len(s.AggregatedStatus) == 0 {
					s.AggregatedStatus = []workv1alpha2.AggregatedStatusItem{{ClusterName: "c1"}}
				}
				s.AggregatedStatus[0].Status = &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"round":%d}`, i)}
			})
		}
	}
	// What is seen next is decided on, so that all of the above has been seen.
	seen := f.decided("fabric")
	f.setStatus("c1", func(s *clusterv1alpha1.ClusterStatus) {
		s.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
	})
	f.eventually("the network is decided on", func() bool { return f.decided("fabric") > seen })
	seen = f.decided("services")
	f.setBinding(propagation.WireBindings()[1], func(s *workv1alpha2.ResourceBindingStatus) {
		s.AggregatedStatus = append(s.AggregatedStatus, workv1alpha2.AggregatedStatusItem{ClusterName: "c9", Applied: true})
	})
	f.eventually("services are decided on", func() bool { return f.decided("services") >= seen+shards })
	f.settled()
	// Each shard, and the network, may have had a look left by its own clock.
	if n := f.decided("services") - services; n > 2*shards {
		t.Errorf("services were decided on %d times for %d events, of which one concerns each of %d shards", n,
			4*events+2, shards)
	}
	if n := f.decided("fabric") - network; n > 2*paths {
		t.Errorf("the network was decided on %d times for %d events, of which %d concern it", n, 4*events+2, paths)
	}
}

// TestAClusterThatComesAndGoesIsPaced: a pull member whose connection flaps decides a shard once a second at most.
func TestAClusterThatComesAndGoesIsPaced(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	f.ready("c1")
	f.ready("c2")
	f.settled()
	const flips, shards = 60, 4
	begun, before := time.Now(), f.decided("services")
	for i := range flips {
		status := metav1.ConditionFalse
		if i%2 == 1 {
			status = metav1.ConditionTrue
		}
		f.reach("c1", status)
	}
	f.eventually("each shard is decided on", func() bool { return f.decided("services") >= before+shards })
	f.settled()
	n, most := f.decided("services")-before, uint64(shards*(2+int(time.Since(begun)/time.Second)))
	if most >= flips*shards {
		t.Fatalf("%d flips took %s: this shows nothing", flips, time.Since(begun))
	}
	if n > most {
		t.Errorf("services were decided on %d times for %d flips within %s, at most %d are in pace", n, flips,
			time.Since(begun), most)
	}
}

// TestARecordThatIsDeletedComesBack with all that it said, also of a cluster that is not heard meanwhile.
func TestARecordThatIsDeletedComesBack(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"))
	f.eventually("both import it", func() bool { return f.importers("web") == "c1,c2" })
	f.settled()
	f.silence("c1")
	key := client.ObjectKey{Name: v1alpha1.ExportRecordName("c1", v1alpha1.Shard("sample", "web", 4))}
	var before v1alpha1.ExportRecord
	f.must(f.client.Get(t.Context(), key, &before))
	if len(before.Spec.Seen) != 1 || len(before.Spec.Exports) != 1 {
		t.Fatalf("the record says %+v", before.Spec)
	}
	// What was written just now is not taken for gone before it can be.
	f.eventually("the cache has what was written", func() bool {
		return time.Since(before.CreationTimestamp.Time) > propagation.CacheLag+time.Second
	})
	f.must(f.client.Delete(t.Context(), before.DeepCopy()))
	var after v1alpha1.ExportRecord
	f.eventually("the record is back", func() bool { return f.client.Get(t.Context(), key, &after) == nil })
	if got, want := fmt.Sprint(after.Spec), fmt.Sprint(before.Spec); got != want {
		t.Errorf("the record says\n%s, and said\n%s", got, want)
	}
	f.never("the import goes", func() bool { return f.importers("web") != "c1,c2" })
	// And what somebody writes into it is decided on.
	changed := after.DeepCopy()
	changed.Spec.Seen[0].FirstSeen = metav1.NewMicroTime(time.Now().Add(-time.Hour).Truncate(time.Microsecond))
	decided := f.decided("services")
	f.must(f.client.Update(t.Context(), changed))
	f.eventually("it is decided on", func() bool { return f.decided("services") > decided })
}
