// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane"
	"github.com/sealane-io/sealane/internal/apiserver"
)

// TestRunLeadsAndSaysHowItIs runs the whole program with the rights that it is installed with.
func TestRunLeadsAndSaysHowItIs(t *testing.T) {
	var crds []string
	for _, find := range []func() (string, error){apiserver.CRDs, apiserver.KarmadaCRDs, apiserver.ClusterCRD} {
		path, err := find()
		if err != nil {
			t.Fatal(err)
		}
		crds = append(crds, path)
	}
	config := apiserver.Start(t, crds...)
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	grant(t, c)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"karmada": {Server: config.Host, InsecureSkipTLSVerify: true}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"controller": {Token: config.BearerToken,
			Impersonate: "system:serviceaccount:sealane-system:sealane-controller"}},
		Contexts:       map[string]*clientcmdapi.Context{"karmada": {Cluster: "karmada", AuthInfo: "controller"}},
		CurrentContext: "karmada",
	}, kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	metrics, probes := freeAddress(t), freeAddress(t)
	cmd := command()
	cmd.SetArgs([]string{"--kubeconfig=" + kubeconfig, "--karmada-context=karmada", "--metrics-bind-address=" + metrics,
		"--health-probe-bind-address=" + probes})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()

	eventually(t, "it is alive", func() bool { return strings.Contains(get(t, "http://"+probes+"/healthz"), "ok") })
	eventually(t, "it is ready", func() bool { return strings.Contains(get(t, "http://"+probes+"/readyz"), "ok") })
	var lease coordinationv1.Lease
	eventually(t, "it leads", func() bool {
		err := c.Get(t.Context(), client.ObjectKey{Namespace: "sealane-system", Name: "sealane-controller"}, &lease)
		return err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != ""
	})
	eventually(t, "its controllers run", func() bool {
		return strings.Contains(get(t, "http://"+metrics+"/metrics"),
			`controller_runtime_max_concurrent_reconciles{controller="fabric"}`)
	})
	stop()
	if err := <-done; err != nil {
		t.Errorf("it ends with %v", err)
	}
}

func TestRunNamesAKubeconfigThatIsNotThere(t *testing.T) {
	cmd := command()
	cmd.SetArgs([]string{"--kubeconfig=" + filepath.Join(t.TempDir(), "none")})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "kubeconfig of the Karmada API") {
		t.Errorf("error %v", err)
	}
}

// grant creates the identity that the program is installed with.
func grant(t *testing.T, c client.Client) {
	t.Helper()
	data, err := sealane.Artifacts.ReadFile("artifacts/controller/karmada.yaml")
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		o := new(unstructured.Unstructured)
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// get returns the body behind a URL, "" if there is none.
func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return fmt.Sprint(l.Addr())
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within 30 s: %s", what)
		case <-tick.C:
		}
	}
}
