// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

const (
	// watchInterval is how often show --watch reads again, and watchRound how long that may take.
	watchInterval = 2 * time.Second
	watchRound    = 30 * time.Second
)

// display shows tables as they change: in place on a terminal, in lines elsewhere.
type display struct {
	out    io.Writer
	format string
	// size returns the columns and lines of the terminal; nil where there is none.
	size func() (columns, lines int)
	now  func() time.Time

	shown  bool
	before []table
	// text is the document that was written last, and trouble what was wrong with the last reading.
	text, trouble string
}

func newDisplay(out io.Writer, format string) *display {
	s := &display{out: out, format: format, now: time.Now}
	if isTerminal(out) {
		s.size = func() (int, int) {
			columns, lines, err := term.GetSize(int(out.(*os.File).Fd()))
			if err != nil {
				return 0, 0
			}
			return columns, lines
		}
	}
	return s
}

// follow reads and shows until ctx ends, which is no error. Only the first reading has to succeed: what is wrong with
// later ones is shown, and they are tried again.
func follow(ctx context.Context, s *display, read func(context.Context) ([]table, error)) error {
	for {
		round, cancel := context.WithTimeout(ctx, watchRound)
		tables, err := read(round)
		cancel()
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was told to end
		}
		if err != nil && !s.shown {
			return err
		}
		if err := s.show(tables, err); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchInterval):
		}
	}
}

// show writes what has changed. With an error the tables are those of before.
func (s *display) show(tables []table, failed error) error {
	trouble := ""
	if failed != nil {
		trouble, tables = "could not be read again: "+oneLine(failed.Error()), s.before
	}
	var err error
	switch {
	case s.format == outputJSON || s.format == outputYAML:
		err = s.document(tables, trouble)
	case s.size != nil:
		err = s.draw(tables, trouble)
	default:
		err = s.changes(tables, trouble)
	}
	s.shown, s.before, s.trouble = true, tables, trouble
	return err
}

// stamp begins a line about a change.
func (s *display) stamp() string { return s.now().UTC().Format(time.RFC3339) }

// draw writes over what the terminal shows. What does not fit is cut off, or it would scroll.
func (s *display) draw(tables []table, trouble string) error {
	var text bytes.Buffer
	if err := write(&text, s.format, tables...); err != nil {
		return err
	}
	head := fmt.Sprintf("%s, every %s; Ctrl-C ends it", s.stamp(), watchInterval)
	if trouble != "" {
		head = s.stamp() + " " + trouble
	}
	columns, height := s.size()
	lines := append([]string{head, ""}, strings.Split(strings.TrimRight(text.String(), "\n"), "\n")...)
	if room := height - 1; height > 2 && len(lines) > room {
		left := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Sprintf("(%d more lines than fit; -C and -n show less)", left))
	}
	var out strings.Builder
	if !s.shown {
		out.WriteString("\x1b[2J")
	}
	out.WriteString("\x1b[H")
	for _, line := range lines {
		out.WriteString(cut(line, columns) + "\x1b[K\n")
	}
	out.WriteString("\x1b[J")
	_, err := io.WriteString(s.out, out.String())
	return err
}

// cut keeps a line within columns; 0 is any number of them.
func cut(line string, columns int) string {
	if r := []rune(line); columns > 0 && len(r) > columns {
		return string(r[:columns])
	}
	return line
}

// document writes all as soon as it differs from what was written last.
func (s *display) document(tables []table, trouble string) error {
	if trouble != "" {
		return nil // a reader of documents waits for the next one
	}
	var text bytes.Buffer
	if err := write(&text, s.format, tables...); err != nil {
		return err
	}
	if s.shown && text.String() == s.text {
		return nil
	}
	separator := ""
	if s.shown && s.format == outputYAML {
		separator = "---\n"
	}
	s.text = text.String()
	_, err := io.WriteString(s.out, separator+s.text)
	return err
}

// changes writes the tables, and from then on a line for each row that has gone or come.
func (s *display) changes(tables []table, trouble string) error {
	if !s.shown {
		return write(s.out, s.format, tables...)
	}
	var text strings.Builder
	if trouble != s.trouble {
		fmt.Fprintf(&text, "%s %s\n", s.stamp(), cmp.Or(trouble, "is read again"))
	}
	for i := range tables {
		title := ""
		if len(tables) > 1 {
			title = tables[i].subject + "   "
		}
		for _, line := range s.before[i].lacking(tables[i], s.format) {
			fmt.Fprintf(&text, "%s - %s%s\n", s.stamp(), title, line)
		}
		for _, line := range tables[i].lacking(s.before[i], s.format) {
			fmt.Fprintf(&text, "%s + %s%s\n", s.stamp(), title, line)
		}
	}
	_, err := io.WriteString(s.out, text.String())
	return err
}

// lacking are the lines of the rows that another table does not have.
func (t table) lacking(other table, format string) []string {
	wide := format == outputWide
	has := map[string]int{}
	for _, cells := range other.cells {
		has[other.ageless(cells, wide)]++
	}
	var out []string
	for _, cells := range t.cells {
		key := t.ageless(cells, wide)
		if has[key]--; has[key] < 0 {
			out = append(out, strings.Join(t.shown(cells, wide), "   "))
		}
	}
	return out
}

// ageless is a row as it is shown, but for what grows by itself.
func (t table) ageless(cells []string, wide bool) string {
	shown := t.shown(cells, wide)
	for i := range shown {
		if t.columns[i] == columnLastChange || t.columns[i] == columnSince {
			shown[i] = ""
		}
	}
	return strings.Join(shown, "   ")
}

// newPending says what is waited for, in the way of what it writes to.
func newPending(out io.Writer) *pending {
	p := &pending{progress: newProgress(out)}
	if s := newDisplay(out, outputTable); s.size != nil {
		p.width = func() int {
			columns, _ := s.size()
			return columns
		}
	}
	return p
}
