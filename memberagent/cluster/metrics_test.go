// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sealane-io/sealane/internal/securemetrics/metricstest"
)

// TestMetricsAreForWhomTheClusterLetsReadThem, reviewed with the rights that the agent is installed with.
func TestMetricsAreForWhomTheClusterLetsReadThem(t *testing.T) {
	m := newMember(t)
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.metrics = free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	m.start(m.config)
	admin := rest.CopyConfig(m.config)
	admin.Impersonate = rest.ImpersonationConfig{}
	metricstest.Check(t, admin, m.metrics, "sealane-metrics-reader", "rest_client_requests_total{")
}
