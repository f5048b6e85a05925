// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/sealane"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestAnExportedServiceIsAnsweredByItsCluster is scenario 1 of the walkthrough.
func TestAnExportedServiceIsAnsweredByItsCluster(t *testing.T) {
	suite.Exported(t, "c2", "whereami-cs")
	suite.AnsweredBy(t, "c1", "client-c1-worker", suite.Whereami, "c2")
	suite.AnsweredBy(t, "c1", "client-c1-gw", suite.Whereami, "c2")
	suite.AnsweredBy(t, "c2", "client-c2-worker", suite.Whereami, "c2")
	a, err := suite.Ask(t.Context(), "c1", "client-c1-worker", "http://"+suite.Whereami)
	if err != nil {
		t.Fatal(err)
	}
	if want := suite.PodIP(t, "c1", "client-c1-worker"); a.Client != want {
		t.Errorf("the server saw %s, expected the client pod's own %s", a.Client, want)
	}
	t.Run("from the host network", func(t *testing.T) {
		ip, err := suite.JSONPath(t.Context(), "c1", "{.spec.ips[0]}", "serviceimport", "whereami-cs", "-n", "sample")
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range []string{"host-c1-worker", "host-c1-gw"} {
			if a, err := suite.Ask(t.Context(), "c1", pod, "http://"+ip); err != nil || a.Cluster != "c2" {
				t.Errorf("%s to ClusterSetIP %s: %+v, %v", pod, ip, a, err)
			}
		}
	})
}

// TestTheLocalClusterAnswersFirst is scenario 2 of the walkthrough.
func TestTheLocalClusterAnswersFirst(t *testing.T) {
	suite.Exported(t, "c2", "whereami-cs")
	suite.AnsweredBy(t, "c1", "client-c1-worker", suite.Whereami, "c2")
	suite.Exported(t, "c1", "whereami-cs")
	suite.AnsweredBy(t, "c1", "client-c1-worker", suite.Whereami, "c1")
	suite.AnsweredBy(t, "c1", "client-c1-worker", "c2."+suite.Whereami, "c2")

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
		defer cancel()
		const deployment = "deployment/whereami-cs"
		for _, args := range [][]string{{"scale", deployment, "--replicas=1"}, {"rollout", "status", deployment}} {
			if _, err := suite.TryKubectl(ctx, append([]string{"--context", "c1", "-n", "sample"}, args...)...); err != nil {
				t.Error(err)
			}
		}
	})
	scale(t, "c1", 0)
	suite.AnsweredBy(t, "c1", "client-c1-worker", suite.Whereami, "c2")
	scale(t, "c1", 1)
	suite.AnsweredBy(t, "c1", "client-c1-worker", suite.Whereami, "c1")
}

// scale changes the number of whereami-cs's pods in a cluster.
func scale(t *testing.T, cluster string, replicas int) {
	t.Helper()
	suite.Kubectl(t, "--context", cluster, "-n", "sample", "scale", "deployment/whereami-cs",
		fmt.Sprintf("--replicas=%d", replicas))
}

// TestAnUnexportedNameIsGone: promptly, with the import and everything made for it.
func TestAnUnexportedNameIsGone(t *testing.T) {
	suite.Plugin(t, "export", "whereami-cs", "-n", "sample", "--context", "c2")
	suite.AnsweredBy(t, "c1", "client-c1-worker", suite.Whereami, "c2")
	suite.Plugin(t, "unexport", "whereami-cs", "-n", "sample", "--context", "c2")
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		out, err := suite.InPod(ctx, "c1", "client-c1-worker", "dns", suite.Whereami, "A")
		if err == nil && !strings.HasPrefix(out, "NXDOMAIN") {
			err = fmt.Errorf("expected NXDOMAIN, found %s", out)
		}
		return err
	})
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		out, err := suite.TryKubectl(ctx, "--context", "c1", "-n", "sample", "get", "serviceimports", "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("imports left: %s", out)
		}
		return err
	})
}

// TestAServiceSpreadByKarmadaAlone is scenario 7: Deployment, Service, ServiceExport and one PropagationPolicy on
// the Karmada API, to the push member and to the pull member.
func TestAServiceSpreadByKarmadaAlone(t *testing.T) {
	for _, way := range []struct{ server, client string }{{"c1", "c2"}, {"c2", "c1"}} {
		t.Run("served by "+way.server, func(t *testing.T) {
			spread := strings.ReplaceAll(spreadManifests, "MEMBER", way.server)
			if err := sealane.Apply(t.Context(), suite.Lab(), "karmada", []byte(spread)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				for _, object := range []string{"propagationpolicy", "serviceexport.multicluster.x-k8s.io", "service",
					"deployment"} {
					if _, err := suite.TryKubectl(ctx, "--context", "karmada", "-n", "sample", "delete", object, "spread-"+
						way.server); err != nil {
						t.Error(err)
					}
				}
			})
			suite.AnsweredBy(t, way.client, "client-"+way.client+"-worker", "spread-"+way.server+".sample.svc.clusterset.local",
				way.server)
		})
	}
}

const spreadManifests = `
apiVersion: v1
kind: Namespace
metadata: {name: sample}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: spread-MEMBER, namespace: sample}
spec:
  selector: {matchLabels: {app: spread-MEMBER}}
  template:
    metadata: {labels: {app: spread-MEMBER}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: whereami
        image: localhost/sealane/whereami:dev
        imagePullPolicy: Never
        env: [{name: CLUSTER_NAME, value: MEMBER}]
---
apiVersion: v1
kind: Service
metadata: {name: spread-MEMBER, namespace: sample}
spec:
  selector: {app: spread-MEMBER}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceExport
metadata: {name: spread-MEMBER, namespace: sample}
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: spread-MEMBER, namespace: sample}
spec:
  resourceSelectors:
  - {apiVersion: apps/v1, kind: Deployment, name: spread-MEMBER}
  - {apiVersion: v1, kind: Service, name: spread-MEMBER}
  - {apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ServiceExport, name: spread-MEMBER}
  placement: {clusterAffinity: {clusterNames: [MEMBER]}}
`

// TestExportsSayWhatIsWrong: a ServiceExport without a Service, and one for an ExternalName Service.
func TestExportsSayWhatIsWrong(t *testing.T) {
	const manifests = `
apiVersion: v1
kind: Service
metadata: {name: outside, namespace: sample}
spec: {type: ExternalName, externalName: example.org}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: outside, namespace: sample}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: absent, namespace: sample}
`
	if err := sealane.Apply(t.Context(), suite.Lab(), "c2", []byte(manifests)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := suite.TryKubectl(ctx, "--context", "c2", "-n", "sample", "delete", "serviceexport/outside",
			"serviceexport/absent", "service/outside"); err != nil {
			t.Error(err)
		}
	})
	for name, reason := range map[string]string{"outside": "InvalidServiceType", "absent": "NoService"} {
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			got, err := suite.JSONPath(ctx, "c2", `{.status.conditions[?(@.type=="Valid")].reason}`, "serviceexport", name,
				"-n", "sample")
			if err == nil && got != reason {
				err = fmt.Errorf("ServiceExport %s: Valid is %q, expected %q", name, got, reason)
			}
			return err
		})
	}
}
