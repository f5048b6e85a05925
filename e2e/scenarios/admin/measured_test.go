// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestConnectionsOfAPullMember: with the kubeconfig of Karmada alone nobody asks c2, and what its connections are like
// is shown all the same, as is the traffic that there was.
func TestConnectionsOfAPullMember(t *testing.T) {
	kubeconfig := karmadaAlone(t)
	carry(t)
	// Rates and losses are those of a whole minute, in which another test may have shut ways. A rate of less than half of
	// the least step is reported as none.
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		const measured = `{range .status.connections[?(@.cluster=="c1")]}` +
			`{.traffic.sentBytesPerSecond} {.lossPercent}{end}`
		out, err := suite.JSONPath(ctx, "c2", measured, "gateway", "c2-gw", "-n", "sealane-system")
		if err != nil {
			return err
		}
		var rate, loss int
		if _, err := fmt.Sscanf(out, "%d %d", &rate, &loss); err != nil || rate < 10_000 || loss > 0 {
			return fmt.Errorf("expected at least 10000 bytes/s that the gateway sends, and no loss, found %q", out)
		}
		return nil
	})
	// That alone is reported within ten minutes; along with what else is new it is reported at once.
	threshold := suite.HealthCheck["failureThreshold"]
	suite.SetClusterSet(t, failureThreshold(threshold+1))
	suite.SetClusterSetAfter(t, failureThreshold(threshold))
	row := regexp.MustCompile(`(?m)^c2 .* c1 .* Connected .* ~[\d.]+m?s +~0% .* ~\S*B/s +~[1-9]\S*B/s`)
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, suite.PluginPath(), "show", "connections", "-o", "wide",
			"--kubeconfig="+kubeconfig, "--karmada-context="+lab.ContextKarmada).CombinedOutput()
		if err == nil && !row.Match(out) {
			err = fmt.Errorf("expected a row that matches %s", row)
		}
		if err != nil {
			err = fmt.Errorf("%w, found\n%s", err, out)
		}
		return err
	})
}

// carry has c2 send to c1 until the test ends.
func carry(t *testing.T) {
	t.Helper()
	body := "http://" + suite.PodIP(t, "c2", "server-c2-gw") + ":8080/body?bytes=1048576"
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			out, err := suite.InPod(ctx, "c1", suite.ClientOf("c1"), "http", "-quiet", "-timeout=60s", body)
			if err != nil && ctx.Err() == nil {
				t.Errorf("%v: %s", err, out)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// failureThreshold of the health checks is something that members answer anew.
func failureThreshold(value int) string {
	return fmt.Sprintf(`{"healthCheck":{"failureThreshold":%d}}`, value)
}

// karmadaAlone writes the lab's kubeconfig without the members' contexts.
func karmadaAlone(t *testing.T) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(suite.Lab().Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.Contexts = map[string]*clientcmdapi.Context{lab.ContextKarmada: config.Contexts[lab.ContextKarmada]}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
