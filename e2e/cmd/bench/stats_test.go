// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestPercentile(t *testing.T) {
	thirty := make([]int, 30)
	for i := range thirty {
		thirty[len(thirty)-1-i] = i + 1
	}
	for _, c := range []struct {
		name   string
		values []int
		p      float64
		want   int
	}{
		{"none", nil, 50, 0},
		{"one value is every percentile", []int{7}, 99, 7},
		{"the middle of three", []int{3, 1, 2}, 50, 2},
		{"half of thirty", thirty, 50, 15},
		{"thirty values have no rank above the last", thirty, 99, 30},
		{"the maximum", thirty, 100, 30},
		{"never below the first", thirty, 0, 1},
	} {
		if got := percentile(c.values, c.p); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
