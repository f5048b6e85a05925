// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

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

// TestDecisionsHaveAProcessorEach: no more are made at once than there are processors, and one that fails, in whatever
// way, or is given up leaves its place to the next.
func TestDecisionsHaveAProcessorEach(t *testing.T) {
	const more = 2
	reads := &heldBack{come: make(chan struct{}), leave: make(chan struct{})}
	r := &Reconciler{Client: reads, Now: time.Now}
	processors := runtime.GOMAXPROCS(0)
	var all sync.WaitGroup
	for n := range processors + more {
		all.Go(func() {
			defer func() { _ = recover() }()
			if _, err := r.Reconcile(t.Context(), Shard{"fleet", int32(n)}); err == nil {
				t.Error("a decision without anything read is no error")
			}
		})
	}
	for range processors {
		<-reads.come
	}
	select {
	case <-reads.come:
		t.Errorf("more than %d decisions are made at once", processors)
	case <-time.After(100 * time.Millisecond):
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Reconcile(gone, Shard{"fleet", -1}); !errors.Is(err, context.Canceled) {
		t.Errorf("a decision that is given up while it waits: %v", err)
	}
	close(reads.leave)
	for range more {
		select {
		case <-reads.come:
		case <-time.After(10 * time.Second):
			t.Fatal("a place that is free is not had")
		}
	}
	all.Wait()
}
