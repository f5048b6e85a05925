// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/browser"
	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestTheMapFollowsACut: a gateway that a firewall cuts off is seen on the map within seconds of show saying so, and so
// is its return; Ctrl-C ends the command.
func TestTheMapFollowsACut(t *testing.T) {
	address, interrupt := startUI(t)
	p := browser.Open(t, address, browser.View{Width: 1200, Height: 900})
	p.Shows(t, suite.Patience, "#summary", "3 clusters, 3 of 3 pairs connected")
	const down = `document.querySelectorAll("#graph button.edge.down").length === `
	p.Within(t, suite.Patience, down+"0")
	suite.Isolate(t, "c3-gw")
	shown(t, "Error")
	since := time.Now()
	p.Within(t, suite.Patience, `document.querySelectorAll("#graph button.edge.down").length > 0`)
	t.Logf("the map has it %s after show connections", time.Since(since))
	p.Within(t, suite.Patience, down+"2")
	p.Shows(t, suite.Patience, "#problems-body", "an answer to probes from")
	suite.Reconnect(t, "c3-gw")
	p.Within(t, suite.Patience, down+"0")
	p.Shows(t, suite.Patience, "#summary", "3 of 3 pairs connected")
	if messages := p.Console(); len(messages) > 0 {
		t.Errorf("the console has %q", messages)
	}
	interrupt()
	p.Shows(t, suite.Patience, "#live", "the command has ended")
}

// shown waits until show connections says that a tunnel between c1 and c3 has a status.
func shown(t *testing.T, status string) {
	t.Helper()
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		out, err := suite.TryPlugin(ctx, "show", "connections", "-C", "c1")
		for line := range strings.Lines(out) {
			if fields := strings.Fields(line); len(fields) > 6 && fields[2] == "c3" && fields[6] == status {
				return nil
			}
		}
		if err == nil {
			err = fmt.Errorf("expected the tunnel to c3 to be %s in\n%s", status, out)
		}
		return err
	})
}

// startUI starts the command, and returns the address that it prints and what interrupts it, as Ctrl-C does.
func startUI(t *testing.T) (string, func()) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), suite.PluginPath(), "ui",
		"--kubeconfig="+suite.Lab().Kubeconfig(), "--karmada-context="+lab.ContextKarmada, "--timeout=15m")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	interrupt := func() {
		if ended {
			return
		}
		ended = true
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			t.Errorf("after Ctrl-C: %v: %s", err, complaints.String())
		}
	}
	t.Cleanup(interrupt)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?token=\S+`).FindString(lines.Text()); address != "" {
			return address, interrupt
		}
	}
	interrupt()
	t.Fatalf("it prints no address: %s", complaints.String())
	panic("unreachable")
}
