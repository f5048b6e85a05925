// SPDX-License-Identifier: Apache-2.0

package redial

import (
	"context"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// A connection whose packets are lost is found dead after idle and answer, and closed; another is then tried every
// connect. client-go's own values add up to 45 s and 30 s, in which an agent sees no change of its server's objects.
const (
	idle    = time.Second     // without a frame from the server, until it is pinged
	answer  = 2 * time.Second // for the server to answer a ping
	connect = 2 * time.Second
)

// Notice makes the clients of a configuration notice within 3 s that packets to or from the server are lost. It
// comes before anything else that wraps the configuration's transport.
func Notice(config *rest.Config) { config.Wrap(notice) }

// notice changes a transport before it is used first; client-go hands the same one to every client of a server.
func notice(next http.RoundTripper) http.RoundTripper {
	t, ok := next.(*http.Transport)
	if !ok || t == http.DefaultTransport || t.HTTP2 != nil {
		return next
	}
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: idle, PingTimeout: answer}
	if dial := t.DialContext; dial != nil {
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, connect)
			defer cancel()
			return dial(ctx, network, address)
		}
	}
	return next
}
