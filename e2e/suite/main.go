// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/sealane"
)

// defaultLab is the state directory of the tests' lab, below the source tree. It stands apart from that of
// make lab-up and that of make demo.
const defaultLab = ".lab-test"

// installed is Sealane in the lab that all scenario packages share; attach sets it.
var installed *sealane.Sealane

// Main runs the scenarios of a package on the lab that most packages share and returns the exit code. A lab that is up
// is used and left as it was found; if there is none, the package boots one and removes it, or leaves it with -keep for
// the next package.
func Main(m *testing.M) int { return run(m, "", topology()) }

// MainOn is Main on a lab of e2e/topologies/<name>.yaml, named like the shared one with the name as a suffix. -keep
// leaves it only if it was up before: no other package uses it. The shared one that -keep has left is removed first:
// two labs at once are more than a small machine can run in the times that tests give it.
func MainOn(m *testing.M, name string) int {
	data, err := os.ReadFile(filepath.Join("..", "..", "topologies", name+".yaml"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	topology, err := lab.ParseTopology(data)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return run(m, "-"+name, topology)
}

func run(m *testing.M, suffix string, topology lab.Topology) int {
	name := flag.String("lab", "", "state directory of the lab; by default "+defaultLab+" of the source tree. Packages "+
		"with a lab of their own add a suffix")
	keep := flag.Bool("keep", false, "leave the lab running for the next package, also if this one has booted it")
	flag.Parse()
	if given("test.list") {
		return m.Run()
	}
	if late(time.Now()) && !given("test.run") {
		directory, err := os.Getwd() // go test runs a package in its own
		if err != nil {
			fmt.Fprintln(os.Stderr, "find the package:", err)
			return 1
		}
		fmt.Fprintf(os.Stderr, "LEFT OUT %s: this machine is so slow that make test would take too long: run make test-e2e\n",
			filepath.Base(directory))
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // who reads this may end before the lab is removed
	root, err := lab.SourceRoot(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "find the source tree:", err)
		return 1
	}
	if *name == "" {
		*name = filepath.Join(root, defaultLab)
	}
	if _, err := lab.Open(*name); err == nil && suffix != "" && *keep {
		if err := down(*name); err != nil {
			return 1
		}
	}
	*name += suffix
	_, err = lab.Open(*name)
	remove := err != nil && (suffix != "" || !*keep)
	code := runOn(ctx, m, *name, topology)
	if remove && down(*name) != nil {
		return 1
	}
	return code
}

// given says whether a flag has a value.
func given(name string) bool {
	f := flag.Lookup(name)
	return f != nil && f.Value.String() != ""
}

// down removes a lab, or says why it is there.
func down(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	err := lab.Down(ctx, name, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "remove the lab:", err)
	}
	return err
}

// runOn boots or completes the lab, runs the tests, and checks that they left it as they found it and that Sealane's
// logs are clean.
func runOn(ctx context.Context, m *testing.M, name string, topology lab.Topology) int {
	err := attach(ctx, name, topology)
	var before []string
	if err == nil {
		before, err = exports(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "boot the lab:", err)
		keepLogs()
		return 1
	}
	begin := time.Now()
	ended := make(chan int, 1)
	go func() { ended <- m.Run() }()
	code := 1
	select {
	case code = <-ended:
	case <-ctx.Done():
		fmt.Fprintln(os.Stderr, "interrupted")
	}
	if code == 0 {
		if err := waitUnchanged(ctx, before); err != nil {
			fmt.Fprintln(os.Stderr, "FAIL: the tests did not leave the lab as they found it:", err)
			code = 1
		}
	}
	if ctx.Err() == nil {
		if err := cleanLogs(ctx, begin); err != nil {
			fmt.Fprintln(os.Stderr, "FAIL: Sealane logged what it must not:", err)
			code = 1
		}
	}
	if code != 0 {
		keepLogs()
	}
	return code
}

// HealthCheck of the shared lab has a connection fail after a second without answers, and not after the fraction of one
// that it is by default: on a busy machine each of its clusters may not run for half a second.
var HealthCheck = map[string]int{"intervalMilliseconds": 100, "failureThreshold": 10}

// topology differs between the members in all that users' clusters differ in: push and pull, kube-proxy's
// mode, whether the CNI masquerades, and whether the gateway is a node of its own. All drop in FORWARD, as
// container engines leave it.
func topology() lab.Topology {
	t := lab.DefaultTopology()
	t.IPsec = true
	t.ClusterSet = map[string]any{"healthCheck": HealthCheck}
	t.Clusters[0].KubeProxyMode, t.Clusters[0].IPMasq = lab.ProxyIPTables, true
	t.Clusters = append(t.Clusters, lab.Cluster{
		Name: "c3", Mode: lab.ModePush,
		PodCIDRs: []string{"10.10.0.0/16"}, ServiceCIDRs: []string{"10.110.0.0/16"},
		Nodes: []lab.Node{{Name: "c3-gw", Gateway: true}},
	})
	return t
}

// attach boots the lab, or completes the one that is up.
func attach(ctx context.Context, name string, t lab.Topology) error {
	if old, err := lab.Open(name); err == nil {
		t = old.Topology
	}
	return complete(ctx, lab.Options{Name: name, Topology: t, Out: os.Stderr})
}

// complete boots what does not run of a lab, installs Sealane and the workload as far as they are missing, and waits
// until all of it is ready.
func complete(ctx context.Context, options lab.Options) error {
	l, err := lab.Up(ctx, options)
	if err != nil {
		return err
	}
	if installed == nil {
		installed = &sealane.Sealane{Lab: l, Out: options.Out}
	}
	if !l.Topology.PullImages { // what nodes pull is what the tests install
		if err := installed.Install(ctx); err != nil {
			return err
		}
	}
	if err := sealane.Apply(ctx, l, lab.ContextKarmada, []byte(sampleNamespace)); err != nil {
		return err
	}
	replicas := map[string]int{"c1": 1, "c2": 3, "c3": 2, "g1": 1, "g2": 3, "u1": 1, "f1": 1}
	for _, c := range l.Topology.Clusters {
		if err := (sealane.Workload{Cluster: c, Replicas: replicas[c.Name]}).Apply(ctx, l); err != nil {
			return err
		}
	}
	for _, c := range l.Topology.Clusters {
		_, err := l.Kubectl(ctx, "--context", c.Name, "-n", "sample", "wait",
			"--for=condition=Ready", "pods", "--all", "--timeout=180s")
		if err != nil {
			return err
		}
	}
	ready, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return waitFor(ready, inOrder)
}

// sampleNamespace is the workload's, on the Karmada API too, for what is exported from there.
const sampleNamespace = `{apiVersion: v1, kind: Namespace, metadata: {name: sample}}`

// keepLogs copies the logs of a failed run to where a person finds them after the lab is gone.
func keepLogs() {
	if installed == nil {
		return
	}
	dir, err := os.MkdirTemp("", "sealane-e2e-logs-")
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(filepath.Join(installed.Lab.Dir, "logs")))
	}
	fmt.Fprintln(os.Stderr, "logs:", dir, err)
}

// Lab is the lab.
func Lab() *lab.Lab { return installed.Lab }

// API is an administrator's access to the API of a context: karmada or a cluster.
func API(context string) (*sealane.API, error) { return installed.API(context) }

// Install installs Sealane with the controller as a process of the lab, as the other tests expect it.
func Install(ctx context.Context) error { return installed.Install(ctx) }

// PluginPath is the path of the plugin's program.
func PluginPath() string { return installed.Plugin() }

// TryPlugin runs a command of the plugin and returns what it printed.
func TryPlugin(ctx context.Context, args ...string) (string, error) {
	return installed.Run(ctx, args...)
}
