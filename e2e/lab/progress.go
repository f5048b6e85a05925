// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// progress writes a line per finished step, with the time it took and the time
// since the beginning. Steps may run side by side.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

func newProgress(out io.Writer) *progress {
	if out == nil {
		out = io.Discard
	}
	return &progress{out: out, start: time.Now()}
}

// Step runs do and reports it under title; errors get the title in front.
func (p *progress) Step(title string, do func() error) error {
	begin := time.Now()
	err := do()
	took := time.Since(begin).Round(100 * time.Millisecond)
	if err != nil {
		p.line("✗", fmt.Sprintf("%s (after %s)", title, took))
		return fmt.Errorf("%s: %w", title, err)
	}
	p.line("✓", fmt.Sprintf("%s (%s)", title, took))
	return nil
}

// Line reports something that takes no time.
func (p *progress) Line(text string) { p.line("·", text) }

func (p *progress) line(sign, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%6.1fs %s %s\n", time.Since(p.start).Seconds(), sign, text)
}

// poll calls check until it returns nil. When the context ends first, the error
// is the context's cause and what check last found.
func poll(ctx context.Context, every time.Duration, check func(context.Context) error) error {
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last found: %w", context.Cause(ctx), err)
		case <-time.After(every):
		}
	}
}
