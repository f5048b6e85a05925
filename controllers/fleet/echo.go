// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"hash/fnv"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// echoPatience is how long a Work that Karmada had trouble with has to be answered, echoWindow how long a
	// cluster that turned Ready counts as one with trouble, and idlePatience is for a Work without any.
	echoPatience = 5 * time.Second
	echoWindow   = time.Minute
	idlePatience = 30 * time.Second
	// patienceLimit for trouble that stays.
	patienceLimit, idleLimit = time.Minute, 15 * time.Minute
	// changePatience is how long a cluster that works takes to answer a change, callPatience a call, and firstPatience the
	// first one: those of all clusters are under way at once, through Karmada's rate limit.
	changePatience, callPatience, firstPatience = 10 * time.Second, time.Minute, 5 * time.Minute
	// callAgain is the wait after a call that was not written, of which there are callTries in all.
	callAgain, callTries = 5 * time.Second, 2
	// firstCall is the least time from when a cluster came into sight until it is called, and half of the most.
	firstCall = 30 * time.Second
)

// Echo remembers since when a member has not answered one Work, when that was last sent anew, and when to call the
// member, which is to send it anew though it is answered: Karmada that could not write a report doubles its wait after
// each failure, up to 1000 s, so that after an outage an old report looks like an answer for minutes.
type Echo struct {
	every, spread time.Duration
	since, sent   time.Time
	// due is when to call, zero while the cluster is not in sight; calls is how many there have been, and calling says
	// that what is unanswered is a call.
	due     time.Time
	calls   int
	calling bool
}

// NewEcho returns the Echo of the Work that key names. It calls once after its cluster has come into sight, unless that
// has answered something else by then, and from then on about every so often (0: never again). Calls of different keys
// are spread.
func NewEcho(key string, every time.Duration) Echo {
	h := fnv.New32a()
	h.Write([]byte(key))
	share := float64(h.Sum32()) / (1 << 32)
	part := func(d time.Duration) time.Duration { return time.Duration(share * float64(d)) }
	return Echo{every: every*3/4 + part(every/2), spread: part(firstCall)}
}

// Waited returns for how long a cluster that is ready has left the Work unanswered, as of the last call of Overdue; 0
// if it has answered.
func (e *Echo) Waited(now time.Time) time.Duration {
	if e.since.IsZero() {
		return 0
	}
	return now.Sub(e.since)
}

// Unanswered says whether the cluster has left the Work unanswered for longer than one that works would, as of the last
// call of Overdue, and otherwise when that is to be asked again (0: not before Overdue says so).
func (e *Echo) Unanswered(now time.Time) (bool, time.Duration) {
	if e.since.IsZero() {
		return false, 0
	}
	patience := changePatience
	switch {
	case e.calling && e.calls <= callTries:
		patience = firstPatience
	case e.calling:
		patience = callPatience
	}
	left := patience - e.Waited(now)
	return left <= 0, max(left, 0)
}

// Overdue says whether to send a Work anew, that its cluster has not answered or that is a call, and otherwise
// when to ask again (0: never). Karmada doubles its wait after each failure, up to 1000 s: an outage leaves its view
// of the member's objects stale for up to a minute, all its writes fail meanwhile, and the wait goes on for as long
// again. A change of the Work makes it try at once. failed says that Karmada could not apply the Work. Patience
// grows with the time that has passed, so that what never answers costs little.
func (e *Echo) Overdue(cluster *clusterv1alpha1.Cluster, answered, failed bool, now time.Time) (bool, time.Duration) {
	var ready *metav1.Condition
	if cluster != nil {
		ready = meta.FindStatusCondition(cluster.Status.Conditions, clusterv1alpha1.ClusterConditionReady)
	}
	if ready == nil || ready.Status != metav1.ConditionTrue {
		*e = Echo{every: e.every, spread: e.spread}
		return false, 0
	}
	if answered {
		switch {
		case e.calling && e.since.IsZero() && e.calls < callTries:
			// Either it has not gone out, for the write failed, or it was answered between two looks.
			e.due = now.Add(callAgain)
		case e.calls == 0 && !e.since.IsZero():
			// It has answered something else since it came into sight, which tells as much as an answer to a call.
			e.called(now)
		}
		e.since, e.sent, e.calling = time.Time{}, time.Time{}, false
		return e.call(now)
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

// call says whether to call a cluster that has answered, and otherwise when to (0: never).
func (e *Echo) call(now time.Time) (bool, time.Duration) {
	switch {
	case e.calls > 0 && e.every == 0 && e.due.IsZero():
		return false, 0
	case e.due.IsZero():
		e.due = now.Add(firstCall + e.spread)
	case !e.due.After(now):
		e.called(now)
		e.calling = true
		return true, 0
	}
	return false, e.due.Sub(now)
}

// called counts a call, and says when the next one is due.
func (e *Echo) called(now time.Time) {
	e.calls, e.due = e.calls+1, time.Time{}
	if e.every > 0 {
		e.due = now.Add(e.every)
	}
}
