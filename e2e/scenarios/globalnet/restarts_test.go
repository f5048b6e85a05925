// SPDX-License-Identifier: Apache-2.0

package globalnet

import (
	"fmt"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestRestartsDisturbNoTranslation: every process of Sealane's is killed, or replaced, while a connection goes on from
// a pod of one twin to a service of the other. Only the pods of gateways' agents are not: a connection ends with the
// gateway that has translated it, so there the agent crashes, and its cables are held.
func TestRestartsDisturbNoTranslation(t *testing.T) {
	suite.Exported(t, "g2", "whereami-cs")
	service := submariner{namespace{suite.Namespace{T: t, Name: "sample"}}, "g1", "g2"}.globalIP("g2", "whereami-cs")
	suite.Connection{Cluster: "g1", Node: "g1-worker", To: service + ":80"}.Survives(t, 3*time.Second, 3*time.Second,
		func() {
			if err := suite.Lab().KillProcess(t.Context(), "sealane-controller"); err != nil {
				t.Error(err)
			}
			if err := suite.Lab().StartProcess("sealane-controller"); err != nil {
				t.Error(err)
			}
			twins := []string{"g1", "g2"}
			for _, c := range twins {
				suite.Kubectl(t, "--context", c, "-n", v1alpha1.Namespace, "rollout", "restart",
					"deployment/sealane-cluster-agent", "deployment/sealane-dns")
				suite.RestartNodeAgent(t, c, c+"-worker")
				for n := range 2 {
					suite.CrashAgent(t, fmt.Sprintf("%s-gw%d", c, n+1))
				}
			}
			for _, c := range twins {
				for _, workload := range []string{"deployment/sealane-cluster-agent", "deployment/sealane-dns",
					"daemonset/sealane-node"} {
					suite.Kubectl(t, "--context", c, "-n", v1alpha1.Namespace, "rollout", "status", workload, "--timeout=60s")
				}
			}
		})
	answered(t, "g1", "client-g1-worker", suite.Whereami, "g2", append(seenFrom(t, "g1", "", true), ofGateways))
}
