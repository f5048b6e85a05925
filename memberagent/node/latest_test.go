// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The newest value is written, those in between are not, and who puts does not wait for a write that hangs.
func TestLatestValueWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := newLatest[int]()
		var written []int
		var group sync.WaitGroup
		group.Go(func() {
			l.each(ctx, func(try context.Context, v int) error {
				written = append(written, v)
				if v == 1 {
					<-try.Done() // a server that never answers
				}
				return try.Err()
			}, func(error) {})
		})
		l.put(1)
		synctest.Wait()
		start := time.Now()
		for v := 2; v < 100; v++ {
			l.put(v)
		}
		if waited := time.Since(start); waited > 0 {
			t.Errorf("put waited %s", waited)
		}
		time.Sleep(writeTimeout + time.Second)
		synctest.Wait()
		if len(written) != 2 || written[1] != 99 {
			t.Errorf("written %v, want 1 and 99", written)
		}
		cancel()
		group.Wait()
	})
}

func TestLatestValueIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := newLatest[string]()
		var at []time.Duration
		start := time.Now()
		failures := 0
		var group sync.WaitGroup
		group.Go(func() {
			l.each(ctx, func(context.Context, string) error {
				at = append(at, time.Since(start))
				if len(at) < 4 {
					return errors.New("refused")
				}
				return nil
			}, func(error) { failures++ })
		})
		l.put("a")
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(at) != 4 || failures != 3 || at[3] != 7*retryFirst {
			t.Errorf("tried at %v, %d failures", at, failures)
		}
		cancel()
		group.Wait()
	})
}
