// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestUninstallLeavesNothing: no object, link, route, rule or table of Sealane stays.
func TestUninstallLeavesNothing(t *testing.T) {
	suite.RestoreAfter(t)
	suite.Plugin(t, "uninstall")
	for _, c := range suite.Lab().Topology.Clusters {
		suite.NodesClean(t, c.Name)
	}
	for _, cluster := range suite.Lab().Contexts() {
		for _, list := range [][]string{
			{"get", "crds", "-o", "name"},
			{"get", "namespaces", "-o", "name"},
			{"get", "clusterroles,clusterrolebindings", "-o", "name"},
		} {
			// A namespace takes its pods' grace period to go.
			suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
				out, err := suite.TryKubectl(ctx, append([]string{"--context", cluster}, list...)...)
				for line := range strings.SplitSeq(out, "\n") {
					if strings.Contains(line, "sealane") {
						err = errors.Join(err, fmt.Errorf("%s: left over: %s", cluster, line))
					}
				}
				return err
			})
		}
		out := suite.Kubectl(t, "--context", cluster, "get", "services", "-A",
			"-l", "app.kubernetes.io/managed-by=sealane.io", "-o", "name")
		if out != "" {
			t.Errorf("%s: Services left over: %s", cluster, out)
		}
	}
	for _, c := range suite.Lab().Topology.Clusters {
		corefile := suite.Kubectl(t, "--context", c.Name, "-n", "kube-system", "get", "configmap", "coredns", "-o", "yaml")
		if strings.Contains(corefile, "sealane") {
			t.Errorf("%s: the Corefile still mentions Sealane:\n%s", c.Name, corefile)
		}
	}
}

// TestTheControllerRunsAsADeployment in c1, which stands for the cluster that hosts Karmada. The controller has no
// more rights on the Karmada API than its identity was given.
func TestTheControllerRunsAsADeployment(t *testing.T) {
	suite.Long(t)
	suite.RestoreAfter(t, []string{"uninstall", "--host-context=c1"})
	if err := suite.Lab().StopProcess(t.Context(), "sealane-controller"); err != nil {
		t.Fatal(err)
	}
	suite.Plugin(t, "install", "--host-context=c1", "--controller-image="+lab.ImageController,
		"--agent-image="+lab.ImageAgent, "--dns-image="+lab.ImageDNS)
	suite.Exported(t, "c2", "whereami-cs")
	suite.AnsweredBy(t, "c1", "client-c1-worker", suite.Whereami, "c2")
	if out := suite.Plugin(t, "show", "versions", "--host-context=c1"); !strings.Contains(out, "controller") {
		t.Errorf("expected the controller's version in\n%s", out)
	}
	for _, denied := range [][]string{{"get", "secrets", "-A"}, {"create", "clusterrolebindings"}, {"get", "pods", "-A"}} {
		out, err := suite.TryKubectl(t.Context(), append([]string{"--context", "karmada", "auth", "can-i",
			"--as=system:serviceaccount:sealane-system:sealane-controller"}, denied...)...)
		if err == nil {
			t.Errorf("the controller may %v on the Karmada API: %s", denied, out)
		}
	}
}
