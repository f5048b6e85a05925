// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// visitor is a cluster that joins Karmada for the length of a test: an API server without nodes, whose admin
// reports to Sealane whatever they like.
type visitor struct {
	name, kubeconfig string
	config           *rest.Config
	client           client.Client
}

// good is what an honest agent would report of the visitor.
func good() v1alpha1.PeeringStatus {
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

func newVisitor(t *testing.T) *visitor {
	t.Helper()
	config := apiserver.Start(t)
	v := &visitor{name: "visitor", kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), config: config}
	scheme := runtime.NewScheme()
	err := v1alpha1.AddToScheme(scheme)
	if err != nil {
		t.Fatal(err)
	}
	if v.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{v.name: {Server: config.Host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{v.name: {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{v.name: {Cluster: v.name, AuthInfo: v.name}},
		CurrentContext: v.name,
	}, v.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// join makes the visitor a cluster of Karmada, where the ClusterSet selects it, as it selects every cluster,
// and lets it report for the first time.
func (v *visitor) join(t *testing.T, first v1alpha1.PeeringStatus) {
	t.Helper()
	id := v.kubectl(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
	manifests := fmt.Sprintf(visitorManifests, v.config.BearerToken, id, v.config.Host)
	t.Cleanup(func() { v.leave(t) })
	if err := sealane.Apply(t.Context(), shared.Lab, "karmada", []byte(manifests)); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func(ctx context.Context) error {
		return v.report(ctx, first)
	})
}

// leave takes the visitor out of Karmada; the others are as before then.
func (v *visitor) leave(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := try(ctx, "--context", "karmada", "delete", "cluster/"+v.name, "--ignore-not-found", "--timeout=50s")
	_, errSecret := try(ctx, "--context", "karmada", "-n", "karmada-cluster", "delete", "secret/"+v.name, "--ignore-not-found")
	_, errMember := try(ctx, "--context", "karmada", "wait", "--for=delete", "member/"+v.name, "--timeout=20s")
	_, errReady := try(ctx, "--context", "karmada", "wait", "--for=condition=Ready", "clusterset/default", "--timeout=20s")
	_, errConnected := try(ctx, "--context", "karmada", "wait", "--for=condition=Connected", "clusterset/default", "--timeout=20s")
	if err := errors.Join(err, errSecret, errMember, errReady, errConnected); err != nil {
		t.Errorf("take %s out of Karmada: %v", v.name, err)
	}
}

func (v *visitor) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	// Of two kubeconfigs, the last counts.
	out, err := try(t.Context(), append([]string{"--kubeconfig=" + v.kubeconfig}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// report writes the status of the visitor's Peering.
func (v *visitor) report(ctx context.Context, status v1alpha1.PeeringStatus) error {
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

// accepted is the visitor's standing as a table shows it.
func (v *visitor) accepted(ctx context.Context) (reason, message string, err error) {
	out, err := jsonpath(ctx, "karmada", `{.status.conditions[?(@.type=="Accepted")].reason}|{.status.conditions[?(@.type=="Accepted")].message}`, "member", v.name)
	reason, message, _ = strings.Cut(out, "|")
	return reason, message, err
}

// told is what the agents of a cluster are told of the others.
func told(ctx context.Context, cluster string) (string, error) {
	return jsonpath(ctx, cluster, "{.spec.remoteClusters}", "peering", "sealane")
}
