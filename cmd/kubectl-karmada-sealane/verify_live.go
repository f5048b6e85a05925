// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/matrix"
	"github.com/sealane-io/sealane/internal/clip"
)

// redrawEvery is how often the table is drawn again while results come.
const redrawEvery = 500 * time.Millisecond

// show tells of results as they come, until the function that it returns is called: on a terminal that is high enough
// by the table itself, drawn over again, elsewhere by lines. The table that stays is for others to print.
func (b *board) show(out io.Writer, p *progress, wanted bool) (end func()) {
	draw, erase := b.lines(p), func() {}
	if f, ok := out.(*os.File); ok && wanted && colourful(out) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err == nil && strings.Count(b.render(), "\n") < height {
			s := &screen{out: out, width: width}
			draw, erase = func() { s.draw(b.render()) }, s.erase
		}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(redrawEvery)
		defer tick.Stop()
		for {
			draw()
			select {
			case <-stop:
				draw()
				erase()
				return
			case <-tick.C:
			}
		}
	}()
	return func() { close(stop); <-done }
}

// render is the table as it is now.
func (b *board) render() string {
	b.Lock()
	cells := b.Cells()
	b.Unlock()
	var text bytes.Buffer
	t := table{subject: "verify", columns: matrix.Columns(), narrow: len(matrix.Columns()), cells: cells}
	if err := t.write(&text, false); err != nil {
		return err.Error() + "\n"
	}
	return text.String()
}

// lines says how far the checks have come, when that has changed.
func (b *board) lines(p *progress) func() {
	last := -1
	return func() {
		b.Lock()
		pending, failed, all := b.Count(matrix.Pending), b.Count(matrix.Failed), len(b.Checks)-b.Count(matrix.Skipped)
		b.Unlock()
		if pending != last {
			last = pending
			p.say("%d of %d checks done, %d failed", all-pending, all, failed)
		}
	}
}

// screen draws a text over the one before.
type screen struct {
	out   io.Writer
	width int
	lines int
}

// draw cuts the lines that are too long: a line that the terminal breaks in two would be counted as one.
func (s *screen) draw(text string) {
	s.erase()
	for line := range strings.Lines(text) {
		fmt.Fprintln(s.out, clip.Text(strings.TrimSuffix(line, "\n"), s.width))
		s.lines++
	}
}

// erase moves up to where the text began, and clears all below.
func (s *screen) erase() {
	if s.lines > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.lines)
		s.lines = 0
	}
}
