// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/cert"
)

// Slow serves the API with a delay before each request, of which every so many fail (0: none); the beginning of a watch
// is one. It returns where, and how to end it.
func (f *Fleet) Slow(ctx context.Context, delay time.Duration, failing int64) (string, func(), error) {
	target, err := url.Parse(f.api.Config.Host)
	if err != nil {
		return "", nil, fmt.Errorf("read the address of the API server: %w", err)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{{127, 0, 0, 1}}, nil)
	if err != nil {
		return "", nil, fmt.Errorf("make a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return "", nil, fmt.Errorf("make a certificate: %w", err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1, // a watch is to be heard at once
		Transport: &http.Transport{ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	var requests atomic.Int64
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{pair}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
				return
			case <-time.After(delay):
			}
			if failing > 0 && requests.Add(1)%failing == 0 {
				http.Error(w, "one of several requests fails", http.StatusInternalServerError)
				return
			}
			proxy.ServeHTTP(w, r)
		}),
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen: %w", err)
	}
	f.running.Go(func() {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			f.Tally.fail(fmt.Errorf("serve the slow API: %w", err))
		}
	})
	return "https://" + listener.Addr().String(), func() { _ = server.Close() }, nil
}
