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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane"
	"github.com/sealane-io/sealane/internal/apiserver"
	"github.com/sealane-io/sealane/internal/securemetrics/metricstest"
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
	grant(t, c, "artifacts/controller/karmada.yaml")
	host := newHost(t)
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
	metrics, probes, profiles := freeAddress(t), freeAddress(t), freeAddress(t)
	cmd := command(func() (*rest.Config, error) { return account(host), nil })
	cmd.SetArgs([]string{"--kubeconfig=" + kubeconfig, "--karmada-context=karmada", "--metrics-bind-address=" + metrics,
		"--health-probe-bind-address=" + probes, "--pprof-bind-address=" + profiles})
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
	metricstest.Check(t, host, metrics, "sealane-controller-metrics-reader",
		`controller_runtime_max_concurrent_reconciles{controller="fabric"}`)
	if got := get(t, "http://"+profiles+"/debug/pprof/heap?debug=1"); !strings.HasPrefix(got, "heap profile: ") {
		t.Errorf("the profile of its memory is %.100q", got)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("it ends with %v", err)
	}
}

func TestRunNamesAKubeconfigThatIsNotThere(t *testing.T) {
	cmd := command(rest.InClusterConfig)
	cmd.SetArgs([]string{"--kubeconfig=" + filepath.Join(t.TempDir(), "none")})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "kubeconfig of the Karmada API") {
		t.Errorf("error %v", err)
	}
}

// TestProfilesAreOnLoopback or nowhere.
func TestProfilesAreOnLoopback(t *testing.T) {
	for address, served := range map[string]bool{
		"0": true, "127.0.0.1:6060": true, "[::1]:6060": true, "localhost:6060": true, ":6060": false,
		"0.0.0.0:6060": false, "192.0.2.1:6060": false, "": false, "6060": false,
	} {
		o := options{profilesAddress: address}
		got, err := o.profiles()
		if served && (err != nil || got != address) {
			t.Errorf("%q: served on %q, %v", address, got, err)
		}
		if !served && (err == nil || !strings.Contains(err.Error(), "expected a loopback address")) {
			t.Errorf("%q: error %v", address, err)
		}
	}
}

// newHost starts the API server of the cluster that the program runs in, with what is installed there.
func newHost(t *testing.T) *rest.Config {
	t.Helper()
	config := apiserver.Start(t)
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	grant(t, c, "artifacts/controller/host.yaml")
	return config
}

// account reaches the host with the rights of the program.
func account(host *rest.Config) *rest.Config {
	config := rest.CopyConfig(host)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:sealane-controller:sealane-controller",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	return config
}

// TestMetricsOutsideOfAClusterAreOnLoopback, where nobody reviews who reads them.
func TestMetricsOutsideOfAClusterAreOnLoopback(t *testing.T) {
	outside := options{host: func() (*rest.Config, error) { return nil, rest.ErrNotInCluster }}
	for _, c := range []struct{ given, served string }{
		{"", "127.0.0.1:8443"}, {"0", "0"}, {"[::1]:9000", "[::1]:9000"}, {"localhost:9000", "localhost:9000"},
		{":8443", ""}, {"0.0.0.0:8443", ""}, {"192.0.2.1:8443", ""}, {"nonsense", ""},
	} {
		outside.metricsAddress = c.given
		got, err := outside.metrics()
		refused := err != nil && strings.Contains(err.Error(), "expected a loopback address")
		if refused != (c.served == "") {
			t.Errorf("%q: error %v", c.given, err)
		}
		if got.BindAddress != c.served || got.FilterProvider != nil {
			t.Errorf("%q: served on %q, reviewed %v", c.given, got.BindAddress, got.FilterProvider != nil)
		}
	}
	inside := options{host: func() (*rest.Config, error) { return &rest.Config{}, nil }}
	if got, err := inside.metrics(); err != nil || got.BindAddress != ":8443" || got.FilterProvider == nil {
		t.Errorf("in a cluster: on %q, reviewed %v, %v", got.BindAddress, got.FilterProvider != nil, err)
	}
	broken := options{host: func() (*rest.Config, error) { return nil, errors.New("no token") }}
	if _, err := broken.metrics(); err == nil || !strings.Contains(err.Error(), "no token") {
		t.Errorf("without the token of its pod: %v", err)
	}
}

// grant creates what the program is installed with.
func grant(t *testing.T, c client.Client, manifests string) {
	t.Helper()
	data, err := sealane.Artifacts.ReadFile(manifests)
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
