// SPDX-License-Identifier: Apache-2.0

package securemetrics

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"

	"github.com/sealane-io/sealane/internal/securemetrics/metricstest"
)

// taken is a port of loopback that is listened on.
func taken(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestServeWaitsForItsPort, says so, and needs no API server to start or to refuse.
func TestServeWaitsForItsPort(t *testing.T) {
	port, refuses := taken(t), taken(t)
	nobody := &rest.Config{Host: "https://" + refuses.Addr().String()}
	if err := refuses.Close(); err != nil {
		t.Fatal(err)
	}
	var said atomic.Int32
	log := funcr.New(func(_, args string) {
		if strings.Contains(args, "metrics are not served") && strings.Contains(args, "address already in use") {
			said.Add(1)
		}
	}, funcr.Options{})
	const pause = 20 * time.Millisecond
	serve(logr.NewContext(t.Context(), log), Options(port.Addr().String(), t.TempDir(), nobody), pause)
	for deadline := time.Now().Add(10 * time.Second); said.Load() < 2; time.Sleep(pause) {
		if time.Now().After(deadline) {
			t.Fatalf("said %d times within 10 s that the port is taken", said.Load())
		}
	}
	if err := port.Close(); err != nil {
		t.Fatal(err)
	}
	for what, token := range map[string]string{"no token": "", "a token that nobody can review": "t"} {
		if status, body := metricstest.Scrape(t, port.Addr().String(), token); status != http.StatusUnauthorized {
			t.Errorf("%s: status %d: %s", what, status, body)
		}
	}
}

// TestWithoutAReviewerEverybodyReads, over TLS all the same.
func TestWithoutAReviewerEverybodyReads(t *testing.T) {
	port := taken(t)
	if err := port.Close(); err != nil {
		t.Fatal(err)
	}
	Serve(t.Context(), Options("0", t.TempDir(), nil))
	Serve(t.Context(), Options(port.Addr().String(), t.TempDir(), nil))
	if status, body := metricstest.Scrape(t, port.Addr().String(), ""); status != http.StatusOK {
		t.Errorf("status %d: %s", status, body)
	}
}
