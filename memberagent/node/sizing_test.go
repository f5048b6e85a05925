// SPDX-License-Identifier: Apache-2.0

package node

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// hole is a path that is alive and loses larger packets than most, and of all packets a share.
type hole struct {
	*sizing
	now    time.Time
	most   int
	loss   float64
	alive  bool
	random *rand.Rand
	small  small
	sent   int
	flight []sized
}

type sized struct {
	size   int
	number uint16
	at     time.Time
}

func newHole(full, most int) *hole {
	return &hole{sizing: newSizing(full, 0), now: time.Unix(1000, 0), most: most, alive: true,
		random: rand.New(rand.NewPCG(1, 2)),
		small:  small{trip: time.Millisecond, round: 50 * time.Millisecond, interval: 50 * time.Millisecond}}
}

func (h *hole) passes() bool { return h.random.Float64() >= h.loss }

// round is one of the prober's.
func (h *hole) round() (changed bool) {
	h.now = h.now.Add(h.small.round)
	for len(h.flight) > 0 && h.now.Sub(h.flight[0].at) >= h.small.trip {
		h.answered(h.flight[0].size, h.flight[0].number)
		h.flight = h.flight[1:]
	}
	h.small.alive, h.small.loss = h.alive, h.loss
	sizes, changed := h.due(h.now, h.small)
	for _, size := range sizes {
		h.sent += size
		if h.alive && size <= h.most && h.passes() {
			h.flight = append(h.flight, sized{size, h.number, h.now})
		}
	}
	if h.alive && h.passes() {
		h.small.answers++
	}
	return changed
}

func (h *hole) until(t *testing.T, what string, want func() bool) time.Duration {
	t.Helper()
	start := h.now
	for !want() {
		h.round()
		if h.now.Sub(start) > time.Hour {
			t.Fatalf("not within an hour: %s; %+v", what, h.sizing)
		}
	}
	return h.now.Sub(start)
}

func (h *hole) during(d time.Duration) (changes int) {
	for end := h.now.Add(d); h.now.Before(end); {
		if h.round() {
			changes++
		}
	}
	return changes
}

func TestTheLargestSizeIsFound(t *testing.T) {
	for _, full := range []int{1420, 1280, 1430, 8920, 65455} {
		for _, most := range []int{0, 1279, 1280, 1300, 1327, 1328, 1419, 1420, 1500, 3000, 8919, 65000} {
			for _, trip := range []time.Duration{time.Millisecond, 200 * time.Millisecond} {
				h := newHole(full, 1<<16)
				h.small.trip = trip
				if changes := h.during(time.Minute); changes != 0 || h.fits != full {
					t.Fatalf("%d changes on a path that carries all: %+v", changes, h.sizing)
				}
				if most >= full {
					continue
				}
				h.most = most
				took := h.until(t, "found", func() bool { return h.lost || h.fits < full && h.trial == nil })
				least := max(leastSize, most-sizeStep+1)
				if h.fits > max(most, leastSize) || h.fits < least || h.lost != (most < leastSize) {
					t.Errorf("full %d, %d pass: found %d, lost %t", full, most, h.fits, h.lost)
				}
				// One second until the next probe, and for each of up to six steps of the search as many tries as it takes.
				if limit := sizeEvery + 7*leastTry*(100*time.Millisecond+2*trip); took > limit {
					t.Errorf("full %d, %d pass: found after %s, expected %s at most", full, most, took, limit)
				}
				if changes := h.during(5 * time.Minute); changes != 0 {
					t.Errorf("full %d, %d pass: %d changes after it was found: %+v", full, most, changes, h.sizing)
				}
				h.most = 1 << 16
				took = h.until(t, "returned", func() bool { return h.fits == full && !h.lost })
				if took > 40*time.Second || full > leastSize && took < 2*raiseFirst {
					t.Errorf("full %d, %d passed: back after %s", full, most, took)
				}
			}
		}
	}
}

// TestLossIsNoSize: a path that loses packets of any size keeps its size, and one that is cut too.
func TestLossIsNoSize(t *testing.T) {
	for _, loss := range []float64{0.01, 0.1, 0.3} {
		h := newHole(1420, 1500)
		h.loss = loss
		if changes := h.during(time.Hour); changes > 2 {
			t.Errorf("loss of %.0f %%: %d changes of size within an hour", 100*loss, changes)
		}
		h.most = 1350
		took := h.until(t, "found", func() bool { return h.fits < 1420 })
		if h.fits < 1300 || took > 20*time.Second {
			t.Errorf("loss of %.0f %%: found %d after %s", 100*loss, h.fits, took)
		}
	}
	h := newHole(1420, 1500)
	h.during(time.Minute)
	for range 200 {
		// Cut for less than it takes to be dead, and for longer.
		h.most, h.loss = 0, 1
		changes := h.during(time.Duration(h.random.IntN(250)) * time.Millisecond)
		h.alive = false
		changes += h.during(time.Second)
		h.most, h.loss, h.alive = 1500, 0, true
		changes += h.during(time.Duration(h.random.IntN(3000)) * time.Millisecond)
		if changes > 0 {
			t.Fatalf("a cut changes the size: %+v", h.sizing)
		}
	}
}

// TestASizeThatFlapsIsRaisedLater: each time after twice as long, up to a bound, until it has been steady.
func TestASizeThatFlapsIsRaisedLater(t *testing.T) {
	h := newHole(1420, 1350)
	h.until(t, "found", func() bool { return h.fits < 1420 })
	last := time.Duration(0)
	for i := range 9 {
		h.most = 1500
		took := h.until(t, "returned", func() bool { return h.fits == 1420 })
		if i > 0 && took < last+last/2 && took < raiseTries*raiseMost-time.Minute {
			t.Errorf("failure %d: back after %s, and after %s before", i+1, took, last)
		}
		last = took
		h.most = 1350
		h.until(t, "found", func() bool { return h.fits < 1420 })
	}
	if last > raiseTries*(raiseMost+time.Second) {
		t.Errorf("back only after %s", last)
	}
	h.most = 1500
	h.until(t, "returned", func() bool { return h.fits == 1420 })
	h.during(steady + time.Second)
	h.most = 1350
	h.until(t, "found", func() bool { return h.fits < 1420 })
	h.most = 1500
	if took := h.until(t, "returned", func() bool { return h.fits == 1420 }); took > time.Minute {
		t.Errorf("back after %s although the path was steady", took)
	}
}

// TestASizeOfBeforeIsKept, and one that no path could have told is not.
func TestASizeOfBeforeIsKept(t *testing.T) {
	for before, want := range map[int]int{0: 1420, 1279: 1420, 1344: 1344, 1420: 1420, 1500: 1420} {
		h := newHole(1420, 1350)
		h.sizing = newSizing(1420, before)
		if h.fits != want {
			t.Errorf("%d before: %d, want %d", before, h.fits, want)
		}
	}
	h := newHole(1420, 1350)
	h.sizing = newSizing(1420, 1344)
	if changes := h.during(2 * time.Minute); changes != 0 || h.fits != 1344 {
		t.Errorf("%d changes, size %d", changes, h.fits)
	}
	h.most = 1300
	h.until(t, "lowered further", func() bool { return h.fits == 1296 })
}

func TestAPathThatCarriesAllCostsLittle(t *testing.T) {
	h := newHole(1420, 1420)
	h.during(time.Minute)
	if h.sent > 1420*60 {
		t.Errorf("%d bytes a minute with probes every 50 ms, expected a packet a second", h.sent)
	}
	h = newHole(1420, 1420)
	h.small.interval = time.Second
	h.during(time.Minute)
	if h.sent > 1420*13 {
		t.Errorf("%d bytes a minute with a probe a second, expected a packet every five", h.sent)
	}
}

func TestFullSizeCondition(t *testing.T) {
	now := time.Unix(1000, 0)
	ok := v1alpha1.Connection{Cluster: "c2", Gateway: "a", Status: v1alpha1.ConnectionConnected}
	low := v1alpha1.Connection{Cluster: "c3", Gateway: "b", Status: v1alpha1.ConnectionConnected, MTU: 1344,
		Reason: v1alpha1.ReasonPathMTULow, Message: lostSizes(1344, false, "192.0.2.1:4500")}
	var have []metav1.Condition
	for _, c := range []struct {
		connections []v1alpha1.Connection
		status      metav1.ConditionStatus
		message     string
	}{
		{nil, metav1.ConditionTrue, "no tunnel"},
		{[]v1alpha1.Connection{ok, low}, metav1.ConditionFalse,
			"b of c3: packets larger than 1344 bytes are lost on the way to " +
				"192.0.2.1:4500 or back"},
		{[]v1alpha1.Connection{low, low, ok, low}, metav1.ConditionFalse, "; and 2 more"},
		{[]v1alpha1.Connection{ok}, metav1.ConditionTrue, "no tunnel"},
	} {
		have = withFullSize(have, c.connections, 1, now)
		got := meta.FindStatusCondition(have, v1alpha1.GatewayFullSize)
		if got.Status != c.status || !strings.Contains(got.Message, c.message) {
			t.Errorf("%d connections: %+v", len(c.connections), got)
		}
	}
	if text := lostSizes(leastSize, true, "x"); !strings.Contains(text, strconv.Itoa(leastSize)) ||
		strings.Contains(text, "kept as small") {
		t.Errorf("of the least size: %s", text)
	}
}
