// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestPrometheusReadsTheAgents: a ServiceAccount with the ClusterRole for it reads the metrics of every agent of a
// member, at the address and port by which Pods are discovered, and nobody reads them without a token.
func TestPrometheusReadsTheAgents(t *testing.T) {
	const cluster, node = "c1", "c1-gw"
	token := suite.Scraper(t, cluster)
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
				status, body, err := suite.Scrape(t, node, address, token)
				if err == nil && (status != http.StatusOK || !strings.Contains(body, "\n"+metric)) {
					err = fmt.Errorf("status %d, and no %s in %.2000s", status, metric, body)
				}
				return err
			})
			if status, body, err := suite.Scrape(t, node, address, ""); err != nil || status != http.StatusUnauthorized {
				t.Errorf("%s at %s without a token: status %d, %v: %.2000s", app, address, status, err, body)
			}
		}
	}
}
