// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"testing"

	"github.com/sealane-io/sealane/e2e/sealane"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestANamespaceThatTheImporterLacks is reported, and once it is there the service is.
func TestANamespaceThatTheImporterLacks(t *testing.T) {
	const manifests = `
apiVersion: v1
kind: Namespace
metadata: {name: elsewhere}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: elsewhere}
spec: {ports: [{port: 80}], selector: {app: none}}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: web, namespace: elsewhere}
`
	t.Cleanup(func() {
		for _, cluster := range []string{"c2", "c1"} {
			if _, err := suite.TryKubectl(context.Background(), "--context", cluster, "delete", "namespace", "elsewhere", "--ignore-not-found", "--timeout=60s"); err != nil {
				t.Error(err)
			}
		}
	})
	if err := sealane.Apply(t.Context(), suite.Lab(), "c2", []byte(manifests)); err != nil {
		t.Fatal(err)
	}
	peering := []string{"peering", "sealane"}
	suite.WaitContains(t, "c1", suite.ConditionText("ImportsApplied"), peering, "False/NamespaceMissing", "elsewhere", "create them")
	suite.Kubectl(t, "--context", "c1", "create", "namespace", "elsewhere")
	suite.WaitContains(t, "c1", "{.spec.type}", []string{"serviceimport", "web", "-n", "elsewhere"}, "ClusterSetIP")
	suite.WaitContains(t, "c1", suite.ConditionText("ImportsApplied"), peering, "True/Applied")
}
