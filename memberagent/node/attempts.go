// SPDX-License-Identifier: Apache-2.0

package node

import (
	"math/rand/v2"
	"time"

	"github.com/sealane-io/sealane/dataplane/plan"
)

const (
	// tryFirst is for how long a node of another cluster that is new, or has answered, is dialled and probed without an
	// answer until it rests. After a pause it is tried again, for long enough that WireGuard, which starts a handshake
	// every 5 s, does so at each of two addresses.
	tryFirst = 30 * time.Second
	tryAgain = 12 * time.Second
	// pauseFirst doubles with each try, up to pauseMost: what has not been reached for a while is found again in about as
	// much time.
	pauseFirst = 15 * time.Second
	pauseMost  = 10 * time.Minute
)

// attempts decide when nodes of other clusters that do not answer are tried, so that those that never will, such as
// those behind a NAT, cost next to nothing. One that rests is a peer that is not probed: it takes no packet from this
// end, and a handshake of the other end succeeds at once. So one end that tries while the path is there wakes both.
type attempts map[plan.PeerID]*attempt

// attempt to reach one node.
type attempt struct {
	cluster  string
	answers  bool
	resting  bool
	until    time.Time     // when the try, or the pause, ends
	pause    time.Duration // after this try
	received int64         // bytes, as seen last
}

// look takes note of what a node does at the moment, and says whether it begins to rest.
func (t attempts) look(id plan.PeerID, cluster string, answers bool, received int64, now time.Time) (rest bool) {
	e, ok := t[id]
	if !ok {
		e = &attempt{}
		t[id] = e
	}
	heard := received > e.received
	e.cluster, e.received = cluster, received
	switch {
	case answers, !ok:
		if answers && !e.answers {
			t.wake(cluster, now)
		}
		e.answers, e.resting, e.until, e.pause = answers, false, now.Add(tryFirst), pauseFirst
	case e.resting && (heard || !now.Before(e.until)):
		e.resting, e.until = false, now.Add(tryAgain)
	case !e.resting && !now.Before(e.until):
		// Those that were lost together do not come back together.
		e.answers, e.resting, e.until = false, true, now.Add(e.pause+rand.N(e.pause/4))
		e.pause, e.received = min(2*e.pause, pauseMost), 0
		return true
	}
	return false
}

// wake tries what rests of a cluster: where one of its nodes has begun to answer others may, too.
func (t attempts) wake(cluster string, now time.Time) {
	for _, e := range t {
		if e.cluster == cluster && e.resting {
			e.until = now
		}
	}
}

// resting says whether a node is left alone for the moment.
func (t attempts) resting(id plan.PeerID) bool {
	e, ok := t[id]
	return ok && e.resting
}

// forget nodes that are no more.
func (t attempts) forget(present func(id plan.PeerID) bool) {
	for id := range t {
		if !present(id) {
			delete(t, id)
		}
	}
}
