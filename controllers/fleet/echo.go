// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
)

const (
	// echoPatience is how long a Work that Karmada had trouble with has to be answered, echoWindow how long a
	// cluster that turned Ready counts as one with trouble, and idlePatience is for a Work without any.
	echoPatience = 5 * time.Second
	echoWindow   = time.Minute
	idlePatience = 30 * time.Second
	// patienceLimit for trouble that stays.
	patienceLimit, idleLimit = time.Minute, 15 * time.Minute
)

// Echo remembers since when a member has not answered one Work, and when that was last sent anew.
type Echo struct {
	since, sent time.Time
}

// Waited returns for how long a cluster that is ready has left the Work unanswered, as of the last call of Overdue; 0
// if it has answered.
func (e *Echo) Waited(now time.Time) time.Duration {
	if e.since.IsZero() {
		return 0
	}
	return now.Sub(e.since)
}

// Overdue says whether to send a Work anew that a cluster has not answered, and otherwise when to ask again
// (0: never). Karmada doubles its wait after each failure, up to 1000 s: an outage leaves its view of the
// member's objects stale for up to a minute, all its writes fail meanwhile, and the wait goes on for as long
// again. A change of the Work makes it try at once. failed says that Karmada could not apply the Work. Patience
// grows with the time that has passed, so that what never answers costs little.
func (e *Echo) Overdue(cluster *clusterv1alpha1.Cluster, answered, failed bool, now time.Time) (bool, time.Duration) {
	if answered || cluster == nil {
		*e = Echo{}
		return false, 0
	}
	ready := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1alpha1.ClusterConditionReady)
	if ready == nil || ready.Status != "True" {
		*e = Echo{}
		return false, 0
	}
	if e.since.IsZero() {
		e.since, e.sent = now, now
	}
	waited := e.sent.Sub(e.since)
	patience := min(max(waited, idlePatience), idleLimit)
	if failed || now.Sub(ready.LastTransitionTime.Time) < echoWindow {
		patience = min(max(waited/4, echoPatience), patienceLimit)
	}
	if left := e.sent.Add(patience).Sub(now); left > 0 {
		return false, left
	}
	e.sent = now
	return true, 0
}
