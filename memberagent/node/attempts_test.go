// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// TestASilentNodeRests: one that never answers is tried less and less often, and one that is lost comes back in about
// as much time as it was away, at most.
func TestASilentNodeRests(t *testing.T) {
	tr, now, busy := attempts{}, time.Unix(1e9, 0), 0
	const id plan.PeerID = "a"
	const hours = 10
	for range hours * 3600 {
		now = now.Add(time.Second)
		tr.look(id, "c2", false, 0, now)
		if !tr.resting(id) {
			busy++
		}
	}
	if share := float64(busy) / (hours * 3600); share > 0.03 {
		t.Errorf("a silent node is tried %.1f %% of the time", 100*share)
	}
	tr.look(id, "c2", true, 0, now)
	if tr.resting(id) {
		t.Error("a node that answers rests")
	}
	for away, most := range map[time.Duration]time.Duration{10 * time.Second: 0, time.Minute: time.Minute,
		10 * time.Minute: 10 * time.Minute, 5 * time.Hour: pauseMost * 5 / 4} {
		tr = attempts{}
		tr.look(id, "c2", true, 0, now)
		lost := now
		for now.Sub(lost) < away || tr.resting(id) {
			now = now.Add(time.Second)
			tr.look(id, "c2", false, 0, now)
		}
		if late := now.Sub(lost) - away; late > most+time.Second {
			t.Errorf("lost for %s, tried again after %s more", away, late)
		}
	}
}

func TestWhatWakesANodeThatRests(t *testing.T) {
	now := time.Unix(1e9, 0)
	rested := func() attempts {
		tr := attempts{}
		for range int(tryFirst/time.Second) + 1 {
			for _, id := range []plan.PeerID{"a", "b", "c"} {
				cluster := map[plan.PeerID]string{"a": "c2", "b": "c2", "c": "c3"}[id]
				if rest := tr.look(id, cluster, false, 700, now); rest != tr.resting(id) {
					t.Fatalf("%s is to rest: %v", id, rest)
				}
			}
			now = now.Add(time.Second)
		}
		return tr
	}
	for name, c := range map[string]struct {
		look func(tr attempts)
		want string // who does not rest
	}{
		"nothing": {func(attempts) {}, ""},
		"a packet from it": {func(tr attempts) {
			tr.look("a", "c2", false, 148, now)
		}, "a"},
		"another of its cluster answers": {func(tr attempts) {
			tr.look("b", "c2", true, 148, now)
			tr.look("a", "c2", false, 0, now)
			tr.look("c", "c3", false, 0, now)
		}, "ab"},
	} {
		t.Run(name, func(t *testing.T) {
			tr, got := rested(), ""
			c.look(tr)
			for _, id := range []plan.PeerID{"a", "b", "c"} {
				if !tr.resting(id) {
					got += string(id)
				}
			}
			if got != c.want {
				t.Errorf("%q are tried, want %q", got, c.want)
			}
			// What wakes without an answer does not start over: one direction alone would keep it awake.
			before := tr["a"].pause
			for !tr.resting("a") {
				now = now.Add(time.Second)
				tr.look("a", "c2", false, 148, now)
			}
			if c.want == "a" && tr["a"].pause <= before {
				t.Errorf("the pause is %s after one of %s", tr["a"].pause, before)
			}
		})
	}
}

// TestManyThatRestDoNotWakeTogether: the tries of many nodes that were lost together spread.
func TestManyThatRestDoNotWakeTogether(t *testing.T) {
	const nodes = 512
	tr, now, most := attempts{}, time.Unix(1e9, 0), 0
	for second := range 7200 {
		now = now.Add(time.Second)
		tried := 0
		for i := range nodes {
			id := plan.PeerID(fmt.Sprint(i))
			tr.look(id, "c2", false, 0, now)
			if !tr.resting(id) {
				tried++
			}
		}
		if second > 3600 {
			most = max(most, tried)
		}
	}
	if most > nodes/5 {
		t.Errorf("%d of %d are tried at once", most, nodes)
	}
	tr.forget(func(plan.PeerID) bool { return false })
	if len(tr) > 0 {
		t.Errorf("%d are remembered", len(tr))
	}
}
