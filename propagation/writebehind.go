// SPDX-License-Identifier: Apache-2.0

package propagation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// CacheLag is how long a write may take to show in an informer's cache, where nothing else tells whether it does.
	CacheLag = 2 * time.Second
	// MaxCacheLag is how long it may take where the generation tells: the API server counts on, so that an older one is
	// the past, unless Karmada was restored from a backup. An API server that is at its limit sends the events of a write
	// half a minute after it.
	MaxCacheLag = time.Minute
)

// Lag is how long the write of an object with that UID and generation may take to show, where the cache has found.
func Lag(uid types.UID, generation int64, found metav1.Object) time.Duration {
	switch {
	case found.GetUID() != uid:
		return CacheLag
	case found.GetGeneration() >= generation:
		return 0 // be it that somebody has made it such that it cannot be read
	}
	return MaxCacheLag
}

// WriteBehind remembers the last value of an object that was written or read, so that a controller goes by its
// own write while the cache does not show it yet. The zero value is ready for use, by one goroutine at a time.
type WriteBehind[T any] struct {
	value *T
	at    time.Time
}

// Wrote remembers a write.
func (w *WriteBehind[T]) Wrote(value *T, now time.Time) { w.value, w.at = value, now }

// Latest returns the value in force, given what the cache has (nil: nothing): that, unless a write that newer calls
// newer is at most lag old; then that write, and after how long to look again.
func (w *WriteBehind[T]) Latest(lag time.Duration, cached *T, newer func(written, cached *T) bool,
	now time.Time) (*T, time.Duration) {
	left := w.at.Add(lag).Sub(now)
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
