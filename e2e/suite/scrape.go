// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Scraper makes a ServiceAccount that reads metrics until the end of the test, as that of a Prometheus, and returns its
// token.
func Scraper(t *testing.T, cluster string) string {
	t.Helper()
	const name = "sealane-scraper"
	objects := [][]string{
		{"serviceaccount", name},
		{"clusterrolebinding", name, "--clusterrole=sealane-metrics-reader", "--serviceaccount=default:" + name},
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, o := range objects {
			if _, err := TryKubectl(ctx, "--context", cluster, "delete", o[0], o[1], "--ignore-not-found"); err != nil {
				t.Error(err)
			}
		}
	})
	for _, o := range objects {
		Kubectl(t, append([]string{"--context", cluster, "create"}, o...)...)
	}
	return strings.TrimSpace(Kubectl(t, "--context", cluster, "create", "token", name))
}

// Scrape reads /metrics of an address from a node, with a token unless that is "".
func Scrape(t *testing.T, node, address, token string) (int, string, error) {
	t.Helper()
	return Get(t.Context(), t, node, "https", address, "/metrics", token)
}

// Get asks a server from a node, with a token unless that is "".
func Get(ctx context.Context, t *testing.T, node, scheme, address, path, token string) (int, string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+path, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	var connection net.Conn
	var failed error
	InNetns(t, node, func() error {
		dialer := net.Dialer{Timeout: 5 * time.Second}
		connection, failed = dialer.DialContext(ctx, "tcp", address)
		return nil
	})
	if failed != nil {
		return 0, "", failed
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return connection, nil },
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}
