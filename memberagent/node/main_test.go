// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-logr/logr"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/memberagent/node"
)

var (
	inNamespace  = flag.Bool("in-namespace", false, "set by the test for its own child")
	wanted       = flag.String("implementation", "", "of WireGuard that the agents must find; empty is any")
	esp          = flag.String("esp", "", "implementation of ESP that charon is to use; empty is any")
	slow         = flag.Int("slow", 1, "how many times slower than usual this machine is")
	rounds       = flag.Int("throughput", 0, "how many rounds TestThroughput measures; 0 is none")
	peers        = flag.String("peers", "", "run gateways to probe: set by a benchmark for its own child")
	ipvs         = flag.String("ipvs", "", "file with what TestServicesByIPVS needs, which package e2e/vm writes")
	charonDir    = flag.String("charon", "", "keep charon running in this directory: set by a test for its own child")
	hangPatience = flag.Duration("patience", 0, "with a charon that hangs: set by a test for its own child")
	agentDir     = flag.String("agent", "", "run an agent on this directory: set by the test for its own children")
)

// TestMain runs the tests in a child with network and mount namespaces of its own, which end with it; the
// tests start agents that are children in namespaces of theirs. They need root.
func TestMain(m *testing.M) {
	flag.Parse()
	switch {
	case *agentDir != "":
		exit(runAgent(*agentDir))
	case *charonDir != "":
		exit(runCharon(*charonDir))
	case *peers != "":
		exit(runPeers(*peers))
	case *inNamespace:
		os.Exit(m.Run())
	}
	args := slices.Concat([]string{fmt.Sprintf("-test.parallel=%d", together())}, os.Args[1:], []string{"-in-namespace"})
	err := inNamespaces(args...).Run()
	var code *exec.ExitError
	if errors.As(err, &code) {
		os.Exit(code.ExitCode())
	}
	exit(err)
}

// together is how many networks there are at once, unless -parallel says it: more than processors, as these are idle
// half of the time.
func together() int { return (3*runtime.GOMAXPROCS(0) + 1) / 2 }

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// inNamespaces prepares this program as a child with namespaces of its own.
func inNamespaces(args ...string) *exec.Cmd {
	child := exec.CommandContext(context.Background(), "/proc/self/exe", args...)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	return child
}

// listening is what an agent says when it hears of changes.
const listening = "listening\n"

// runAgent waits for a line on its input, by when its network is there, and runs an agent whose cluster
// is a directory.
func runAgent(dir string) error {
	if err := errors.Join(
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""),
		syscall.Mount(filepath.Join(dir, "resolv.conf"), "/etc/resolv.conf", "", syscall.MS_BIND, ""),
	); err != nil {
		return err
	}
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	log := funcr.New(func(prefix, args string) { fmt.Fprintln(os.Stderr, filepath.Base(dir), prefix, args) },
		funcr.Options{})
	ctx, stop := signal.NotifyContext(logr.NewContext(context.Background(), log), syscall.SIGTERM)
	defer stop()
	keys, newKey, err := cable.OpenKeys(dir)
	if err != nil {
		return err
	}
	if ipsecDir(dir) != "" {
		if _, err := keys.WithIPsec(); err != nil {
			return err
		}
	}
	lock, err := node.OpenLock(dir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	holder := cable.NewHolder(log)
	defer holder.Close()
	// In this order: who has the lock next makes the devices anew.
	c, err := cable.OpenWireGuard(keys, holder)
	if err != nil {
		return err
	}
	k, err := kernel.New(map[string]kernel.Driver{string(v1alpha1.CableWireGuard): c}, "/proc/sys/net")
	if err != nil {
		return err
	}
	metrics, err := node.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		return err
	}
	o := node.Options{Node: filepath.Base(dir), Keys: testKeys{keys, dir}, NewKey: newKey, Version: "test", StateDir: dir,
		IPsecDir: ipsecDir(dir)}
	a, err := node.New(o, k, metrics)
	if err != nil {
		return err
	}
	a.SetCluster(directory(dir))
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGHUP)
	go func() {
		for range changes {
			a.Poke()
		}
	}()
	fmt.Print(listening)
	err = a.TakeTurn(ctx, lock)
	if ctx.Err() != nil {
		return nil // it was told to end before its turn
	}
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// directory is a cluster as files: what the agent reads and what it tells.
type directory string

func (d directory) path(name string) string { return filepath.Join(string(d), name) }

func (d directory) write(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	next := d.path(name + ".next")
	return errors.Join(os.WriteFile(next, text, 0o600), os.Rename(next, d.path(name)))
}

func (d directory) read(name string, v any) error {
	text, err := os.ReadFile(d.path(name))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

func (d directory) Objects(context.Context) (node.Objects, bool, error) {
	var o node.Objects
	err := d.read("cluster.json", &o)
	if errors.Is(err, os.ErrNotExist) {
		return o, false, nil
	}
	var s v1alpha1.GatewayStatus
	for i := range o.Gateways {
		// What it has reported of its connections is in its object, as with an API server.
		if g := &o.Gateways[i]; g.Name == filepath.Base(string(d)) && d.read("status.json", &s) == nil {
			g.Status.ReportedAt, g.Status.Connections = s.ReportedAt, s.Connections
		}
	}
	return o, err == nil, err
}

// unanswered blocks while the test has the API server answer nothing.
func (d directory) unanswered(ctx context.Context) error {
	_, err := os.Stat(d.path("unanswered"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (d directory) SetGatewayStatus(ctx context.Context, _ string, s v1alpha1.GatewayStatus) error {
	if err := d.unanswered(ctx); err != nil {
		return err
	}
	return d.write("status.json", s)
}

func (d directory) Alive(*v1alpha1.Gateway) {}

func (d directory) SetNodeState(ctx context.Context, state node.NodeState) error {
	if err := d.unanswered(ctx); err != nil {
		return err
	}
	return d.write("state.json", state)
}

func (d directory) SetTurn(ctx context.Context, turn node.Turn) error {
	if err := d.unanswered(ctx); err != nil {
		return err
	}
	return d.write("turn.json", turn)
}

func (d directory) LoadBalancer(ctx context.Context, service string) ([]string, error) {
	if err := os.WriteFile(d.path("asked"), []byte(service), 0o600); err != nil {
		return nil, err
	}
	if err := d.unanswered(ctx); err != nil {
		return nil, err
	}
	return []string{"203.0.113.7"}, nil
}

func (d directory) Uninstalled(ctx context.Context) (bool, error) {
	if err := d.unanswered(ctx); err != nil {
		return false, err
	}
	_, err := os.Stat(d.path("uninstalled"))
	return err == nil, nil
}

func (d directory) Event(_ *v1alpha1.Gateway, _ bool, reason, message string) {
	fmt.Fprintln(os.Stderr, filepath.Base(string(d)), "event", reason, message)
	if err := os.WriteFile(d.path("event-"+reason), []byte(message), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
