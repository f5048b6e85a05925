// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sealane-io/sealane/internal/securemetrics/metricstest"
)

var inNamespace = flag.Bool("in-namespace", false, "set by a test for its own child")

// TestNodeAgentStartsWithoutTheAPIServer, and refuses to show its metrics to who has no token.
func TestNodeAgentStartsWithoutTheAPIServer(t *testing.T) {
	if !*inNamespace {
		inChild(t)
		return
	}
	const metrics = "127.0.0.1:9811"
	startNode(t, t.TempDir(), silent(t), metrics)
	if status, body := metricstest.Scrape(t, metrics, ""); status != http.StatusUnauthorized {
		t.Errorf("status %d: %s", status, body)
	}
}

// TestNodeAgentStartsWithoutThePortOfItsMetrics, and does all else.
func TestNodeAgentStartsWithoutThePortOfItsMetrics(t *testing.T) {
	if !*inNamespace {
		inChild(t)
		return
	}
	taken := silent(t)
	startNode(t, t.TempDir(), taken, taken)
}

// TestNodeAgentStartsWithAnUnusableKey, for it does not know yet whether it needs one.
func TestNodeAgentStartsWithAnUnusableKey(t *testing.T) {
	if !*inNamespace {
		inChild(t)
		return
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "wireguard.key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	startNode(t, dir, silent(t), "0")
}

// silent is the address of an API server that accepts connections and answers nothing.
func silent(t *testing.T) string {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "ip", "link", "set", "lo", "up").Run(); err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// startNode starts `sealane-agent node` with its state in a directory. It ends with the test, and startNode waits until
// it says that it is healthy. It needs root and namespaces of its own.
func startNode(t *testing.T, dir, apiServer, metrics string) {
	t.Helper()
	kubeconfig := prepare(t, dir, apiServer)
	c := newNodeCommand()
	c.SetArgs([]string{
		"--node-name=n1", "--kubeconfig=" + kubeconfig, "--state-dir=" + dir,
		"--metrics-bind-address=" + metrics, "--metrics-cert-dir=" + dir,
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	healthy(t)
}

// prepare gives a node agent a mount namespace and a kubeconfig, the path of which it returns.
func prepare(t *testing.T, dir, apiServer string) string {
	t.Helper()
	if err := errors.Join(
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""),
	); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: "https://" + apiServer}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"a": {Token: "t"}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "a"}},
		CurrentContext: "c",
	}, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// inChild runs the test again in network and mount namespaces of its own, which end with it.
func inChild(t *testing.T) {
	t.Helper()
	// The child ends with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-in-namespace")
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// healthy waits until the agent says that it is.
func healthy(t *testing.T) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:9812/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("not healthy within 30 s: %v", err)
		}
	}
}
