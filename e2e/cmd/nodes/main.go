// SPDX-License-Identifier: Apache-2.0

// Command nodes measures what node agents cost by the number of nodes of their cluster: a real API server with Nodes
// that exist there alone and have the heartbeats of a kubelet, and the real agents of the cluster, of a worker and of
// a gateway, in network namespaces of their own. It writes the figures as text, with the machine they were taken on.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sealane-io/sealane/e2e/lab"
)

type options struct {
	sizes   string
	remotes int
	watch   time.Duration
	agent   string
	out     string
	inside  bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.sizes, "nodes", "10,100,1000", "numbers of nodes, one cluster after the other")
	flag.IntVar(&o.remotes, "remotes", 100, "other clusters, each of which has two gateways that do not answer")
	flag.DurationVar(&o.watch, "for", time.Minute, "how long agents that have nothing to do are watched")
	flag.StringVar(&o.agent, "agent", "", "the sealane-agent to measure; empty is that of this source tree")
	flag.StringVar(&o.out, "out", "docs/benchmarks/nodes.md", "where the figures go, relative to the source tree; "+
		"empty is nowhere")
	flag.BoolVar(&o.inside, "inside", false, "set by the command for itself, in a network namespace of its own")
	flag.Parse()
	log.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	do := isolate
	if o.inside {
		do = run
	}
	if err := do(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "nodes: failed: %v\n", err)
		os.Exit(1)
	}
}

// isolate builds the agent and runs the command again in a network namespace, which is the underlay of the nodes.
func isolate(ctx context.Context, o options) error {
	root, err := lab.SourceRoot(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sealane-nodes-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if o.agent == "" {
		o.agent = filepath.Join(dir, "sealane-agent")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.agent, "./cmd/sealane-agent")
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build the agent: %w\n%s", err, out)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "-inside", "-nodes="+o.sizes, "-remotes="+strconv.Itoa(o.remotes),
		"-for="+o.watch.String(), "-agent="+o.agent, "-out="+o.out)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	return cmd.Run()
}

func run(ctx context.Context, o options) error {
	m, err := describe(ctx)
	if err != nil {
		return err
	}
	m.Flags = fmt.Sprintf("--nodes=%s --remotes=%d --for=%s", o.sizes, o.remotes, o.watch)
	if err := underlay(ctx); err != nil {
		return err
	}
	var rows []row
	for text := range strings.SplitSeq(o.sizes, ",") {
		nodes, err := strconv.Atoi(text)
		if err != nil || nodes < 3 {
			return fmt.Errorf("--nodes: expected numbers of 3 or more, found %q", text)
		}
		found, err := measure(ctx, o, nodes)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", nodes, err)
		}
		rows = append(rows, found...)
		if err := write(o.out, m, rows); err != nil {
			return err
		}
	}
	return nil
}
