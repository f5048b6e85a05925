// SPDX-License-Identifier: Apache-2.0

// Package redial keeps API clients from backing off while their server is away. An informer whose server
// refuses connections doubles its pause up to a minute, and an agent then sees no change for as long after the outage.
// With this transport a read waits for the server instead of failing, and goes through as soon as it is back.
package redial

import (
	"errors"
	"net"
	"net/http"
	"time"
)

// pause between two attempts to connect.
const pause = 500 * time.Millisecond

// Transport wraps another: a GET whose connection cannot be established is tried again until it is, or the
// request's context ends. Nothing that may have reached the server is repeated.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	for {
		response, err := t.next.RoundTrip(request)
		if err == nil || request.Method != http.MethodGet || !unconnected(err) {
			return response, err
		}
		select {
		case <-request.Context().Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

// unconnected says whether a request failed before anything was sent.
func unconnected(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial"
}
