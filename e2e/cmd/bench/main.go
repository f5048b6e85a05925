// SPDX-License-Identifier: Apache-2.0

// Command bench measures Sealane in a lab: how long an export takes, what the cables carry, what the
// processes need. It writes the figures as text, with the machine and the versions they were taken with.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/sealane"
)

// options are the command's flags.
type options struct {
	lab, out string
	keep     bool
	parts    string
	exports  int
	services int
	changes  int
	rounds   int
	duration time.Duration
}

func (o options) wants(part string) bool { return slices.Contains(strings.Split(o.parts, ","), part) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == wireGuardCommand {
		exit(serveWireGuard(os.Args[2:]))
	}
	var o options
	flag.StringVar(&o.lab, "name", ".lab-bench", "the lab's state directory, relative to the source tree; a lab that is "+
		"up already is used and stays")
	flag.StringVar(&o.out, "out", "docs/benchmarks/lab.md", "where the figures go, relative to the source tree")
	flag.BoolVar(&o.keep, "keep", false, "leave the lab running afterwards")
	flag.StringVar(&o.parts, "parts", "go,dns,exports,cables,changes", "what to measure; profile needs perf(1)")
	flag.IntVar(&o.exports, "exports", 30, "exports per exporting cluster")
	flag.IntVar(&o.services, "services", 1000, "services beside which one endpoint changes")
	flag.IntVar(&o.changes, "changes", 100, "endpoints that change")
	flag.IntVar(&o.rounds, "rounds", 3, "measurements of each path; the median counts")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "length of one throughput measurement")
	flag.Parse()
	exit(run(ctx, o))
}

// settle is how long after the load a process may keep what it took for it.
const settle = 40 * time.Second

func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: failed: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run measures the programs' own benchmarks first, while nothing else of ours uses the processors.
func run(ctx context.Context, o options) (err error) {
	root, err := lab.SourceRoot(ctx)
	if err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return fmt.Errorf("go to the source tree: %w", err)
	}
	r := report{Settle: settle}
	if r.Machine, err = describe(ctx); err != nil {
		return err
	}
	if o.wants("go") {
		fmt.Println("go test -bench")
		if r.GoBench, err = goBench(ctx); err != nil {
			return err
		}
	}
	if o.wants("dns") {
		if r.DNS, r.DNSMemory, err = dnsBench(ctx, []int{10, 1000, 10000}, o.rounds, 2*time.Second); err != nil {
			return fmt.Errorf("dns: %w", err)
		}
	}
	if !slices.ContainsFunc([]string{"exports", "cables", "profile", "changes"}, o.wants) {
		return r.write(o.out)
	}
	if _, openErr := lab.Open(o.lab); openErr != nil && !o.keep {
		defer func() {
			down, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
			defer cancel()
			if downErr := lab.Down(down, o.lab, os.Stdout); err == nil {
				err = downErr
			}
		}()
	}
	l, err := boot(ctx, o.lab)
	if err != nil {
		return err
	}
	return errors.Join(measure(ctx, l, o, &r), r.write(o.out))
}

// measure fills in the report. What cannot be measured is left out of it, and the rest goes on.
func measure(ctx context.Context, l *lab.Lab, o options, r *report) error {
	var err error
	if r.Lab, err = describeLab(ctx, l); err != nil {
		return err
	}
	idle, err := memory(l, nil)
	if err != nil {
		return err
	}
	var errs []error
	if o.wants("exports") {
		r.Latency, err = latencies(ctx, l, o.exports)
		errs = append(errs, err)
	}
	var ref *reference
	if o.wants("cables") || o.wants("profile") {
		var closeReference func()
		if ref, closeReference, err = openReference(ctx, l); err == nil {
			defer closeReference()
			err = r.cables(ctx, l, ref, o)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("throughput: %w", err))
		}
	}
	loaded, err := memory(l, ref)
	if err == nil {
		err = wait(ctx, r.Settle)
	}
	settled, memoryErr := memory(l, ref)
	r.Memory = joinMemory(idle, loaded, settled)
	errs = append(errs, err, memoryErr)
	if o.wants("changes") {
		exporter := l.Topology.Clusters[1] // pull, as the walkthrough's
		if r.Changes, err = endpointChanges(ctx, l, exporter, o.services, o.changes); err != nil {
			errs = append(errs, fmt.Errorf("endpoint changes: %w", err))
		}
	}
	return errors.Join(errs...)
}

// cables fills in what they carry, and where the processors' time goes meanwhile.
func (r *report) cables(ctx context.Context, l *lab.Lab, ref *reference, o options) error {
	paths, err := pathsOf(ctx, l, ref)
	if err != nil {
		return err
	}
	if o.wants("cables") {
		if r.Paths, err = throughput(ctx, paths, o.rounds, o.duration); err != nil {
			return err
		}
	}
	if o.wants("profile") {
		r.Profiles, err = profiles(ctx, paths, o.rounds, o.duration)
	}
	return err
}

// boot makes the lab ready to measure: Sealane installed, servers and clients in both clusters.
func boot(ctx context.Context, name string) (*lab.Lab, error) {
	topology := lab.DefaultTopology()
	topology.Clusters[0].KubeProxyMode = lab.ProxyIPTables // and the other has the default
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
	}
	for _, c := range l.Topology.Clusters {
		_, err := l.Kubectl(ctx, "--context", c.Name, "-n", "sample", "wait", "--for=condition=Ready", "pods", "--all",
			"--timeout=180s")
		if err != nil {
			return nil, fmt.Errorf("pods of %s: %w", c.Name, err)
		}
	}
	return l, nil
}
