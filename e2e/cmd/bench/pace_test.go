// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestThePacerFinishesOnAServerThatTakesThreeAtOnce and refuses or times out every further request.
func TestThePacerFinishesOnAServerThatTakesThreeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests, capacity = 300, 3
		var mu sync.Mutex
		active, done, refused := 0, 0, 0
		p := newPacer()
		serve := func(context.Context) error {
			mu.Lock()
			active++
			mine := active
			mu.Unlock()
			defer func() { mu.Lock(); active--; mu.Unlock() }()
			time.Sleep(50 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if mine > capacity {
				refused++
				return apierrors.NewTimeoutError("request did not complete within the allowed duration", 0)
			}
			done++
			return nil
		}
		var all sync.WaitGroup
		for range requests {
			all.Go(func() {
				if err := p.do(t.Context(), serve); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if done != requests {
			t.Errorf("%d of %d requests were served", done, requests)
		}
		if refused > requests/2 {
			t.Errorf("%d refusals for %d requests: it does not learn what the server takes", refused, requests)
		}
	})
}

func TestThePacerDoesNotRepeatWhatIsWrong(t *testing.T) {
	tries := 0
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "web", errors.New("no"))
	err := newPacer().do(t.Context(), func(context.Context) error { tries++; return forbidden })
	if !apierrors.IsForbidden(err) || tries != 1 {
		t.Errorf("expected one try and Forbidden, found %d and %v", tries, err)
	}
}
