// SPDX-License-Identifier: Apache-2.0

// Package clip bounds text that a cluster, a packet or a server had a part in, before it is stored, logged or
// shown. It is pure.
package clip

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// quoted is how many bytes of a text Quote shows.
const quoted = 64

// mark stands for what was left out.
const mark = "…"

// Text returns s as valid UTF-8 of at most limit bytes, which is at least the length of the mark "…" that ends
// a text that was cut. No rune is cut in two.
func Text(s string, limit int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= limit {
		return s
	}
	return prefix(s, limit-len(mark)) + mark
}

// Line returns s without the characters that are not printable, which become spaces: control characters and those that
// change the direction of text.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// List returns the first of a list, separated by commas, and how many more there are: "a, b and 3 more".
func List(list []string, limit int) string {
	if len(list) <= limit {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:limit], ", "), len(list)-limit)
}

// Quote returns the first 64 bytes of s in double quotes, with whatever is not printable escaped.
func Quote(s string) string {
	if len(s) <= quoted {
		return strconv.Quote(s)
	}
	return strconv.Quote(prefix(s, quoted)) + mark
}

// prefix returns at most limit bytes of s and no part of a rune.
func prefix(s string, limit int) string {
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
