// SPDX-License-Identifier: Apache-2.0

package coarse

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func measured(rtt int64, loss int32, received, sent int64) v1alpha1.Measurements {
	return v1alpha1.Measurements{RTTMicroseconds: rtt, LossPercent: loss,
		Traffic: &v1alpha1.Traffic{ReceivedBytesPerSecond: received, SentBytesPerSecond: sent}}
}

func TestNext(t *testing.T) {
	at := func(rtt int64, loss int32, received, sent int64) *v1alpha1.Measurements {
		m := measured(rtt, loss, received, sent)
		return &m
	}
	silent := v1alpha1.Measurements{RTTMicroseconds: 20_000}
	for name, c := range map[string]struct {
		last     *v1alpha1.Measurements
		measured v1alpha1.Measurements
		want     *v1alpha1.Measurements
	}{
		"the first":          {nil, measured(23_456, 1, 1234, 6_789_000), at(20_000, 0, 1000, 5_000_000)},
		"less than a step":   {at(20_000, 2, 1000, 5e6), measured(29_999, 1, 1999, 9_999_999), at(20_000, 2, 1000, 5e6)},
		"a step up":          {at(20_000, 2, 1000, 0), measured(30_000, 5, 2000, 1000), at(30_000, 5, 2000, 1000)},
		"a step down":        {at(20_000, 2, 1000, 2000), measured(15_000, 0, 0, 1000), at(15_000, 0, 0, 1000)},
		"far away":           {at(20_000, 2, 1000, 2000), measured(800_000, 99, 3e9, 0), at(700_000, 100, 2e9, 0)},
		"shorter than any":   {nil, measured(3, 0, 0, 0), at(leastRTT, 0, 0, 0)},
		"longer than any":    {nil, measured(math.MaxInt64, 100, math.MaxInt64, 0), at(maxRTT, 100, maxRate, 0)},
		"no answer":          {at(20_000, 2, 0, 0), measured(0, 100, 0, 0), at(0, 100, 0, 0)},
		"an answer again":    {at(0, 100, 0, 0), measured(20_000, 60, 0, 0), at(20_000, 50, 0, 0)},
		"steps of another":   {at(21_000, 3, 1234, 0), measured(21_000, 3, 1234, 0), at(20_000, 2, 1000, 0)},
		"traffic not known":  {at(20_000, 2, 1000, 0), silent, &silent},
		"traffic known then": {&silent, measured(20_000, 0, 900, 0), at(20_000, 0, 1000, 0)},
	} {
		if got := Next(c.last, c.measured); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v %+v, want %+v %+v", name, got, got.Traffic, c.want, c.want.Traffic)
		}
	}
}

// TestANoisySeriesMovesAtMostOnce: wherever it lies, the boundaries between steps included.
func TestANoisySeriesMovesAtMostOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 100))
	for _, s := range []struct {
		name  string
		steps []int64
		// noise is how far measurements are from their mean, as a share of it.
		noise float64
	}{
		{"round-trip times", rttSteps, 0.14}, {"rates", rateSteps, 0.33},
	} {
		for mean := float64(s.steps[1]); mean < float64(s.steps[len(s.steps)-1]); mean *= 1.01 {
			last, moves := step(s.steps, none, int64(mean)), 0
			for range 200 {
				next := step(s.steps, last, int64(mean*(1+s.noise*(2*random.Float64()-1))))
				if next != last {
					moves++
				}
				last = next
			}
			if moves > 1 {
				t.Fatalf("%s around %.0f moved %d times", s.name, mean, moves)
			}
		}
	}
	// A path that loses one of a hundred probes at random, of which 60 or 1200 are sent within a minute.
	for _, probes := range []int{60, 1200} {
		var last int64
		rose := 0
		for range 1000 {
			lost := 0
			for range probes {
				if random.IntN(100) == 0 {
					lost++
				}
			}
			next := step(lossSteps, last, int64(100*lost/probes))
			if next > last {
				rose++
			}
			last = next
		}
		t.Logf("1 %% of %d probes: rose %d times within 1000 minutes", probes, rose)
		if probes == 1200 && rose > 10 {
			t.Errorf("1 %% of %d probes: rose %d times", probes, rose)
		}
	}
}

// TestAStepIsNearWhatWasMeasured: within the neighbours of the true step, whatever came before.
func TestAStepIsNearWhatWasMeasured(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 100))
	for name, steps := range map[string][]int64{"rtt": rttSteps, "loss": lossSteps, "rate": rateSteps} {
		if !slices.IsSorted(steps) {
			t.Fatalf("%s: not sorted: %v", name, steps)
		}
		last := int64(none)
		for range 20_000 {
			m := int64(math.Exp(random.Float64() * math.Log(float64(steps[len(steps)-1]))))
			got := step(steps, last, m)
			at := slices.Index(steps, got)
			if at < 0 || at > 0 && m <= steps[at-1] || at < len(steps)-1 && m >= steps[at+1] {
				t.Fatalf("%s: %d after %d became %d", name, m, last, got)
			}
			last = got
		}
	}
}

func TestClaimed(t *testing.T) {
	fine := measured(20_000, 2, 1000, 0)
	if got := Claimed(&fine); !reflect.DeepEqual(got, &fine) || got == &fine || got.Traffic == fine.Traffic {
		t.Errorf("%+v became %+v", fine, got)
	}
	odd := measured(21_234, 1, 1111, 0)
	if got := Claimed(&odd); got.RTTMicroseconds != 20_000 || got.LossPercent != 0 ||
		got.Traffic.ReceivedBytesPerSecond != 1000 {
		t.Errorf("what is between steps: %+v", got)
	}
	for name, m := range map[string]v1alpha1.Measurements{
		"negative rtt": measured(-1, 0, 0, 0), "an age": measured(math.MaxInt64, 0, 0, 0),
		"negative loss": measured(1, -1, 0, 0), "more than all": measured(1, 101, 0, 0),
		"negative received": measured(1, 0, -1, 0), "negative sent": measured(1, 0, 0, math.MinInt64),
		"all the Internet": measured(1, 0, 0, math.MaxInt64),
	} {
		if got := Claimed(&m); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if Claimed(nil) != nil {
		t.Error("nothing was claimed")
	}
}

func TestWorse(t *testing.T) {
	base := measured(20_000, 2, 1000, 1000)
	for name, c := range map[string]struct {
		after v1alpha1.Measurements
		want  bool
	}{
		"same": {base, false}, "slower": {measured(30_000, 2, 0, 0), true}, "lossy": {measured(1000, 5, 0, 0), true},
		"better": {measured(10_000, 0, 0, 0), false}, "busy": {measured(20_000, 2, 1e9, 1e9), false},
	} {
		if got := Worse(&base, &c.after); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if Worse(nil, &base) || Worse(&base, nil) {
		t.Error("what is not known is not worse")
	}
}
