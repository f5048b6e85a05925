// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/suite"
)

// verifyBudget is how long verify may take for two clusters, on a machine of two processors that runs them and Karmada.
const verifyBudget = 3 * time.Minute

// way is what the tests read of a check of verify.
type way struct {
	From, To struct{ Cluster, Kind, Role string }
	Target   string
	Protocol string
	Large    bool
	Verdict  string
	Reason   string
}

func (w way) String() string {
	return fmt.Sprintf("%v → %v %s %s large=%v: %s %s", w.From, w.To, w.Target, w.Protocol, w.Large, w.Verdict, w.Reason)
}

// verified runs verify, expects that many checks, and that nothing is left of it.
func verified(t *testing.T, checks int, args ...string) (ways []way, took time.Duration, failed bool) {
	t.Helper()
	began := time.Now()
	args = append([]string{"verify", "-o", "json", "--kubeconfig=" + suite.Lab().Kubeconfig(),
		"--karmada-context=" + lab.ContextKarmada}, args...)
	command := exec.CommandContext(t.Context(), suite.PluginPath(), args...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	took = time.Since(began)
	var document struct{ Verify []way }
	if broken := json.Unmarshal(out, &document); broken != nil {
		t.Fatalf("%v: %v; it printed %q", err, broken, out)
	}
	if code := command.ProcessState.ExitCode(); code != 0 && code != 1 {
		t.Errorf("exit code %d", code)
	}
	if len(document.Verify) != checks {
		t.Errorf("%d checks, expected %d", len(document.Verify), checks)
	}
	nothingLeft(t)
	return document.Verify, took, err != nil
}

// nothingLeft of verify and bench is in any member, but for a namespace that is expected.
func nothingLeft(t *testing.T, but ...string) {
	t.Helper()
	for _, c := range suite.Members() {
		for _, name := range strings.Fields(suite.Kubectl(t, "--context", c, "get", "namespaces", "-o", "name")) {
			name = strings.TrimPrefix(name, "namespace/")
			if strings.HasPrefix(name, "sealane-verify") && !slices.Contains(but, name) {
				t.Errorf("%s: left over: %s", c, name)
			}
		}
	}
}

// stopped runs verify until it has made a pod, and stops it then. It returns its namespace.
func stopped(t *testing.T, signal syscall.Signal) (namespace string) {
	t.Helper()
	const pods = `{range .items[*]}{.metadata.namespace}{"\n"}{end}`
	made := func(ctx context.Context) ([]string, error) {
		out, err := suite.TryKubectl(ctx, "--context", "c1", "get", "pods", "-A", "-l", "sealane.io/verify=true",
			"-o", "jsonpath="+pods)
		return strings.Fields(out), err
	}
	before, err := made(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), suite.PluginPath(), "verify", "-C", "c1,c2",
		"--kubeconfig="+suite.Lab().Kubeconfig(), "--karmada-context="+lab.ContextKarmada)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		now, err := made(ctx)
		now = slices.DeleteFunc(now, func(n string) bool { return slices.Contains(before, n) })
		if err == nil && len(now) == 0 {
			err = errors.New("no pod yet")
		}
		if err == nil {
			namespace = now[0]
		}
		return err
	})
	if err := command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	return namespace
}

// TestVerifyProvesAHealthyLab: all ways between two members with a gateway and a worker each, in time. A run that a
// person stops before leaves nothing. What one leaves that is killed, no other removes while it may run still, and the
// next one does after that.
func TestVerifyProvesAHealthyLab(t *testing.T) {
	suite.Long(t)
	killed := stopped(t, syscall.SIGKILL)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, cluster := range []string{"c1", "c2"} {
			if _, err := suite.TryKubectl(ctx, "--context", cluster, "delete", "namespace", killed, "--ignore-not-found",
				"--wait=false"); err != nil {
				t.Error(err)
			}
		}
	})
	if interrupted := stopped(t, syscall.SIGINT); interrupted == killed {
		t.Errorf("two runs are in one namespace: %s", killed)
	}
	nothingLeft(t, killed)
	suite.Kubectl(t, "--context", "c1", "get", "namespace", killed)
	// The namespace says until when the run may last; the test does not wait so long.
	for _, cluster := range []string{"c1", "c2"} {
		if _, err := suite.TryKubectl(t.Context(), "--context", cluster, "annotate", "namespace", killed,
			"--overwrite", "sealane.io/verify-until=2000-01-01T00:00:00Z"); err != nil {
			t.Log(err) // it was killed before it had made this one
		}
	}
	report := filepath.Join(t.TempDir(), "verify.xml")
	ways, took, failed := verified(t, 320, "-C", "c1,c2", "--junit", report)
	t.Logf("took %s", took)
	for _, w := range ways {
		if w.Verdict != "ok" {
			t.Error(w)
		}
	}
	if failed || took > verifyBudget {
		t.Errorf("exit code is 0: %v; it took %s, expected at most %s", !failed, took, verifyBudget)
	}
	if xml, err := os.ReadFile(report); err != nil || !strings.Contains(string(xml), `tests="320" failures="0"`) {
		t.Errorf("report: %v\n%.300s", err, xml)
	}
}

// TestVerifyFindsWhatIsBroken: exactly the ways that are cut fail, of datagrams to one node and of a tunnel.
func TestVerifyFindsWhatIsBroken(t *testing.T) {
	suite.Long(t)
	const table = "e2e_verify"
	rules := "table inet " + table + " { chain c { type filter hook forward priority -400; udp dport 8460 drop; }; }"
	if _, err := suite.Lab().InNode(t.Context(), "c2-worker", "nft", rules); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := suite.Lab().InNode(ctx, "c2-worker", "nft", "delete", "table", "inet", table); err != nil {
			t.Error(err)
		}
	})
	suite.Isolate(t, "c3-gw")
	// c3 has one node: 2 clients and 1 server; c1 and c2 have 4 and 2.
	ways, took, failed := verified(t, 320+2*20*(4+2*2))
	t.Logf("took %s", took)
	if !failed {
		t.Error("the exit code is 0")
	}
	for _, w := range ways {
		// What c2's worker forwards: to its server, and from its client pod. Its host sends for itself.
		toIt := w.To.Cluster == "c2" && w.To.Role == "worker"
		fromIt := w.From.Cluster == "c2" && w.From.Role == "worker" && w.From.Kind == "pod"
		broken := w.Protocol == "udp" && (toIt || fromIt) || w.From.Cluster == "c3" || w.To.Cluster == "c3"
		if want := map[bool]string{true: "fail", false: "ok"}[broken]; w.Verdict != want {
			t.Errorf("expected %s: %s", want, w)
		}
	}
	suite.Reconnect(t, "c3-gw")
	for _, remote := range []string{"c1", "c2"} {
		suite.WaitConnection(t, "c3", remote,
			func(s v1alpha1.ConnectionStatus) bool { return s == v1alpha1.ConnectionConnected })
	}
}
