// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
)

// maxSuggestions is how many names an error proposes.
const maxSuggestions = 3

// suggestions are the candidates that a mistyped word may stand for, the closest first: those within an edit
// distance of a third of the word's length, at least 2, and those that it begins.
func suggestions(word string, candidates []string) []string {
	type scored struct {
		name     string
		distance int
	}
	var close []scored
	limit := max(2, len(word)/3)
	for _, name := range candidates {
		distance := editDistance(strings.ToLower(word), strings.ToLower(name))
		if distance <= limit && distance < len(word) || word != "" && strings.HasPrefix(name, word) {
			close = append(close, scored{name, distance})
		}
	}
	slices.SortStableFunc(close, func(a, b scored) int { return a.distance - b.distance })
	var out []string
	for _, s := range close[:min(len(close), maxSuggestions)] {
		out = append(out, s.name)
	}
	return out
}

// editDistance is the Levenshtein distance: how many bytes must be inserted, deleted or replaced.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// didYouMean is the sentence that proposes candidates, "" without any.
func didYouMean(word string, candidates []string) string {
	if close := suggestions(word, candidates); len(close) > 0 {
		return "did you mean " + strings.Join(close, ", ") + "? "
	}
	return ""
}
