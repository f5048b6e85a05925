// SPDX-License-Identifier: Apache-2.0

// Package securemetrics serves the metrics of a process over TLS, to those alone whom an API server knows and lets
// read them.
package securemetrics

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// CertDir is where a certificate of one's own is looked for by default, as tls.crt and tls.key.
const CertDir = "/etc/sealane-metrics"

// Options of a server of controller-runtime's registry at /metrics; the address "0" is none. Without a certificate in
// certDir it makes one, signed by itself. Who reads needs a bearer token, which the API server behind reviewer
// reviews, and the right to get the path there; nil lets everybody read. Nothing is asked before somebody reads.
func Options(address, certDir string, reviewer *rest.Config) metricsserver.Options {
	o := metricsserver.Options{
		BindAddress: address, SecureServing: true, CertDir: certDir,
		// Without HTTP/2 a connection has one request at a time.
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }},
	}
	if reviewer != nil {
		o.FilterProvider = func(*rest.Config, *http.Client) (metricsserver.Filter, error) { return filter(reviewer) }
	}
	return o
}

// filter asks the API server with a rate limit of its own: requests with invalid tokens, which are not remembered,
// are neither a load on it nor take from what the process has.
func filter(reviewer *rest.Config) (metricsserver.Filter, error) {
	config := rest.CopyConfig(reviewer)
	config.RateLimiter, config.QPS, config.Burst, config.Timeout = nil, 5, 10, 10*time.Second
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for reviews: %w", err)
	}
	review, err := filters.WithAuthenticationAndAuthorization(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("review who reads metrics: %w", err)
	}
	return func(log logr.Logger, handler http.Handler) (http.Handler, error) {
		reviewed, err := review(log, handler)
		if err != nil {
			return nil, err
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reviewed.ServeHTTP(answer{ResponseWriter: w, request: r}, r)
		}), nil
	}, nil
}

// answer is 401, as that of an API server, where the filter's is 500: to a token that is not valid or cannot be
// reviewed. The authenticator takes the header off a request that it has authenticated.
type answer struct {
	http.ResponseWriter
	request *http.Request
}

// WriteHeader implements http.ResponseWriter.
func (a answer) WriteHeader(status int) {
	if status == http.StatusInternalServerError && a.request.Header.Get("Authorization") != "" {
		status = http.StatusUnauthorized
	}
	a.ResponseWriter.WriteHeader(status)
}

// again is the pause before an address that could not be had is tried again.
const again = time.Minute

// Serve serves until the context ends, and returns at once. What prevents it, such as a port that is taken, is logged
// and tried again.
func Serve(ctx context.Context, o metricsserver.Options) { serve(ctx, o, again) }

func serve(ctx context.Context, o metricsserver.Options, pause time.Duration) {
	log := logr.FromContextOrDiscard(ctx).WithValues("address", o.BindAddress)
	server, err := metricsserver.NewServer(o, nil, nil)
	if err != nil {
		log.Error(err, "metrics are not served")
		return
	}
	if server == nil {
		return
	}
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := server.Start(ctx); err != nil {
			log.Error(err, "metrics are not served, trying again", "after", pause.String())
		}
	}, pause)
}
