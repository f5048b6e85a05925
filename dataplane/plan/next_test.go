// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"

	"github.com/sealane-io/sealane/dataplane/topology"
)

// TestChooseCables: to a gateway with two cables goes the preferred one that works; which gateways carry is chosen as
// ever.
func TestChooseCables(t *testing.T) {
	gateways := func(preferred bool) []topology.Gateway {
		return []topology.Gateway{{Slot: 0}, {Slot: 1}, {Slot: 16, Next: true, Preferred: preferred}}
	}
	for _, c := range []struct {
		name                         string
		preferred                    bool
		alive, shaken, current, want []int
		n                            int
	}{
		{"offered, nothing passes yet", true, []int{0, 1}, nil, []int{0, 1}, []int{0, 1}, 16},
		{"offered, it passes", true, []int{0, 1, 16}, nil, []int{0, 1}, []int{1, 16}, 16},
		{"offered, it passes no longer", true, []int{0, 1}, nil, []int{1, 16}, []int{0, 1}, 16},
		{"offered, only it passes", true, []int{1, 16}, nil, []int{1, 16}, []int{1, 16}, 16},
		{"promoted, the usual one is not back", false, []int{1, 16}, nil, []int{1, 16}, []int{1, 16}, 16},
		{"promoted, it is back", false, []int{0, 1, 16}, nil, []int{1, 16}, []int{0, 1}, 16},
		{"the gateway is dead", true, []int{1}, nil, []int{1, 16}, []int{1}, 16},
		{"nobody is known to live", true, nil, nil, []int{1, 16}, []int{1, 16}, 16},
		{"nobody can probe, and a handshake tells", true, nil, []int{0, 16}, []int{0}, []int{16}, 16},
		{"nobody can probe, and it is promoted", false, nil, []int{0, 16}, []int{16}, []int{0}, 16},
		{"one carries, and goes on by its other cable", true, []int{0, 1, 16}, nil, []int{0}, []int{16}, 1},
		{"one carries, and it is another", true, []int{0, 1, 16}, nil, []int{1}, []int{1}, 1},
	} {
		got := chooseCables(gateways(c.preferred), c.alive, c.shaken, c.current, c.n, false)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: found %v, want %v", c.name, got, c.want)
		}
	}
}
