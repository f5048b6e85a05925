// SPDX-License-Identifier: Apache-2.0

package cable

import (
	"slices"
	"testing"
)

const mb = 1 << 20

func TestMemoryIsReturnedOnceWhenTrafficFalls(t *testing.T) {
	for _, c := range []struct {
		name string
		// carried between two looks, in megabytes, and the looks after which memory is returned.
		carried []uint64
		want    []int
	}{
		{"nothing to carry", []uint64{0, 0, 0, 0, 0, 0, 0, 0}, nil},
		{"too little to matter", []uint64{3, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0}, nil},
		{"a burst", []uint64{0, 200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, []int{6}},
		{"two bursts", []uint64{200, 0, 0, 0, 0, 0, 0, 200, 1, 1, 1, 1, 1, 0}, []int{5, 12}},
		{"a burst with breaks", []uint64{200, 0, 0, 0, 0, 200, 0, 0, 0, 0, 200}, nil},
		{"steady", []uint64{200, 210, 190, 200, 200, 200, 210, 200}, nil},
		{"down in steps", []uint64{200, 40, 40, 40, 40, 40, 2, 2, 2, 2, 2, 0}, []int{5, 10}},
	} {
		s, total, got := traffic{}, uint64(0), []int(nil)
		for i, n := range c.carried {
			total += n * mb
			if _, fell := s.look(total); fell {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: memory returned after looks %v, expected %v", c.name, got, c.want)
		}
	}
}

func TestBusyUntilTrafficHasFallen(t *testing.T) {
	s, total, got := traffic{}, uint64(0), []bool(nil)
	for _, n := range []uint64{1, 50, 0, 50, 0, 0, 0, 0, 0, 0} {
		total += n * mb
		busy, _ := s.look(total)
		got = append(got, busy)
	}
	want := []bool{false, true, true, true, true, true, true, true, false, false}
	if !slices.Equal(got, want) {
		t.Errorf("busy after looks: %v, expected %v", got, want)
	}
}

func TestANewDeviceBeginsToCountAnew(t *testing.T) {
	s := traffic{}
	for i, carried := range []uint64{100 * mb, 200 * mb, 5 * mb} {
		if busy, fell := s.look(carried); !busy || fell {
			t.Errorf("look %d: busy %v, fell %v, when only the count began anew", i, busy, fell)
		}
	}
}

func TestMemoryLimitGrowsWithTheProcessors(t *testing.T) {
	if got := memoryLimit(2); got != 512*mb {
		t.Errorf("limit %d for two processors, expected 512 MiB", got)
	}
	if memoryLimit(8) <= memoryLimit(2) {
		t.Error("more processors carry more packets at once, and have no more memory")
	}
}
