// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/e2e/sealane"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestADeletedGatewayNodeTakesItsEndpointAlong, and brings it back.
func TestADeletedGatewayNodeTakesItsEndpointAlong(t *testing.T) {
	const gateways = `{.status.endpoints[*].gateway}`
	member := []string{"member", "c2"}
	suite.WaitContains(t, "karmada", gateways, member, "c2-gw")
	node := suite.Kubectl(t, "--context", "c2", "get", "node", "c2-gw", "-o",
		`jsonpath={"apiVersion: v1\nkind: Node\nmetadata: {name: c2-gw, labels: "}{.metadata.labels}`+
			`{"}\nspec: {podCIDR: "}{.spec.podCIDR}{", podCIDRs: "}{.spec.podCIDRs}{"}\n"}`)
	restore := func() {
		if err := sealane.Apply(context.Background(), suite.Lab(), "c2", []byte(node)); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(restore)
	suite.Kubectl(t, "--context", "c2", "delete", "node", "c2-gw")
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		for cluster, remote := range map[string][]string{"karmada": member, "c1": {"peering", "sealane"}} {
			path := gateways
			if cluster == "c1" {
				path = `{.spec.remoteClusters[?(@.name=="c2")].endpoints[*].gateway}`
			}
			if got, err := suite.JSONPath(ctx, cluster, path, remote...); err != nil || strings.Contains(got, "c2-gw") {
				return fmt.Errorf("gateways of c2 according to %s: %q, %w", cluster, got, err)
			}
		}
		return nil
	})
	restore()
	suite.WaitContains(t, "karmada", gateways, member, "c2-gw")
	suite.WaitContains(t, "c1", `{.spec.remoteClusters[?(@.name=="c2")].endpoints[*].gateway}`,
		[]string{"peering", "sealane"}, "c2-gw")
	for _, server := range []string{"server-c2-gw", "server-c2-worker"} {
		pod := suite.PodIP(t, "c2", server)
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			_, err := suite.Ask(ctx, "c1", "client-c1-worker", "http://"+pod+":8080")
			return err
		})
	}
}
