// SPDX-License-Identifier: Apache-2.0

package propagation

import "time"

// CacheLag is how long a write may take to show in an informer's cache.
const CacheLag = 2 * time.Second

// WriteBehind remembers the last value of an object that was written or read, so that a controller goes by its
// own write while the cache does not show it yet. The zero value is ready for use, by one goroutine at a time.
type WriteBehind[T any] struct {
	value *T
	at    time.Time
}

// Wrote remembers a write.
func (w *WriteBehind[T]) Wrote(value *T, now time.Time) { w.value, w.at = value, now }

// Latest returns the value in force, given what the cache has (nil: nothing): that, unless a write that newer
// calls newer is at most CacheLag old; then that write, and after how long to look again.
func (w *WriteBehind[T]) Latest(cached *T, newer func(written, cached *T) bool, now time.Time) (*T, time.Duration) {
	left := w.at.Add(CacheLag).Sub(now)
	if w.value != nil && left > 0 && (cached == nil || newer(w.value, cached)) {
		return w.value, left
	}
	if cached != nil {
		w.value, w.at = cached, time.Time{}
	}
	return cached, 0
}

// Remembered returns the last value that was written or read, nil if there never was one. It may be gone.
func (w *WriteBehind[T]) Remembered() *T { return w.value }
