// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestAnAPIServerThatNeverAnswersHoldsNobodyUp: one that takes connections and is silent, as a hung one is, or a
// hostile one behind the cluster proxy. The first question of a client, which kinds there are, heeds no context.
func TestAnAPIServerThatNeverAnswersHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(over) })
	a, err := newAPI(&rest.Config{Host: server.URL}, "silent")
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 2)
	go func() { answered <- a.identify(t.Context(), &v1alpha1.Member{}) }()
	go func() {
		_, err := a.serverVersion()
		answered <- err
	}()
	for range 2 {
		select {
		case err := <-answered:
			if err == nil {
				t.Error("expected an error")
			}
		case <-time.After(6 * discoveryTime):
			t.Fatal("it waits for ever")
		}
	}
}
