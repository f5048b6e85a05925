// SPDX-License-Identifier: Apache-2.0

package redial_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/internal/redial"
)

// closed returns an address that refuses connections.
func closed(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func TestAReadWaitsForTheServer(t *testing.T) {
	address := closed(t)
	client := &http.Client{Transport: redial.Transport(&http.Transport{})}
	answered := make(chan error, 1)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("answered without a server: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "here")
	}), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	select {
	case err := <-answered:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("not answered within 5 s of the server's return")
	}
}

func TestAReadEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+closed(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := redial.Transport(&http.Transport{}).RoundTrip(request)
	if err == nil {
		_ = response.Body.Close()
		t.Fatal("expected an error once the context has ended")
	}
}

func TestAWriteFailsAtOnce(t *testing.T) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+closed(t), strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := redial.Transport(&http.Transport{}).RoundTrip(request)
	if err == nil {
		_ = response.Body.Close()
		t.Fatal("expected the refusal")
	}
}
