// SPDX-License-Identifier: Apache-2.0

// Package coarse rounds what is measured of connections to steps, so that noise is no news: the cluster agent reports
// nothing finer, as each report travels through Karmada, and the broker believes nothing finer. It is pure.
package coarse

import (
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// leastRTT in microseconds is the first step of round-trip times, and stands for all that is shorter.
	leastRTT = 1000
	// maxRTT and maxRate are the last steps; what a member claims beyond them is no measurement.
	maxRTT  = 100_000_000
	maxRate = 1_000_000_000_000
)

var (
	// rttSteps are six a decade, in microseconds.
	rttSteps = decades([]int64{10, 15, 20, 30, 50, 70}, leastRTT/10, maxRTT)
	// lossSteps in percent.
	lossSteps = []int64{0, 2, 5, 10, 20, 30, 50, 70, 100}
	// rateSteps are three a decade, in bytes per second, above nothing.
	rateSteps = append([]int64{0}, decades([]int64{1, 2, 5}, 1000, maxRate)...)
)

// decades repeats factors of a unit, each time tenfold, to the last step.
func decades(factors []int64, unit, last int64) []int64 {
	var out []int64
	for ; ; unit *= 10 {
		for _, f := range factors {
			if f*unit > last {
				return out
			}
			out = append(out, f*unit)
		}
	}
}

// step rounds a measurement. The last step stays until a measurement reaches one of its neighbours, so that a series
// moves a step only if it moves by about as much; from any other value it is the nearest, of two the lower.
func step(steps []int64, last, measured int64) int64 {
	at, is := slices.BinarySearch(steps, last)
	if is && (at == 0 || measured > steps[at-1]) && (at == len(steps)-1 || measured < steps[at+1]) {
		return last
	}
	above, is := slices.BinarySearch(steps, measured)
	switch {
	case above == len(steps):
		return steps[above-1]
	case is, above == 0, measured-steps[above-1] > steps[above]-measured:
		return steps[above]
	}
	return steps[above-1]
}

// none is a value that is no step.
const none = -1

// Next rounds measurements, by those that were reported last; nil if none were.
func Next(last *v1alpha1.Measurements, measured v1alpha1.Measurements) *v1alpha1.Measurements {
	before := v1alpha1.Measurements{RTTMicroseconds: none, LossPercent: none}
	if last != nil {
		before = *last
	}
	out := &v1alpha1.Measurements{
		LossPercent: int32(step(lossSteps, int64(before.LossPercent), int64(measured.LossPercent))),
	}
	if measured.RTTMicroseconds > 0 {
		out.RTTMicroseconds = step(rttSteps, before.RTTMicroseconds, measured.RTTMicroseconds)
	}
	if t := measured.Traffic; t != nil {
		was := v1alpha1.Traffic{ReceivedBytesPerSecond: none, SentBytesPerSecond: none}
		if before.Traffic != nil {
			was = *before.Traffic
		}
		out.Traffic = &v1alpha1.Traffic{
			ReceivedBytesPerSecond: step(rateSteps, was.ReceivedBytesPerSecond, t.ReceivedBytesPerSecond),
			SentBytesPerSecond:     step(rateSteps, was.SentBytesPerSecond, t.SentBytesPerSecond),
		}
	}
	return out
}

// Claimed is what a member claims to have measured, by the steps; nil if that cannot have been measured.
func Claimed(m *v1alpha1.Measurements) *v1alpha1.Measurements {
	if m == nil || m.RTTMicroseconds < 0 || m.RTTMicroseconds > maxRTT || m.LossPercent < 0 || m.LossPercent > 100 {
		return nil
	}
	if t := m.Traffic; t != nil {
		for _, rate := range []int64{t.ReceivedBytesPerSecond, t.SentBytesPerSecond} {
			if rate < 0 || rate > maxRate {
				return nil
			}
		}
	}
	return Next(nil, *m)
}

// Worse says whether a connection is measured to be slower, or to lose more, than it was.
func Worse(before, after *v1alpha1.Measurements) bool {
	return before != nil && after != nil &&
		(after.RTTMicroseconds > before.RTTMicroseconds || after.LossPercent > before.LossPercent)
}

// Without returns a copy of connections that says nothing of what was measured, nor of where gateways are seen, nor of
// when their statuses changed, as that is told along with a change and is no news alone.
func Without(connections []v1alpha1.MemberConnection) []v1alpha1.MemberConnection {
	out := slices.Clone(connections)
	for i := range out {
		out[i].Measured, out[i].Observed, out[i].LastTransitionTime = nil, nil, nil
	}
	return out
}
