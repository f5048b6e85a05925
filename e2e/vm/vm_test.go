// SPDX-License-Identifier: Apache-2.0

package vm_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/debian"
	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/vm"
)

// timeout of one virtual machine: it takes a minute where nothing else runs.
const timeout = 15 * time.Minute

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

var backports = flag.Bool("backports", false, "boot the kernel of Debian's backports, too")

// kernels are those of Debian's that tests boot, by the archive that has them: the one of this machine's release, and
// its backports, which is about that of the next release.
var kernels = map[string]func(ctx context.Context, dir string) (debian.Lists, error){
	"release":   func(context.Context, string) (debian.Lists, error) { return debian.Lists{}, nil },
	"backports": debian.Backports,
}

// guest with one of the kernels has what the tests of the data plane run.
func guest(t *testing.T, kernel string) vm.Guest {
	t.Helper()
	if kernel == "backports" && !*backports {
		t.Skip("emulates the kernel of Debian's backports for minutes: make soak does, with -backports")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cache = filepath.Join(cache, "sealane")
	lists, err := kernels[kernel](t.Context(), filepath.Join(cache, "apt"))
	if errors.Is(err, debian.ErrNoBackports) {
		t.Skip("needs a second kernel of Debian's:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	k, err := vm.DebianKernel(t.Context(), lists, filepath.Join(cache, "kernel"))
	if err != nil {
		t.Fatal(err)
	}
	t.Log("with Linux", k.Release)
	return vm.Guest{
		Kernel: k,
		// Linux 6.12 was seen to die of both within minutes, 6.1 was not.
		Plain: kernel == "backports",
		Init:  program(t, "build", "./guest"),
		Programs: []string{"sh", "sleep", "grep", "sort", "nsenter", "ip", "nft", "iptables", "iptables-nft", "ip6tables-nft",
			"ping"},
	}
}

// The tests of the node agent, with the WireGuard of kernels that have it, among modules of others and without these.
func TestTheNodeAgentUsesTheKernelsWireGuard(t *testing.T) {
	tests := program(t, "-C", root(t), "test", "-c", "./memberagent/node")
	for kernel, modules := range map[string][]string{"release": nil, "backports": modulesOfOthers()} {
		t.Run(kernel, func(t *testing.T) {
			g := guest(t, kernel)
			g.Modules, g.Files = modules, map[string]string{"/node.test": tests}
			g.Command = []string{"/node.test", "-test.v", "-test.run=TestTwoClusters", "-implementation=Kernel", "-slow=10"}
			boot(t, g)
		})
	}
}

// TestIPsecByTheKernel: cables by IPsec where the kernel encrypts. What counts packets under traffic needs a machine
// that does nothing else meanwhile: emulated processors that have to wait lose them by themselves. So that runs where
// kernels of backports do.
func TestIPsecByTheKernel(t *testing.T) {
	// Of so many as a guest gets done in its time.
	sets := map[string]string{"encrypts": "TestTheKernelEncrypts|TestNothingOfESPIsLeft|TestLeavingWhileCharonHangs"}
	if *backports {
		sets["changes"] = "TestCablesChangeToIPsecAndBack|TestOnlyIPsecCarriesWhatItIsToCarry"
		sets["outlives"] = "TestTheKernelsESPOutlivesItsPod|TestTheKernelsESPInASurge|" +
			"TestOneFamilyIsEnoughForTheKernelsESP|TestACharonThatHangsIsEnded"
		sets["others"] = "TestIPsecByFIPS|TestReplayedIPsecIsDropped|TestNATByIPsec"
		sets["clocks"] = "TestClocksThatJump"
	}
	for _, kernel := range []string{"release", "backports"} {
		for _, set := range slices.Sorted(maps.Keys(sets)) {
			t.Run(kernel+"/"+set, func(t *testing.T) { byESP(t, kernel, sets[set]) })
		}
	}
	if *backports { // no other machine's clock may be set
		t.Run("clocks without the kernel", func(t *testing.T) { byESP(t, "release", sets["clocks"], "-esp=Userspace") })
	}
}

var rounds = flag.Int("throughput", 0, "how many rounds tests of throughput measure; 0 is none")

// TestThroughputOfTheKernelsESP measures cables by IPsec against ESP that is wired by hand, with -throughput rounds.
// The processors are emulated: ratios say something, rates do not.
func TestThroughputOfTheKernelsESP(t *testing.T) {
	if *rounds == 0 {
		t.Skip("it measures: say in how many rounds with -throughput")
	}
	byESP(t, "release", "TestThroughputOfIPsec", fmt.Sprintf("-throughput=%d", *rounds))
}

// TestThroughputOfTheKernelsWireGuard measures cables by WireGuard in the same way, and a flowtable.
func TestThroughputOfTheKernelsWireGuard(t *testing.T) {
	if *rounds == 0 {
		t.Skip("it measures: say in how many rounds with -throughput")
	}
	g := guest(t, "release")
	g.Modules = []string{"nf_flow_table_inet", "nft_flow_offload"}
	g.Files = map[string]string{"/node.test": program(t, "-C", root(t), "test", "-c", "./memberagent/node")}
	g.Command = []string{"/node.test", "-test.v", "-test.run=^TestThroughputOfWireGuard$", "-implementation=Kernel",
		"-slow=10", fmt.Sprintf("-throughput=%d", *rounds)}
	boot(t, g)
}

// byESP runs tests of the node agent by name, one after the other, in a guest whose kernel encrypts.
func byESP(t *testing.T, kernel, names string, args ...string) {
	g := guest(t, kernel)
	g.Programs = append(g.Programs, "charon-systemd", "pgrep", "cat", "cut")
	g.Modules = []string{"tun"} // by which charon encrypts itself
	g.Files = map[string]string{"/node.test": program(t, "-C", root(t), "test", "-c", "./memberagent/node")}
	g.Command = append([]string{"/node.test", "-test.v", "-test.parallel=1", "-test.run=^(" + names + ")$", "-esp=Kernel",
		"-slow=10", "-clock"}, args...)
	boot(t, g)
}

// modulesOfOthers are those by which nodes of users differ from the ones of other tests: bridged packets pass the rules
// of their network namespace once br_netfilter is loaded.
func modulesOfOthers() []string { return []string{"br_netfilter", "nf_flow_table", "ip_vs"} }

// TestAmongModulesOfOthers: the data plane works where packets between the pods of a node pass its rules, as kubelet
// wants it, and where nodes have what else CNI plugins and kube-proxy load.
func TestAmongModulesOfOthers(t *testing.T) {
	g := guest(t, "backports")
	g.Modules = modulesOfOthers()
	g.Programs = append(g.Programs, "bash", "bridge", "cat", "cut", "head", "iptables-nft-restore", "mkdir", "pgrep",
		"sed", "seq", "tail", "tc", "tr", "unshare", "wc")
	g.Files = map[string]string{}
	goldens, err := filepath.Glob(filepath.Join(root(t), "dataplane/plan/testdata/*.txtar"))
	if err != nil || len(goldens) == 0 {
		t.Fatalf("find the goldens of plans: %v, %d of them", err, len(goldens))
	}
	for _, file := range goldens {
		g.Files["/dataplane/plan/testdata/"+filepath.Base(file)] = file
	}
	script := `status=0
		for f in iptables ip6tables; do grep -x 1 /proc/sys/net/bridge/bridge-nf-call-$f; done
	`
	for _, tests := range []struct{ pkg, flags string }{
		{"memberagent/node", "-test.run='^(TestPodsOfOneBridge|TestRulesOfPlugins)$' -implementation=Kernel -slow=10"},
		// What depends on a kernel and on what it tracks and translates.
		{"dataplane/kernel", "-test.run='Forgotten|^Test(Drops|OldAcceptsGiveWay|CleanLeavesNothing|Repair|Restart|" +
			"SeveralNextHopsAndRules|Watch)$'"},
		// The one that is left out ends a trace 100 ms after its packets: nft takes longer under emulation.
		{"dataplane/tracer", "-test.skip=^TestWhatDropsAPacketIsNamed$"},
	} {
		binary := "/" + tests.pkg + "/tests"
		g.Files[binary] = program(t, "-C", root(t), "test", "-c", "./"+tests.pkg)
		script += fmt.Sprintf("cd /%s; ./tests -test.v %s || status=1\n", tests.pkg, tests.flags)
	}
	g.Command = []string{"sh", "-ec", script + "exit $status"}
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
