// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestPrometheusReadsTheAgents: a ServiceAccount with the ClusterRole for it reads the metrics of every agent of a
// member, at the address and port by which Pods are discovered, and nobody reads them without a token.
func TestPrometheusReadsTheAgents(t *testing.T) {
	const cluster, node = "c1", "c1-gw"
	token := scraper(t, cluster)
	for app, metric := range map[string]string{
		"sealane-node": "sealane_node_sync_duration_seconds_count", "sealane-cluster-agent": "sealane_imports ",
	} {
		targets := strings.Fields(suite.Kubectl(t, "--context", cluster, "-n", v1alpha1.Namespace, "get", "pods",
			"-l", "app.kubernetes.io/name="+app, "-o",
			`jsonpath={range .items[*]}{.status.podIP}/`+
				`{.spec.containers[*].ports[?(@.name=="metrics")].containerPort}{"\n"}{end}`))
		if len(targets) == 0 {
			t.Errorf("no Pod of %s", app)
		}
		for _, target := range targets {
			ip, port, _ := strings.Cut(target, "/")
			if app == "sealane-node" && port == "" {
				port = "9811" // its Pods name no port: see docs/metrics.md
			}
			address := net.JoinHostPort(ip, port)
			suite.Eventually(t, suite.Patience, func(context.Context) error {
				//nolint:contextcheck // it has the context of the test
				status, body, err := scrape(t, node, address, token)
				if err == nil && (status != http.StatusOK || !strings.Contains(body, "\n"+metric)) {
					err = fmt.Errorf("status %d, and no %s in %.2000s", status, metric, body)
				}
				return err
			})
			if status, body, err := scrape(t, node, address, ""); err != nil || status != http.StatusUnauthorized {
				t.Errorf("%s at %s without a token: status %d, %v: %.2000s", app, address, status, err, body)
			}
		}
	}
}

// scraper makes a ServiceAccount that reads metrics, as that of a Prometheus, and returns its token.
func scraper(t *testing.T, cluster string) string {
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
			if _, err := suite.TryKubectl(ctx, "--context", cluster, "delete", o[0], o[1], "--ignore-not-found"); err != nil {
				t.Error(err)
			}
		}
	})
	for _, o := range objects {
		suite.Kubectl(t, append([]string{"--context", cluster, "create"}, o...)...)
	}
	return strings.TrimSpace(suite.Kubectl(t, "--context", cluster, "create", "token", name))
}

// scrape reads /metrics of an address from a node, with a token unless that is "".
func scrape(t *testing.T, node, address, token string) (int, string, error) {
	t.Helper()
	return get(t.Context(), t, node, "https", address, "/metrics", token)
}

// get asks a server from a node, with a token unless that is "".
func get(ctx context.Context, t *testing.T, node, scheme, address, path, token string) (int, string, error) {
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
	suite.InNetns(t, node, func() error {
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
