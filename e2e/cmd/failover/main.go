// SPDX-License-Identifier: Apache-2.0

// Command failover measures what traffic between clusters sees while gateways fail, in a lab with two of them in each
// of two clusters. It writes the figures as text.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/sealane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	name := flag.String("name", ".lab-failover",
		"the lab's state directory, relative to the source tree; a lab that is up "+
			"already is used and stays")
	out := flag.String("out", "", "where the figures go, relative to the source tree; empty is "+
		"docs/benchmarks/failover.md or, with --only, the terminal")
	rounds := flag.Int("rounds", 5, "how often each fault happens; the median counts")
	only := flag.String("only", "", "names of faults, separated by semicolons; empty is all")
	keep := flag.Bool("keep", false, "leave the lab running afterwards")
	flag.Parse()
	if *out == "" {
		*out = "docs/benchmarks/failover.md"
		if *only != "" {
			*out = "/dev/stdout"
		}
	}
	if err := run(ctx, *name, *out, *only, *rounds, *keep); err != nil {
		fmt.Fprintf(os.Stderr, "failover: failed: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name, out, only string, rounds int, keep bool) (err error) {
	root, err := lab.SourceRoot(ctx)
	if err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return fmt.Errorf("go to the source tree: %w", err)
	}
	if _, openErr := lab.Open(name); openErr != nil && !keep {
		defer func() {
			down, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
			defer cancel()
			if downErr := lab.Down(down, name, os.Stdout); err == nil {
				err = downErr
			}
		}()
	}
	l, err := boot(ctx, name)
	if err != nil {
		return err
	}
	return measure(ctx, l, only, rounds, func(rows []row) error { return write(out, rows, rounds) })
}

// boot makes the lab of e2e/topologies/ha.yaml ready to measure.
func boot(ctx context.Context, name string) (*lab.Lab, error) {
	text, err := os.ReadFile("e2e/topologies/ha.yaml")
	if err != nil {
		return nil, err
	}
	topology, err := lab.ParseTopology(text)
	if err != nil {
		return nil, err
	}
	l, err := lab.Up(ctx, lab.Options{Name: name, Topology: topology, Out: os.Stdout})
	if err != nil {
		return nil, err
	}
	s := &sealane.Sealane{Lab: l, Out: os.Stdout}
	if err := s.Install(ctx); err != nil {
		return nil, err
	}
	for _, c := range l.Topology.Clusters {
		if err := (sealane.Workload{Cluster: c, Replicas: 2}).Apply(ctx, l); err != nil {
			return nil, err
		}
		_, err := l.Kubectl(ctx, "--context", c.Name, "-n", "sample", "wait", "--for=condition=Ready", "pods", "--all",
			"--timeout=240s")
		if err != nil {
			return nil, fmt.Errorf("pods of %s: %w", c.Name, err)
		}
	}
	return l, export(ctx, l)
}

// export exports the server on each worker, and waits until the other cluster has a ClusterSetIP for it.
func export(ctx context.Context, l *lab.Lab) error {
	const patience = time.Minute
	for here, there := range map[string]string{"c1": "c2", "c2": "c1"} {
		service := "server-" + here + "-worker"
		err := sealane.Apply(ctx, l, here, []byte("apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceExport\n"+
			"metadata: {name: "+service+", namespace: sample}\n"))
		for deadline := time.Now().Add(patience); err == nil; {
			if _, err = clusterSetIP(ctx, l, there, service); err == nil {
				break
			}
			if time.Now().Before(deadline) {
				err = wait(ctx, time.Second)
			}
		}
		if err != nil {
			return fmt.Errorf("export %s: %w", service, err)
		}
	}
	return nil
}
