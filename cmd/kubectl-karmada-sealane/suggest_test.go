// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"
)

func TestSuggestionsAreTheClosestNames(t *testing.T) {
	clusters := []string{"prod-eu", "prod-us", "staging", "c1", "c2", "c10"}
	for word, want := range map[string]string{
		"prod-ue": "[prod-us prod-eu]",
		"stagin":  "[staging]",
		"Staging": "[staging]",
		"prod":    "[prod-eu prod-us]",
		"c3":      "[c1 c2]",
		"xy":      "[]",
		"":        "[]",
	} {
		if got := fmt.Sprint(suggestions(word, clusters)); got != want {
			t.Errorf("suggestions(%q) = %s, want %s", word, got, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"conections", "connections", 1}, {"same", "same", 0}} {
		if got := editDistance(tc.a, tc.b); got != tc.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
