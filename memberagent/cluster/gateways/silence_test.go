// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"errors"
	"testing"
	"time"

	"github.com/sealane-io/sealane/internal/reach"
)

// TestWhenAnAgentIsSilent looks at a Lease when it is told to, once a renewal arrived, and when there is an answer.
func TestWhenAnAgentIsSilent(t *testing.T) {
	const hour = time.Hour
	start := time.Unix(1e9, 0)
	for _, c := range []struct {
		name string
		// renewals, seconds after the start, as the cache and the API server show them from then on; the API server
		// answers nothing in the seconds of outage, from and to.
		renewals []int
		outage   [2]int
		// skew of the node's clock.
		skew time.Duration
		// want is the second at which the agent counts as silent; -1 for never, in two minutes.
		want int
	}{
		{"it renews", every(3, 0, 120), [2]int{}, 0, -1},
		{"its clock is an hour behind", every(3, 0, 120), [2]int{}, -hour, -1},
		{"its clock is an hour ahead", every(3, 0, 120), [2]int{}, hour, -1},
		{"it dies", every(3, 0, 30), [2]int{}, 0, 42},
		{"it dies with its clock an hour ahead", every(3, 0, 30), [2]int{}, hour, 42},
		{"it restarts within ten seconds", append(every(3, 0, 30), every(3, 39, 120)...), [2]int{}, 0, -1},
		{"the API server is away for 40 s, and the agent renews as soon as it is back",
			append(every(3, 0, 30), every(3, 72, 120)...), [2]int{31, 71}, 0, -1},
		{"the API server is away, and the agent is gone when it is back", every(3, 0, 30), [2]int{31, 60}, 0, 72},
		{"it never renewed since this process started", []int{0}, [2]int{}, 0, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h Hearing
			got, again := -1, 0
			renewed := start
			for second := 0; second <= 120 && got < 0; second++ {
				now := start.Add(time.Duration(second) * time.Second)
				down := c.outage[1] > 0 && second >= c.outage[0] && second < c.outage[1]
				for _, r := range c.renewals {
					if r == second && !down {
						renewed, again = now.Add(c.skew), second
					}
				}
				if second < again {
					continue
				}
				h.Renewed(renewed, now)
				step, wait := h.Next(now)
				switch step {
				case Silent:
					got = second
				case Ask:
					var err error
					if down {
						err = errors.New("connection refused")
					}
					h.Answered(renewed, err, now)
					_, wait = h.Next(now)
				}
				again = second + max(1, int(wait/time.Second))
			}
			if got != c.want {
				t.Errorf("silent at %d s, want %d", got, c.want)
			}
		})
	}
	if most := reach.RenewEvery + reach.SilentAfter + reach.SilentConfirm; most > 15*time.Second {
		t.Errorf("silence is found after up to %v, want 15 s", most)
	}
}

// every returns the numbers from first to before last, step apart.
func every(step, first, last int) []int {
	var out []int
	for i := first; i <= last; i += step {
		out = append(out, i)
	}
	return out
}
