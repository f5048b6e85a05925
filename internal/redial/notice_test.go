// SPDX-License-Identifier: Apache-2.0

package redial_test

import (
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sealane-io/sealane/internal/redial"
)

// relay passes TCP connections on to an address until it is cut: then nothing more passes, and nobody is told.
func relay(t *testing.T, to string) (address string, cut func()) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var passing sync.RWMutex
	pass := func(from, to net.Conn) {
		buffer := make([]byte, 1<<16)
		for {
			n, err := from.Read(buffer)
			passing.RLock()
			_, writeErr := to.Write(buffer[:n])
			passing.RUnlock()
			if err != nil || writeErr != nil {
				return
			}
		}
	}
	var mu sync.Mutex
	var open []net.Conn
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := new(net.Dialer).DialContext(t.Context(), "tcp", to)
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, client, server)
			mu.Unlock()
			go pass(client, server)
			go pass(server, client)
		}
	}()
	isCut := false
	t.Cleanup(func() {
		_ = l.Close()
		if isCut {
			passing.Unlock()
		}
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			_ = c.Close()
		}
	})
	return l.Addr().String(), func() { passing.Lock(); isCut = true }
}

// A watch whose packets are lost ends within 3 s, and one on which nothing happens does not.
func TestALostConnectionIsNoticed(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	address, cut := relay(t, server.Listener.Addr().String())
	config := &rest.Config{Host: "https://" + address, TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}}
	redial.Notice(config)
	config.Wrap(redial.Transport)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.ProtoMajor != 2 {
		t.Fatalf("the server speaks %s", response.Proto)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(response.Body)
		ended <- err
	}()
	const quiet = 6 * time.Second // longer than it takes to notice that nobody answers
	select {
	case err := <-ended:
		t.Fatalf("a quiet watch ended with %v", err)
	case <-time.After(quiet):
	}
	cut()
	start := time.Now()
	select {
	case err := <-ended:
		t.Logf("noticed after %s: %v", time.Since(start), err)
		if err == nil {
			t.Error("it ended as if complete")
		}
	case <-time.After(4 * time.Second):
		t.Fatal("not noticed within 4 s")
	}
}
