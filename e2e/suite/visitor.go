// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/sealane"
	"github.com/sealane-io/sealane/internal/apiserver"
)

// Visitor is a cluster that joins Karmada for the length of a test: an API server without nodes or agents. The test
// writes what its agent would report, true or not.
type Visitor struct {
	Name, kubeconfig string
	config           *rest.Config
	client           client.Client
}

// HonestReport is what an honest agent would report of the visitor.
func HonestReport() v1alpha1.PeeringStatus {
	return v1alpha1.PeeringStatus{
		Networks:     v1alpha1.Networks{PodCIDRs: []string{"10.40.0.0/16"}, ServiceCIDRs: []string{"10.140.0.0/16"}},
		NodeCIDRs:    []string{"192.0.2.11/32"},
		AgentVersion: "visitor",
	}
}

const visitorManifests = `
apiVersion: v1
kind: Secret
metadata: {name: visitor, namespace: karmada-cluster}
stringData: {token: %[1]q}
---
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: visitor}
spec:
  id: %[2]q
  syncMode: Push
  apiEndpoint: %[3]q
  insecureSkipTLSVerification: true
  secretRef: {namespace: karmada-cluster, name: visitor}
`

// NewVisitor starts the API server until the end of the test.
func NewVisitor(t *testing.T) *Visitor {
	t.Helper()
	config := apiserver.Start(t)
	v := &Visitor{Name: "visitor", kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), config: config}
	scheme := runtime.NewScheme()
	err := v1alpha1.AddToScheme(scheme)
	if err != nil {
		t.Fatal(err)
	}
	if v.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{v.Name: {Server: config.Host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{v.Name: {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{v.Name: {Cluster: v.Name, AuthInfo: v.Name}},
		CurrentContext: v.Name,
	}, v.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Join makes the visitor a cluster of Karmada, where the ClusterSet selects it, as it selects every cluster,
// and lets it report for the first time.
func (v *Visitor) Join(t *testing.T, first v1alpha1.PeeringStatus) {
	t.Helper()
	id := v.Kubectl(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
	manifests := fmt.Sprintf(visitorManifests, v.config.BearerToken, id, v.config.Host)
	t.Cleanup(func() { v.leave(t) })
	if err := sealane.Apply(t.Context(), Lab(), "karmada", []byte(manifests)); err != nil {
		t.Fatal(err)
	}
	Eventually(t, Patience, func(ctx context.Context) error {
		return v.Report(ctx, first)
	})
}

// leave takes the visitor out of Karmada and waits until the others are connected again.
func (v *Visitor) leave(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
	defer cancel()
	var errs []error
	for _, args := range [][]string{
		{"delete", "cluster/" + v.Name, "--ignore-not-found"},
		{"-n", "karmada-cluster", "delete", "secret/" + v.Name, "--ignore-not-found"},
		{"wait", "--for=delete", "member/" + v.Name},
		{"wait", "--for=condition=Ready", "clusterset/default"},
		{"wait", "--for=condition=Connected", "clusterset/default"},
	} {
		_, err := TryKubectl(ctx, append([]string{"--context", "karmada", "--timeout=60s"}, args...)...)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		t.Errorf("take %s out of Karmada: %v", v.Name, err)
	}
}

// Kubectl runs kubectl against the visitor's own API server and fails the test if it fails.
func (v *Visitor) Kubectl(t *testing.T, args ...string) string {
	t.Helper()
	// Of two kubeconfigs, the last counts.
	out, err := TryKubectl(t.Context(), append([]string{"--kubeconfig=" + v.kubeconfig}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Report writes the status of the visitor's Peering.
func (v *Visitor) Report(ctx context.Context, status v1alpha1.PeeringStatus) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var p v1alpha1.Peering
		if err := v.client.Get(ctx, client.ObjectKey{Name: "sealane"}, &p); err != nil {
			return err
		}
		p.Status = status
		p.Status.ObservedRevision = p.Spec.Revision
		return v.client.Status().Update(ctx, &p)
	})
}

// Accepted is the condition Accepted of the visitor's Member.
func (v *Visitor) Accepted(ctx context.Context) (reason, message string, err error) {
	out, err := JSONPath(ctx, "karmada", ConditionText("Accepted"), "member", v.Name)
	_, out, _ = strings.Cut(out, "/")
	reason, message, _ = strings.Cut(out, ": ")
	return reason, message, err
}

// RemoteClusters is the list of remote clusters in the Peering of a cluster, as JSON.
func RemoteClusters(ctx context.Context, cluster string) (string, error) {
	return JSONPath(ctx, cluster, "{.spec.remoteClusters}", "peering", "sealane")
}
