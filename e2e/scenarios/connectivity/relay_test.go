// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// throughIs waits until the gateways of c1 and c2 say that they reach each other, and by this relay; "" is none.
func throughIs(t *testing.T, relay string) {
	t.Helper()
	for cluster, remote := range map[string]string{"c1": "c2", "c2": "c1"} {
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			got, err := suite.TryKubectl(ctx, "--context", cluster, "get", "gateways", "-o",
				`jsonpath={range .items[*].status.connections[?(@.cluster=="`+remote+`")]}{.through} {.status}{end}`)
			if expected := strings.TrimSpace(relay + " Connected"); err == nil && got != expected {
				err = fmt.Errorf("%s to %s: expected %q, found %q", cluster, remote, expected, got)
			}
			return err
		})
	}
}

// TestARelayAndBack: an administrator has two clusters reach each other through a third one. Every way that a packet
// can take leads there, names are answered, and when the relay is cut off they are no more; then the two dial each
// other again.
func TestARelayAndBack(t *testing.T) {
	suite.SetClusterSetAfter(t, `{"relays":null}`)
	s := suite.NewNamespace(t)
	s.Serve("c2", suite.Headless)
	s.Export("c2")
	server := suite.PodIP(t, "c2", "server-c2-gw")
	suite.Resolves(t, "c1", s.DNSName(), "A", server)

	suite.ConnectionSurvives(t, time.Second, 10*time.Second, func() {
		suite.SetClusterSet(t, `{"relays":[{"clusters":[{"clusterNames":["c1"]},{"clusterNames":["c2"]}],"through":"c3"}]}`)
		throughIs(t, "c3")
	})
	suite.Contains(t, suite.Plugin(t, "show", "connections", "-C", "c1"), "through c3")
	everyWay(t)
	suite.Resolves(t, "c1", s.DNSName(), "A", server)
	out := suite.Plugin(t, "explain", "c1/"+suite.PodIP(t, "c1", "client-c1-worker"), server)
	suite.Contains(t, out, "c3 passes it on to c2", "arrives: yes")

	suite.Isolate(t, "c3-gw")
	suite.WaitConnection(t, "c1", "c2",
		func(status v1alpha1.ConnectionStatus) bool { return status != v1alpha1.ConnectionConnected })
	suite.Resolves(t, "c1", s.DNSName(), "A")
	if problems := suite.Plugin(t, "show", "problems"); !strings.Contains(problems, "through c3") {
		t.Errorf("expected the way through c3 among the problems, found:\n%s", problems)
	}
	suite.Reconnect(t, "c3-gw")
	throughIs(t, "c3")
	suite.Resolves(t, "c1", s.DNSName(), "A", server)

	suite.ConnectionSurvives(t, time.Second, 10*time.Second, func() {
		suite.SetClusterSet(t, `{"relays":null}`)
		throughIs(t, "")
	})
}
