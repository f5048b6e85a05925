// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

const (
	// readPause is between two readings, readTime how long one may take.
	readPause = time.Second
	readTime  = time.Minute
	// oldAfter is how old what is shown can be, of a fleet that is read quickly.
	oldAfter = 10 * time.Second
	// maxFrame bounds what is sent to a page at once, in bytes.
	maxFrame = 32 << 20
	// maxWatchers is how many pages are told of changes.
	maxWatchers = 32
)

// frame is what a page shows. With a trouble the map is the last one that could be read.
type frame struct {
	Map     *Map   `json:"map,omitempty"`
	Trouble string `json:"trouble,omitempty"`
}

// watcher is a page that is told of changes: of several that it has not taken yet it gets the last one.
type watcher chan []byte

// hub reads for all pages together, and only while there is one.
type hub struct {
	source Source
	ctx    context.Context
	pause  time.Duration

	mu       sync.Mutex
	watchers map[watcher]bool
	// latest is what was sent last, nil before the first reading; same is what of it is compared.
	latest, same []byte
	last         *Map
	// at is when the network was last read, or the first reading began; took is how long that reading took.
	at   time.Time
	took time.Duration
	stop context.CancelFunc
}

// age is how long ago the network was read, and old says that it should have been again. As long as a reading takes is
// waited before the next.
func (h *hub) age() (age time.Duration, old bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	age = time.Since(h.at)
	return age, age > max(oldAfter, 3*h.took)
}

// watch adds a page, until leave is called. It is false where there are too many.
func (h *hub) watch() (w watcher, leave func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watchers) >= maxWatchers {
		return nil, nil, false
	}
	w = make(watcher, 1)
	if len(h.watchers) == 0 {
		ctx, stop := context.WithCancel(h.ctx)
		h.stop, h.latest, h.same, h.last, h.at, h.took = stop, nil, nil, nil, time.Now(), 0
		go h.read(ctx)
	} else if h.latest != nil {
		w <- h.latest
	}
	h.watchers[w] = true
	return w, func() { h.leave(w) }, true
}

func (h *hub) leave(w watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers, w)
	if len(h.watchers) == 0 {
		h.stop()
	}
}

// read until ctx ends. What takes long is not read more often than half of the time.
func (h *hub) read(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		round, cancel := context.WithTimeout(ctx, readTime)
		m, err := h.source.Read(round)
		cancel()
		h.publish(ctx, m, err, time.Since(began))
		select {
		case <-ctx.Done():
		case <-time.After(max(h.pause, time.Since(began))):
		}
	}
}

// publish sends what differs from what was sent last.
func (h *hub) publish(ctx context.Context, m Map, err error, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return // another reader may have begun
	}
	f := frame{Map: h.last}
	if err != nil {
		f.Trouble = "The network could not be read again: " + err.Error()
		lines(&f.Trouble)
	} else {
		h.at, h.took = time.Now(), took
		m = m.Bounded()
		f.Map = &m
	}
	full, same, err := encode(f)
	if err != nil {
		f.Map, f.Trouble = h.last, err.Error()
		full, same, err = encode(f)
	}
	if err != nil || bytes.Equal(same, h.same) {
		return
	}
	h.last, h.latest, h.same = f.Map, full, same
	for w := range h.watchers {
		select {
		case <-w:
		default:
		}
		w <- full
	}
}

// encode returns a frame, and what of it is compared: all but the time.
func encode(f frame) (full, same []byte, err error) {
	if full, err = json.Marshal(f); err != nil {
		return nil, nil, fmt.Errorf("encode the map: %w", err)
	}
	if len(full) > maxFrame {
		return nil, nil, fmt.Errorf("expected a map of at most %d MB, found %d MB; narrow it with --clusters", maxFrame>>20,
			len(full)>>20)
	}
	if f.Map != nil {
		timeless := *f.Map
		timeless.Taken = ""
		f.Map = &timeless
	}
	same, err = json.Marshal(f)
	return full, same, err
}
