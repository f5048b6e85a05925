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

// template of the node agents' pods on the Karmada API, which Karmada brings to all members at once.
func template(t *testing.T, patch string) {
	t.Helper()
	suite.Kubectl(t, "--context", "karmada", "-n", "sealane-system", "patch", "daemonset", "sealane-node",
		"--type=strategic",
		"-p", `{"spec":{"template":`+patch+`}}`)
}

// inAllMembers waits for each member's own DaemonSet to be so.
func inAllMembers(t *testing.T, path, want string) {
	t.Helper()
	for _, c := range suite.Lab().Topology.Clusters {
		suite.WaitContains(t, c.Name, path, []string{"daemonset", "sealane-node", "-n", "sealane-system"}, want)
	}
}

// rolledOut waits until every node has the agent that is asked for, and no other, and until all have been ready for as
// long as Kubernetes wants: an agent that has not, it replaces without waiting for the next.
func rolledOut(t *testing.T) {
	t.Helper()
	for _, c := range suite.Lab().Topology.Clusters {
		suite.Kubectl(t, "--context", c.Name, "-n", "sealane-system", "rollout", "status", "daemonset/sealane-node",
			"--timeout=240s")
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			pods, err := suite.TryKubectl(ctx, "--context", c.Name, "-n", "sealane-system", "get", "pods", "-o", "name",
				"-l", "app.kubernetes.io/name=sealane-node")
			if n := len(strings.Fields(pods)); err == nil && n != len(c.Nodes) {
				err = fmt.Errorf("%s: expected one agent for each of %d nodes, found %s", c.Name, len(c.Nodes), pods)
			}
			return err
		})
	}
}

// TestAnAgentThatDoesNotStartChangesNothing: a mistyped image once cut off every cluster at the same time.
func TestAnAgentThatDoesNotStartChangesNothing(t *testing.T) {
	const image = "{.spec.template.spec.containers[0].image}"
	before, err := suite.JSONPath(t.Context(), "karmada", image, "daemonset", "sealane-node", "-n", "sealane-system")
	if err != nil {
		t.Fatal(err)
	}
	use := func(name string) {
		template(t, fmt.Sprintf(`{"spec":{"containers":[{"name":"node","image":%q}]}}`, name))
		inAllMembers(t, image, name)
	}
	rolledOut(t)
	defer rolledOut(t)
	const typo = "localhost/sealane/tyop:dev"
	suite.ConnectionSurvives(t, 3*time.Second, suite.Undisturbed, func() {
		defer use(before)
		use(typo)
		for _, c := range suite.Lab().Topology.Clusters {
			suite.WaitContains(t, c.Name, suite.ConditionText("AgentsRunning"), []string{"peering", "sealane"},
				"False/AgentsFailing", typo, "goes on")
			suite.WaitContains(t, "karmada", suite.ConditionText("AgentsRunning"), []string{"member", c.Name},
				"False/AgentsFailing", typo)
		}
		suite.WaitContains(t, "karmada", suite.ConditionText("Connected"), []string{"clusterset", "default"}, "True/")
		suite.WaitContains(t, "karmada", "{.status.problems}", []string{"clusterset", "default"}, "AgentsFailing", typo,
			"RollOutStopped", "stopped at c1")
	})
	for _, c := range suite.Lab().Topology.Clusters {
		suite.WaitContains(t, "karmada", suite.ConditionText("AgentsRunning"), []string{"member", c.Name}, "True/Running")
	}
}

// TestARollOut replaces every agent of every cluster, also those of the only gateways, one cluster after the other. The
// first version that comes fails where it takes a gateway over: only the canary has it. The next one repairs that, and
// then goes to the other clusters.
func TestARollOut(t *testing.T) {
	suite.Long(t)
	rolledOut(t)
	use := func(mark, readOnly string) {
		template(t, fmt.Sprintf(`{"metadata":{"annotations":{"rolled":%q}},"spec":{"containers":[{"name":"node",
			"volumeMounts":[{"name":"sysctl","mountPath":"/host/proc/sys/net","readOnly":%s}]}]}}`, mark, readOnly))
		inAllMembers(t, "{.spec.template.metadata.annotations.rolled}", mark)
	}
	// The mark stays: taking it back would be another roll-out, which shows no more than this one.
	mark := fmt.Sprintf("%d", time.Now().UnixNano())
	repaired := false
	defer func() {
		if !repaired {
			use(mark, "null")
		}
	}()
	use("broken", "true")
	suite.WaitContains(t, "karmada", "{.status.problems}", []string{"clusterset", "default"}, "RollOutStopped",
		"stopped at c1", "read-only file system")
	suite.Contains(t, suite.Plugin(t, "show", "rollout"), "Stopped", "Waiting")
	for _, other := range suite.Lab().Topology.Clusters[1:] {
		suite.WaitContains(t, "karmada", "{.status.rollOut.state} {.status.rollOut.report.updated}",
			[]string{"member", other.Name}, "Waiting 0")
	}
	use(mark, "null")
	repaired = true
	suite.WaitContains(t, "karmada", "{.status.rollOut.state}", []string{"member", "c1"}, "Done")
	suite.ConnectionSurvives(t, 3*time.Second, 3*time.Second, func() { rolledOut(t) })
	suite.WaitContains(t, "karmada", suite.ConditionText("RolledOut"), []string{"clusterset", "default"}, "True/RolledOut")
}

// TestAnAgentThatCrashesKeepsItsCable: again and again, on the only gateway of its cluster.
func TestAnAgentThatCrashesKeepsItsCable(t *testing.T) {
	suite.ConnectionSurvives(t, 3*time.Second, suite.Undisturbed, func() {
		for range 4 {
			suite.CrashAgent(t, "c1-gw")
			time.Sleep(3 * time.Second)
		}
	})
	suite.WaitContains(t, "karmada", suite.ConditionText("Connected"), []string{"clusterset", "default"}, "True/")
}
