// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// sizedRow is a row of a table under test.
type sizedRow struct {
	Name, State string
}

func (r sizedRow) cells() []string { return []string{r.Name, r.State} }

func sized(rows ...sizedRow) []table { return []table{newTable("tunnels", rows, 2, "NAME", "STATE")} }

// onDisplay is a display whose clock stands still.
func onDisplay(out *bytes.Buffer, format string) *display {
	s := newDisplay(out, format)
	s.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	return s
}

// shows shows tables, and returns what is written for them.
func shows(t *testing.T, s *display, out *bytes.Buffer, tables []table, failed error) string {
	t.Helper()
	out.Reset()
	if err := s.show(tables, failed); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestWatchWithoutATerminal: what a log or a pipe gets are lines, of what has changed alone.
func TestWatchWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	s := onDisplay(&out, outputTable)
	const at = "2026-01-02T03:04:05Z "
	up, down := sizedRow{"c1", "up"}, sizedRow{"c1", "down\x1b[31m"}
	for _, step := range []struct {
		name   string
		tables []table
		err    error
		want   string
	}{
		{"first", sized(up), nil, "NAME   STATE\nc1     up\n"},
		{"the same", sized(up), nil, ""},
		{"a change", sized(down), nil, at + "- c1   up\n" + at + "+ c1   down [31m\n"},
		{"a row twice", sized(down, down), nil, at + "+ c1   down [31m\n"},
		{"one of both goes", sized(down), nil, at + "- c1   down [31m\n"},
		{"the API is away", nil, errors.New("refused\nagain"), at + "could not be read again: refused again\n"},
		{"and stays away", nil, errors.New("refused\nagain"), ""},
		{"it is back, with another row", sized(down, up), nil, at + "is read again\n" + at + "+ c1   up\n"},
		{"all go", sized(), nil, at + "- c1   down [31m\n" + at + "- c1   up\n"},
	} {
		if got := shows(t, s, &out, step.tables, step.err); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}

// agedRow is a row with an age.
type agedRow struct {
	Name, Age string
}

func (r agedRow) cells() []string { return []string{r.Name, r.Age} }

// TestThatAgesGrowIsNoChange: a row is written when something else of it changes, with the age that it then has.
func TestThatAgesGrowIsNoChange(t *testing.T) {
	for _, column := range []string{columnLastChange, columnSince} {
		aged := func(rows ...agedRow) []table { return []table{newTable("tunnels", rows, 2, "NAME", column)} }
		var out bytes.Buffer
		s := onDisplay(&out, outputTable)
		shows(t, s, &out, aged(agedRow{"c1", "5s"}), nil)
		if got := shows(t, s, &out, aged(agedRow{"c1", "7s"}), nil); got != "" {
			t.Errorf("%s: %q is written of a row that grew older", column, got)
		}
		const want = "2026-01-02T03:04:05Z - c1   7s\n2026-01-02T03:04:05Z + c2   9s\n"
		if got := shows(t, s, &out, aged(agedRow{"c2", "9s"}), nil); got != want {
			t.Errorf("%s: %q, want %q", column, got, want)
		}
	}
}

// TestWatchOfDocuments: each is whole, and none is written twice.
func TestWatchOfDocuments(t *testing.T) {
	var out bytes.Buffer
	s := onDisplay(&out, outputYAML)
	s.size = func() (int, int) { return 10, 3 } // a document is never cut
	first := shows(t, s, &out, sized(sizedRow{"c1", "up"}), nil)
	if !strings.HasPrefix(first, "tunnels:") {
		t.Errorf("first: %q", first)
	}
	if got := shows(t, s, &out, sized(sizedRow{"c1", "up"}), nil) + shows(t, s, &out, nil, errors.New("away")); got != "" {
		t.Errorf("no change, and an error: %q", got)
	}
	if got := shows(t, s, &out, sized(sizedRow{"c1", "down"}), nil); !strings.HasPrefix(got, "---\ntunnels:") {
		t.Errorf("second: %q", got)
	}
}

// TestWatchOnATerminal: it never scrolls, whatever its size, and says so where rows do not fit.
func TestWatchOnATerminal(t *testing.T) {
	var rows []sizedRow
	for i := range 10_000 {
		rows = append(rows, sizedRow{fmt.Sprintf("c%d", i), strings.Repeat("long ", 100)})
	}
	for _, size := range [][2]int{{80, 24}, {20, 5}, {3, 3}} {
		var out bytes.Buffer
		s := onDisplay(&out, outputTable)
		s.size = func() (int, int) { return size[0], size[1] }
		first := shows(t, s, &out, sized(rows...), nil)
		if !strings.HasPrefix(first, "\x1b[2J\x1b[H") || !strings.HasSuffix(first, "\x1b[J") {
			t.Errorf("%v: begins with %.10q", size, first)
		}
		lines := strings.Split(strings.TrimSuffix(first, "\x1b[J"), "\n")
		if len(lines) > size[1] {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, line := range lines {
			if n := len(strings.NewReplacer("\x1b[2J", "", "\x1b[H", "", "\x1b[K", "").Replace(line)); n > size[0] {
				t.Errorf("%v: a line of %d columns", size, n)
			}
		}
		if size[0] == 80 && !strings.Contains(first, "(9981 more lines than fit") {
			t.Errorf("%v: does not say how much is cut off: %s", size, lines[len(lines)-2])
		}
		if second := shows(t, s, &out, nil, errors.New("away")); strings.Contains(second, "\x1b[2J") ||
			size[0] == 80 && (!strings.Contains(second, "away") || !strings.Contains(second, "c7 ")) {
			t.Errorf("%v: with an error, the rows of before: %.200q", size, second)
		}
	}
}

// TestFollowOutlivesErrors but the first, and ends without one.
func TestFollowOutlivesErrors(t *testing.T) {
	var out bytes.Buffer
	away := errors.New("away")
	read := func(context.Context) ([]table, error) { return nil, away }
	if err := follow(t.Context(), onDisplay(&out, outputTable), read); !errors.Is(err, away) {
		t.Errorf("first reading fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	rounds := 0
	read = func(context.Context) ([]table, error) {
		switch rounds++; rounds {
		case 1:
			return sized(sizedRow{"c1", "up"}), nil
		case 2:
			return nil, away
		}
		cancel()
		return nil, context.Canceled
	}
	if err := follow(ctx, onDisplay(&out, outputTable), read); err != nil || rounds != 3 {
		t.Errorf("ended after %d rounds with %v", rounds, err)
	}
	if !strings.Contains(out.String(), "could not be read again: away") {
		t.Errorf("does not tell of the error: %s", out.String())
	}
}
