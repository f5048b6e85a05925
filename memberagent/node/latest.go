// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"
)

// latest hands the newest value of one goroutine to another. Who puts never waits: a value that nobody has
// taken yet makes room for the next.
type latest[T any] chan T

func newLatest[T any]() latest[T] { return make(latest[T], 1) }

// put a value. Only one goroutine may.
func (l latest[T]) put(v T) {
	select {
	case <-l:
	default:
	}
	l <- v
}

// writeTimeout bounds one try to write a value, against a server that accepts a request and never answers.
const writeTimeout = 10 * time.Second

// each calls write for the newest value, until the context ends. A value that could not be written is tried
// again, unless there is a newer one, after a wait that doubles from retryFirst to retryMost; failed is told.
func (l latest[T]) each(ctx context.Context, write func(context.Context, T) error, failed func(error)) {
	var value T
	var retry <-chan time.Time
	wait := retryFirst
	for {
		select {
		case <-ctx.Done():
			return
		case value = <-l:
			wait = retryFirst
		case <-retry:
		}
		retry = nil
		try, cancel := context.WithTimeout(ctx, writeTimeout)
		err := write(try, value)
		cancel()
		if err == nil || ctx.Err() != nil {
			continue
		}
		failed(err)
		retry = time.After(wait)
		wait = min(2*wait, retryMost)
	}
}
