// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"cmp"
	"context"
	"path/filepath"
	"time"
)

const (
	// hungAfter is for how long charon may answer nothing.
	hungAfter = time.Minute
	// timesAsked is how often it is asked meanwhile. A machine that stood still has not asked.
	timesAsked = 5
)

// hangs waits until charon has answered nothing for long, and says whether that is so: else the context has ended.
func (c Charon) hangs(ctx context.Context) bool {
	every := cmp.Or(c.Patience, hungAfter) / timesAsked
	tick := time.NewTicker(every)
	defer tick.Stop()
	for missed := 0; missed < timesAsked; missed++ {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
		if answers(ctx, filepath.Join(c.Dir, socketFile), min(every, answerWithin)) {
			missed = -1
		}
	}
	return ctx.Err() == nil
}

// answers says whether charon does, within that time.
func answers(ctx context.Context, socket string, within time.Duration) bool {
	s, err := dial(ctx, socket, within)
	if err != nil {
		return false
	}
	defer func() { _ = s.Close() }()
	return s.do("version", nil) == nil
}
