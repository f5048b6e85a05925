// SPDX-License-Identifier: Apache-2.0

package clip_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sealane-io/sealane/internal/clip"
)

func TestText(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"short", 10, "short"},
		{"just right", 10, "just right"},
		{"much too long", 10, "much to…"},
		{"äöü", 5, "ä…"},
		{"a\xffb", 10, "a?b"},
		{"", 10, ""},
	} {
		if got := clip.Text(c.in, c.limit); got != c.want {
			t.Errorf("Text(%q, %d) = %q, want %q", c.in, c.limit, got, c.want)
		}
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"c1":                    `"c1"`,
		"a\nb\x1b[31m":          `"a\nb\x1b[31m"`,
		strings.Repeat("9", 65): `"` + strings.Repeat("9", 64) + `"…`,
	} {
		if got := clip.Quote(in); got != want {
			t.Errorf("Quote(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"ä „b“ …":                 "ä „b“ …",
		"a\nb\x1b[31m\x00\u0085c": "a b [31m  c",
		"a\u202eb\u200bc\u00a0d":  "a b c d",
	} {
		if got := clip.Line(in); got != want {
			t.Errorf("Line(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestList(t *testing.T) {
	for want, in := range map[string][]string{
		"": nil, "a": {"a"}, "a, b": {"a", "b"}, "a, b and 1 more": {"a", "b", "c"}, "a, b and 2 more": {"a", "b", "c", "d"},
	} {
		if got := clip.List(in, 2); got != want {
			t.Errorf("List(%q, 2) = %q, want %q", in, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("äöü", 5)
	f.Add("\xff\xff\xff\xff\xff", 3)
	f.Fuzz(func(t *testing.T, in string, limit int) {
		limit = 3 + (limit&0x7fffffff)%2048
		got := clip.Text(in, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Errorf("Text(%q, %d) = %q", in, limit, got)
		}
		if !utf8.ValidString(clip.Quote(in)) {
			t.Errorf("Quote(%q) = %q", in, clip.Quote(in))
		}
	})
}
