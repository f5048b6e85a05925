// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/suite"
)

// TestRestartsOfTheControlPlaneDisturbNothing: the cluster agent, DNS, the controller.
func TestRestartsOfTheControlPlaneDisturbNothing(t *testing.T) {
	suite.Exported(t, "c2", "whereami-cs")
	suite.AnsweredBy(t, "c1", "client-c1-worker", suite.Whereami, "c2")
	for _, workload := range []string{"sealane-cluster-agent", "sealane-dns"} {
		t.Run(workload, func(t *testing.T) {
			suite.ConnectionSurvives(t, 3*time.Second, suite.Undisturbed, func() {
				for _, c := range suite.Lab().Topology.Clusters {
					suite.Kubectl(t, "--context", c.Name, "-n", "sealane-system", "rollout", "restart", "deployment/"+workload)
				}
				for _, c := range suite.Lab().Topology.Clusters {
					suite.Kubectl(t, "--context", c.Name, "-n", "sealane-system", "rollout", "status", "deployment/"+workload,
						"--timeout=60s")
				}
			})
			suite.AnsweredBy(t, "c1", "client-c1-worker", suite.Whereami, "c2")
		})
	}
	t.Run("sealane-controller", func(t *testing.T) {
		suite.ConnectionSurvives(t, 5*time.Second, suite.Undisturbed, func() {
			if err := suite.Lab().KillProcess(t.Context(), "sealane-controller"); err != nil {
				t.Error(err)
			}
			if err := suite.Lab().StartProcess("sealane-controller"); err != nil {
				t.Error(err)
			}
		})
		suite.AnsweredBy(t, "c1", "client-c1-worker", suite.Whereami, "c2")
	})
}

// TestARestartedNodeAgentTakesUpWhereItLeft: with in-process WireGuard packets wait for the process.
func TestARestartedNodeAgentTakesUpWhereItLeft(t *testing.T) {
	t.Run("on a worker", func(t *testing.T) {
		suite.ConnectionSurvives(t, 8*time.Second, suite.Undisturbed,
			func() { suite.RestartNodeAgent(t, "c1", "c1-worker") })
	})
	t.Run("on a gateway", func(t *testing.T) {
		suite.GatewayRestartSurvives(t, 10*time.Second, func(restart func()) { restart() })
	})
}

// TestOutagesDisturbNothing: first a member's API server is away, then Karmada's, while a node agent restarts. After
// them the broker hears all members again, though Karmada's writes of their reports fail for up to a minute.
func TestOutagesDisturbNothing(t *testing.T) {
	suite.Long(t)
	t.Cleanup(func() { suite.WaitForAPI(t, "c2") })
	t.Run("of a member's API server", func(t *testing.T) {
		suite.ConnectionSurvives(t, 5*time.Second, suite.Undisturbed, func() {
			suite.Outage(t, "c2-apiserver", 25*time.Second, func() {})
		})
		suite.WaitForAPI(t, "c2")
	})
	waitCalled := suite.WaitCalled(t, suite.Members()...)
	t.Run("of Karmada's", func(t *testing.T) {
		// A controller that cannot renew its Lease ends, and is started again as its Deployment would.
		defer func() {
			suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
				_, err := suite.TryKubectl(ctx, "--context", "karmada", "get", "--raw", "/readyz")
				return err
			})
			if err := suite.Lab().StartProcess("sealane-controller"); err != nil {
				t.Error(err)
			}
		}()
		suite.GatewayRestartSurvives(t, 5*time.Second, func(restart func()) {
			suite.Outage(t, "karmada-apiserver", 45*time.Second, restart)
		})
	})
	waitCalled()
	suite.Exported(t, "c2", "whereami-cs")
	// Karmada's own informers of a member back off for minutes after an outage.
	suite.Eventually(t, 4*time.Minute, func(ctx context.Context) error {
		_, err := suite.Ask(ctx, "c1", "client-c1-worker", "http://"+suite.Whereami)
		return err
	})
}

// TestWhatIsDeletedByHandComesBack: our Peering and a Bundle in the member, and a Work on the Karmada API.
func TestWhatIsDeletedByHandComesBack(t *testing.T) {
	suite.Exported(t, "c2", "whereami-cs")
	suite.AnsweredBy(t, "c1", "client-c1-worker", suite.Whereami, "c2")
	work, err := suite.TryKubectl(t.Context(), "--context", "karmada", "-n", "karmada-es-c2", "get", "works", "-l",
		"app.kubernetes.io/managed-by=sealane.io",
		"-o", `jsonpath={.items[?(@.spec.workload.manifests[0].kind=="Peering")].metadata.name}`)
	if err != nil || work == "" {
		t.Fatalf("find the Work of c2's Peering: %q, %v", work, err)
	}
	for name, object := range map[string][]string{
		"the Peering in a member": {"c2", "peering/sealane"},
		"Bundles in a member":     {"c2", "bundles", "--all"},
		"a Work":                  {"karmada", "work/" + work, "-n", "karmada-es-c2"},
	} {
		t.Run(name, func(t *testing.T) {
			suite.ConnectionSurvives(t, 5*time.Second, suite.Undisturbed, func() {
				suite.Kubectl(t, append([]string{"--context", object[0], "delete", "--wait=false"}, object[1:]...)...)
			})
			suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
				got, err := suite.JSONPath(ctx, "c2", "{.status.networks.podCIDRs[0]}", "peering", "sealane")
				if err == nil && !strings.HasPrefix(got, "10.9.") {
					err = fmt.Errorf("c2's Peering reports %q", got)
				}
				return err
			})
			suite.AnsweredBy(t, "c1", "client-c1-worker", suite.Whereami, "c2")
		})
	}
}
