// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestANoisyMemberDecidesNoServices: a member whose connections come and go as fast as it can say so costs the other
// members nothing, and no decision on services; and a cluster that Karmada reaches again is still noticed.
func TestANoisyMemberDecidesNoServices(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	f.ready("c1")
	f.ready("c2")
	f.report("c1", connections(1, "c2=Connected"))
	f.report("c2", connections(2, "c1=Connected"))
	f.becomes("all is well", allWell)
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"))
	f.eventually("both import it", func() bool { return f.importers("web") == "c1,c2" })
	f.settled()
	decided, heard := f.decided("services"), f.decided("fabric")
	if decided == 0 || heard == 0 {
		t.Fatalf("%d and %d decisions are counted: this shows nothing", decided, heard)
	}
	for range 10 {
		f.report("c2", connections(2, "c1=Error/ProbesLost"))
		f.eventually("it is heard", func() bool { return f.member("c2").Status.Connections[0].Status == "Error" })
		f.report("c2", connections(2, "c1=Connected"))
		f.eventually("it is heard", func() bool { return f.member("c2").Status.Connections[0].Status == "Connected" })
	}
	// Each shard may have had one look left, by its own clock.
	const shards = 4
	if now := f.decided("services"); now > decided+shards {
		t.Errorf("services were decided %d times, by %d of the network", now-decided, f.decided("fabric")-heard)
	}
	if writes := f.counted(); len(writes) > 0 {
		t.Errorf("Works were written: %v", writes)
	}
	decided = f.decided("services")
	f.reach("c2", metav1.ConditionFalse)
	f.eventually("a decision, now that c2 is not reached", func() bool { return f.decided("services") > decided })
	f.becomes("c2 is not reached", unknown+"ClusterNotReady")
	decided = f.decided("services")
	f.reach("c2", metav1.ConditionTrue)
	f.eventually("a decision, now that it is", func() bool { return f.decided("services") > decided })
}

// TestMeasurementsOfAMemberCostNothing: what it says to have measured is recorded, and however often it says something
// else, few decisions on the network and few writes of its record come of that, and nothing for anybody else.
func TestMeasurementsOfAMemberCostNothing(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	f.ready("c1")
	f.ready("c2")
	f.report("c1", connections(1, "c2=Connected"))
	measures := func(rtt int64, loss int32) {
		s := connections(2, "c1=Connected")
		s.Connections[0].Measured = &v1alpha1.Measurements{RTTMicroseconds: rtt, LossPercent: loss}
		f.report("c2", s)
		f.eventually("it has come to Karmada", f.answered)
	}
	recorded := func(rtt int64) func() bool {
		return func() bool {
			c := f.member("c2").Status.Connections
			return len(c) == 1 && (rtt == 0 && c[0].Measured == nil ||
				rtt > 0 && c[0].Measured != nil && c[0].Measured.RTTMicroseconds == rtt)
		}
	}
	f.report("c2", connections(2, "c1=Connected"))
	f.becomes("all is well", allWell)
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"))
	f.eventually("both import it", func() bool { return f.importers("web") == "c1,c2" })
	measures(20_000, 0)
	f.eventually("it is recorded", recorded(20_000))
	f.settled()
	start, decided, heard, writes := time.Now(), f.decided("services"), f.decided("fabric"), f.records("c2")
	for i := range 30 {
		for _, rtt := range []int64{30_000, 70_000, -1, 1 << 50} {
			measures(rtt, int32(i))
		}
	}
	measures(50_000, 2)
	f.eventually("the last is recorded", recorded(50_000))
	paces := 2 + int(time.Since(start)/(10*time.Second))
	if n := f.records("c2") - writes; n < 1 || n > paces {
		t.Errorf("121 reports within %s cost %d writes of the record, want at most %d", time.Since(start), n, paces)
	}
	// A decision that waited, one when its write may go out, and what else each shard and the network had left.
	if n := f.decided("fabric") - heard; n > uint64(2*paces+2) {
		t.Errorf("the network was decided on %d times within %s", n, time.Since(start))
	}
	if n := f.decided("services") - decided; n > 2*4 { // shards, each with what it had left
		t.Errorf("services were decided %d times", n)
	}
	for work, n := range f.counted() {
		if n > 1 { // the roll may have been called meanwhile
			t.Errorf("%s: %d", work, n)
		}
	}
	f.reach("c2", metav1.ConditionFalse)
	f.eventually("of one that is not reached nothing is known", recorded(0))
}
