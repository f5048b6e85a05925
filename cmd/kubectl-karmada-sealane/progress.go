// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/wait"
)

// pollInterval is how often a wait looks again.
const pollInterval = 250 * time.Millisecond

// progress prints one line per step, with the seconds since the start.
type progress struct {
	out    io.Writer
	start  time.Time
	colour bool
	last   map[string]string
}

func newProgress(out io.Writer) *progress {
	return &progress{out: out, start: time.Now(), last: map[string]string{}, colour: colourful(out)}
}

// colourful says whether what is written there may have colours.
func colourful(out io.Writer) bool { return isTerminal(out) && wantsColour(os.Getenv) }

// isTerminal says whether somebody sees what is written there as it is written.
func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// wantsColour heeds what users say in the environment: see https://no-color.org.
func wantsColour(getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// say prints a line that stands for something done.
func (p *progress) say(format string, args ...any) { p.line("32", format, args...) }

// warn prints a line that a person should read.
func (p *progress) warn(format string, args ...any) { p.line("33", format, args...) }

func (p *progress) line(colour, format string, args ...any) {
	stamp := fmt.Sprintf("[%6.1fs]", time.Since(p.start).Seconds())
	if p.colour {
		stamp = "\x1b[" + colour + "m" + stamp + "\x1b[0m"
	}
	fmt.Fprintf(p.out, "%s %s\n", stamp, fmt.Sprintf(format, args...))
}

// state prints the state of a subject when it differs from the one printed last.
func (p *progress) state(subject, text string) {
	if p.last[subject] == text {
		return
	}
	p.last[subject] = text
	p.say("%s: %s", subject, text)
}

// until polls done until it is true, fails, or ctx ends.
func until(ctx context.Context, done func(context.Context) (bool, error)) error {
	return wait.PollUntilContextCancel(ctx, pollInterval, true, done)
}
