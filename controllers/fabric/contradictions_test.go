// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestAContradictedReportIsAskedForAnew: c1 says that c2 is lost, which says that they are connected. c3 and c1 agree.
func TestAContradictedReportIsAskedForAnew(t *testing.T) {
	member := func(name string, connections ...v1alpha1.MemberConnection) Member {
		m := Member{Report: Report{Known: true}}
		m.Record.Name, m.Record.UID = name, types.UID(name)
		m.Report.Status.Connections = connections
		return m
	}
	of := func(cluster string, status v1alpha1.ConnectionStatus) v1alpha1.MemberConnection {
		return v1alpha1.MemberConnection{Cluster: cluster, Status: status}
	}
	const connected, lost = v1alpha1.ConnectionConnected, v1alpha1.ConnectionError
	fleet := func(ofC2 v1alpha1.ConnectionStatus) []Member {
		return []Member{member("c1", of("c2", ofC2), of("c3", lost)), member("c2", of("c1", connected)),
			member("c3", of("c1", lost))}
	}
	if got := contradictions(fleet(lost)); !slices.Equal(got, []bool{true, false, false}) {
		t.Fatalf("expected the report of c1 alone to be contradicted, found %v", got)
	}
	r, now := &Reconciler{}, time.Unix(1000, 0)
	for i, step := range []struct {
		after       time.Duration
		ofC2        v1alpha1.ConnectionStatus
		found, asks bool
	}{
		{0, lost, true, false}, // the news may be on its way
		{askAgain - 1, lost, true, false},
		{1, lost, true, true},
		{askAgain - 1, lost, true, false},
		{1, lost, true, true},
		{1, connected, false, false},
		{askAgain, lost, true, false}, // another time: it has its time again
		{askAgain, lost, true, true},
	} {
		now = now.Add(step.after)
		members := fleet(step.ofC2)
		found := r.contradicted(members, now)
		if found != step.found || members[0].Refresh != step.asks || members[1].Refresh || members[2].Refresh {
			t.Errorf("step %d: expected contradicted %t and c1 asked %t, found %t and %t, %t, %t", i, step.found, step.asks,
				found,
				members[0].Refresh, members[1].Refresh, members[2].Refresh)
		}
	}
}
