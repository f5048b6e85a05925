// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
