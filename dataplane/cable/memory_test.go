// SPDX-License-Identifier: Apache-2.0

package cable

import (
	"slices"
	"testing"
)

func TestMemoryIsReturnedOnceWhenTrafficFalls(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		name string
		// carried between two looks, and the looks after which memory is returned.
		carried []uint64
		want    []int
	}{
		{"nothing to carry", []uint64{0, 0, 0}, nil},
		{"too little to matter", []uint64{9 * mb, 0, 9 * mb, 0}, nil},
		{"a burst", []uint64{0, 2000 * mb, 0, 0}, []int{2}},
		{"two bursts", []uint64{2000 * mb, 0, 0, 2000 * mb, 1 * mb, 0}, []int{1, 4}},
		{"a burst over several looks", []uint64{900 * mb, 2000 * mb, 700 * mb, 600 * mb, 0}, []int{4}},
		{"steady", []uint64{2000 * mb, 2100 * mb, 1900 * mb, 2000 * mb}, nil},
		{"down in steps", []uint64{2000 * mb, 400 * mb, 300 * mb, 50 * mb, 2 * mb}, []int{1, 3, 4}},
		{"slowly down", []uint64{1000 * mb, 600 * mb, 360 * mb, 240 * mb}, []int{3}},
	} {
		l, total, got := lull{}, uint64(0), []int(nil)
		for i, n := range c.carried {
			total += n
			if l.fell(total) {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: memory returned after looks %v, expected %v", c.name, got, c.want)
		}
	}
}

func TestANewDeviceBeginsToCountAnew(t *testing.T) {
	l := lull{}
	for i, carried := range []uint64{1 << 30, 2 << 30, 5 << 20} {
		if l.fell(carried) {
			t.Errorf("memory returned after look %d, when only the count began anew", i)
		}
	}
	if !l.fell(6 << 20) {
		t.Error("memory not returned though nothing is carried any more")
	}
}

func TestMemoryLimitGrowsWithTheProcessors(t *testing.T) {
	if got := memoryLimit(2); got != 192<<20 {
		t.Errorf("limit %d for two processors, expected 192 MiB", got)
	}
	if memoryLimit(8) <= memoryLimit(2) {
		t.Error("more processors carry more packets at once, and have no more memory")
	}
}
