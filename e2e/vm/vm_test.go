// SPDX-License-Identifier: Apache-2.0

package vm_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/vm"
)

// timeout of one virtual machine: it takes a minute where nothing else runs.
const timeout = 8 * time.Minute

// root is the source tree, whose module is not this package's.
func root(t *testing.T) string {
	t.Helper()
	dir, err := lab.SourceRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// program runs go build or go test -c for a static program.
func program(t *testing.T, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "program")
	last := len(args) - 1
	args = append(args[:last:last], "-o", out, args[last])
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, text)
	}
	return out
}

// guest has what the tests of the data plane run.
func guest(t *testing.T) vm.Guest {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := vm.DebianKernel(t.Context(), filepath.Join(cache, "sealane", "kernel"))
	if err != nil {
		t.Fatal(err)
	}
	return vm.Guest{
		Kernel: kernel,
		Init:   program(t, "build", "./guest"),
		Programs: []string{"sh", "sleep", "grep", "sort", "nsenter", "ip", "nft", "iptables", "iptables-nft", "ip6tables-nft",
			"ping"},
	}
}

// The tests of the node agent, with the WireGuard of a kernel that has it.
func TestTheNodeAgentUsesTheKernelsWireGuard(t *testing.T) {
	g := guest(t)
	g.Files = map[string]string{"/node.test": program(t, "-C", root(t), "test", "-c", "./memberagent/node")}
	g.Command = []string{"/node.test", "-test.v", "-test.run=TestTwoClusters", "-implementation=Kernel", "-slow=10"}
	boot(t, g)
}

// boot fails the test unless the guest's command succeeds.
func boot(t *testing.T, g vm.Guest) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	code, err := g.Run(ctx, t.TempDir(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if code != 0 {
		t.Errorf("the tests in the virtual machine ended with exit code %d; their output is above", code)
	}
}
