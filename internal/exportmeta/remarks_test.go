// SPDX-License-Identifier: Apache-2.0

package exportmeta_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sealane-io/sealane/internal/exportmeta"
)

func TestRemarks(t *testing.T) {
	long := strings.Repeat("ä", 200)
	for _, c := range []struct{ name, in, want string }{
		{"none", "", ""},
		{"a few", "a|b", "a|b"},
		{"as many as there may be", "a|b|c|d", "a|b|c|d"},
		{"one more", "a|b|c|d|e", "a|b|c|and 2 more"},
		{"empty ones", " |\x1b|a", "a"},
		{"control characters", "a\nb\x1b[31m", "a b [31m"},
		{"no UTF-8", "a\xffb", "a?b"},
		{"a long one", long, strings.Repeat("ä", 158) + "…"},
	} {
		got := exportmeta.Remarks(strings.Split(c.in, "|"))
		if text := strings.Join(got, "|"); text != c.want {
			t.Errorf("%s: got %q, want %q", c.name, text, c.want)
		}
	}
}

func FuzzRemarks(f *testing.F) {
	f.Add("a|b|c|d|e|f")
	f.Add("\xff|\u202e|" + strings.Repeat("\u2026", 200))
	f.Fuzz(func(t *testing.T, in string) {
		got := exportmeta.Remarks(strings.Split(in, "|"))
		if len(got) > exportmeta.MaxRemarks {
			t.Fatalf("%d remarks", len(got))
		}
		for _, text := range got {
			if len(text) > exportmeta.MaxRemark || !utf8.ValidString(text) || strings.ContainsAny(text, "\n\r\x1b\x00") {
				t.Errorf("got %q", text)
			}
		}
		if again := exportmeta.Remarks(got); !slices.Equal(again, got) {
			t.Errorf("again: %q, want %q", again, got)
		}
	})
}
