// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/sealane"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestAnUnknownCableDriverIsRefused by the API, with the drivers that there are.
func TestAnUnknownCableDriverIsRefused(t *testing.T) {
	out, err := suite.TryKubectl(t.Context(), "--context", "karmada", "patch", "clusterset", "default", "--type=merge",
		"-p", `{"spec":{"cable":{"driver":"pigeon"}}}`)
	if err == nil {
		t.Fatalf("accepted: %s", out)
	}
	suite.Contains(t, err.Error(), `spec.cable.driver`, `Unsupported value: "pigeon"`, `supported values`, `"wireguard"`)
}

// TestOfTwoClusterSetsTheOlderKeepsItsClusters.
func TestOfTwoClusterSetsTheOlderKeepsItsClusters(t *testing.T) {
	const second = `
apiVersion: sealane.io/v1alpha1
kind: ClusterSet
metadata: {name: second}
spec: {clusterAffinity: {clusterNames: [c1, nowhere]}}
`
	before, err := suite.RemoteClusters(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	suite.ConnectionSurvives(t, 3*time.Second, suite.Undisturbed, func() {
		if err := sealane.Apply(t.Context(), suite.Lab(), "karmada", []byte(second)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := suite.TryKubectl(context.Background(), "--context", "karmada", "delete", "clusterset", "second",
				"--timeout=30s"); err != nil {
				t.Error(err)
			}
		})
		suite.WaitContains(t, "karmada", suite.ConditionText("Ready"), []string{"clusterset", "second"},
			"False/", "cluster c1 belongs to the older ClusterSet default", "nowhere is named and Karmada has no such cluster")
		suite.Contains(t, suite.Kubectl(t, "--context", "karmada", "get", "clusterset", "second", "-o", "wide"),
			"older ClusterSet default")
	})
	suite.WaitContains(t, "karmada", suite.ConditionText("Ready"), []string{"clusterset", "default"}, "True/Ready")
	if after, err := suite.RemoteClusters(t.Context(), "c1"); err != nil || after != before {
		t.Errorf("c1 was told %s, is told %s: %v", before, after, err)
	}
}
