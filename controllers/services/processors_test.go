// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// heldBack is a client of which each read comes, and ends when it may: the first one in a panic.
type heldBack struct {
	client.Client
	come, leave chan struct{}
	first       sync.Once
}

func (h *heldBack) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	h.come <- struct{}{}
	<-h.leave
	h.first.Do(func() { panic("as a defect would") })
	return errors.New("it is away")
}

// comes waits for the next read.
func (h *heldBack) comes(t *testing.T) {
	t.Helper()
	select {
	case <-h.come:
	case <-time.After(10 * time.Second):
		t.Fatal("a place that is free is not had")
	}
}

// endOf returns what becomes of a decision that begins now: its error, a panic included.
func endOf(ctx context.Context, r *Reconciler, shard int32) <-chan error {
	out := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				out <- fmt.Errorf("panic: %v", p)
			}
		}()
		_, err := r.Reconcile(ctx, Shard{"fleet", shard})
		out <- err
	}()
	return out
}

// TestDecisionsHaveAProcessorEach: no more are made at once than there are processors.
func TestDecisionsHaveAProcessorEach(t *testing.T) {
	reads := &heldBack{come: make(chan struct{}), leave: make(chan struct{})}
	r := &Reconciler{Client: reads, Now: time.Now}
	processors := runtime.GOMAXPROCS(0)
	var all []<-chan error
	for n := range processors + 1 {
		all = append(all, endOf(t.Context(), r, int32(n)))
	}
	for range processors {
		reads.comes(t)
	}
	select {
	case <-reads.come:
		t.Errorf("more than %d decisions are made at once", processors)
	case <-time.After(100 * time.Millisecond):
	}
	close(reads.leave)
	reads.comes(t)
	for _, err := range all {
		if <-err == nil {
			t.Error("a decision without anything read is no error")
		}
	}
}

// TestPlacesAreLeft: a decision that is given up while it waits ends at once, and one that ends, in whatever way,
// leaves its place to the next.
func TestPlacesAreLeft(t *testing.T) {
	reads := &heldBack{come: make(chan struct{}), leave: make(chan struct{})}
	r := &Reconciler{Client: reads, Now: time.Now, processors: semaphore.NewWeighted(1)}
	panics := endOf(t.Context(), r, 0)
	reads.comes(t)
	ctx, cancel := context.WithCancel(t.Context())
	waits := endOf(ctx, r, 1)
	select {
	case err := <-waits:
		t.Fatalf("a decision whose place another has does not wait: %v", err)
	case <-reads.come:
		t.Fatal("a decision is made whose place another has")
	case <-time.After(100 * time.Millisecond):
	}
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("a decision that is given up while it waits: %v", err)
	}
	close(reads.leave)
	if err := <-panics; err == nil || !strings.HasPrefix(err.Error(), "panic") {
		t.Errorf("the first read ends in a panic, found %v", err)
	}
	for n := range int32(2) {
		next := endOf(t.Context(), r, n)
		reads.comes(t)
		if <-next == nil {
			t.Error("a decision without anything read is no error")
		}
	}
}
