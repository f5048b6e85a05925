// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	// mostAtOnce bounds how many requests are under way.
	mostAtOnce = 16
	// firstPause and longestPause bound how long a request that the server could not take waits.
	firstPause, longestPause = 250 * time.Millisecond, 15 * time.Second
	// oneRequest is how long one request may take before it counts as too much for the server.
	oneRequest = 30 * time.Second
	// mostTries of one request: with the pauses between them more than five minutes.
	mostTries = 25
)

// pacer makes as many requests at once as a server sustains: one more after each round of successes, half as many
// after each that the server could not take in time.
type pacer struct {
	mu     sync.Mutex
	freed  *sync.Cond
	limit  float64
	active int
}

func newPacer() *pacer {
	p := &pacer{limit: 2}
	p.freed = sync.NewCond(&p.mu)
	return p
}

func (p *pacer) acquire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for float64(p.active) >= max(p.limit, 1) {
		p.freed.Wait()
	}
	p.active++
}

func (p *pacer) release(overload bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active--
	if overload {
		p.limit = max(p.limit/2, 1)
	} else {
		p.limit = min(p.limit+1/p.limit, mostAtOnce)
	}
	p.freed.Broadcast()
}

// do makes a request, again as long as the server is overloaded. The request must allow being repeated.
func (p *pacer) do(ctx context.Context, request func(context.Context) error) error {
	pause := firstPause
	for try := 1; ; try++ {
		p.acquire()
		attempt, cancel := context.WithTimeout(ctx, oneRequest)
		err := request(attempt)
		cancel()
		overload := err != nil && ctx.Err() == nil && overloaded(err)
		p.release(overload)
		switch {
		case !overload:
			return err
		case try == mostTries:
			return fmt.Errorf("after %d tries: %w", try, err)
		}
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			pause = max(pause, time.Duration(seconds)*time.Second)
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, longestPause)
	}
}

// overloaded tells whether an error says that the server could not take a request now.
func overloaded(err error) bool {
	var timeout net.Error
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err)
}
