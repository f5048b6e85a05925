// SPDX-License-Identifier: Apache-2.0

// Command fleet measures what the broker costs by the size of the fleet: a real Karmada API, the real controller, a few
// members with a real cluster agent and DNS server, and others that exist on the wire alone. It has the controller, the
// members and etcd fail, too. It writes the figures as text and as a picture, with the machine they were taken on, and
// what they are to the goals. It fails if an import has lost what its exporters still had.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sealane-io/sealane/e2e/fleet"
	"github.com/sealane-io/sealane/e2e/lab"
)

type options struct {
	sizes    string
	services int
	changes  int
	churn    time.Duration
	slow     time.Duration
	agents   int
	silence  time.Duration
	reports  int
	halves   bool
	out      string
	results  string
	runs     int
	profiles string
	// only the scenarios whose names match, and the first.
	only *regexp.Regexp
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.sizes, "clusters", "10,30,100", "numbers of clusters, one fleet after the other")
	flag.IntVar(&o.services, "services", 1000, "services, each exported by two clusters with three pods")
	flag.IntVar(&o.changes, "changes", 20, "pods that are replaced one after the other")
	flag.DurationVar(&o.churn, "churn", time.Minute, "how long pods are replaced at each rate")
	flag.DurationVar(&o.slow, "slow", 200*time.Millisecond, "what each request takes more where the API is slow")
	flag.IntVar(&o.agents, "agents", 2, "members with an API server, a cluster agent and a DNS server of their own")
	flag.DurationVar(&o.silence, "silence", time.Minute, "how long Karmada does not reach ten members, or half of fewer")
	flag.IntVar(&o.reports, "reports", 0, "how many reports of members Karmada writes in a second, as "+
		"--kube-api-qps of its controllers lets it; 0 is no limit")
	flag.BoolVar(&o.halves, "halves", false, "members read no deltas, as their agents of before did; with --agents=0")
	flag.StringVar(&o.out, "out", "docs/benchmarks/fleet.md", "where the figures go, relative to the source tree, and "+
		"the picture beside them; empty is nowhere")
	flag.StringVar(&o.results, "results", "", "file that keeps the results, from which the figures have fleets of "+
		"earlier runs, too, of other sizes; empty is none")
	flag.IntVar(&o.runs, "runs", 1, "how many runs of a size, with the same flags, the figures are medians of: this one "+
		"and the latest ones in --results; others of the size are forgotten")
	flag.StringVar(&o.profiles, "profiles", "", "directory for profiles of each scenario in which all is well: of the "+
		"API server's processor time, in its first seconds, and of the controller's memory, at its end; empty is none")
	only := flag.String("run", "", "only scenarios whose names match this regular expression, and the first")
	flag.Parse()
	log.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	var err error
	if o.only, err = regexp.Compile(*only); err == nil {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "fleet: failed: %v\n", err)
		os.Exit(1)
	}
}

// table is what was measured of one fleet.
type table struct {
	// Machine is that of its run, and as it was when the fleet was launched.
	Machine machine
	Size    fleet.Size
	Rows    []fleet.Row
	// Stored is the size of etcd in KiB.
	Stored int64
	// Logged are errors in the logs of the agents and DNS servers.
	Logged []string
}

// row returns that of a scenario.
func (t *table) row(scenario string) *fleet.Row {
	for i := range t.Rows {
		if named(&t.Rows[i]) == scenario {
			return &t.Rows[i]
		}
	}
	return nil
}

// named is what a row's scenario is called, which says more after a colon.
func named(r *fleet.Row) string {
	name, _, _ := strings.Cut(r.Scenario, ":")
	return name
}

func run(ctx context.Context, o options) error {
	// Before anything is built: a fleet takes up to an hour.
	sizes, err := o.fleets()
	if err != nil {
		return err
	}
	if o.runs < 1 || o.runs > 1 && o.results == "" {
		return fmt.Errorf("--runs: expected 1, or more with --results, which has the others: found %d", o.runs)
	}
	if o.profiles != "" {
		if err := os.MkdirAll(o.profiles, 0o755); err != nil {
			return fmt.Errorf("--profiles: %w", err)
		}
	}
	tables, err := former(o.results)
	if err != nil {
		return err
	}
	root, err := lab.SourceRoot(ctx)
	if err != nil {
		return err
	}
	m, err := describe(ctx, root)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sealane-fleet-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	programs, err := fleet.Build(ctx, root, dir)
	if err != nil {
		return err
	}
	var measured []table
	for _, size := range sizes {
		t := table{Machine: m, Size: size}
		t.Machine.Command = o.command(size)
		if t.Machine.Load, err = load(); err != nil {
			return err
		}
		if err := t.measure(ctx, o, programs, dir); err != nil {
			return fmt.Errorf("%d clusters: %w", size.Clusters, err)
		}
		measured, tables = append(measured, t), withTable(tables, t, o.runs)
		// A run that is stopped leaves what was measured before.
		if err := errors.Join(keep(o.results, tables), write(root, o.out, tables)); err != nil {
			return err
		}
	}
	return lost(measured)
}

// fleets returns the sizes that were asked for.
func (o *options) fleets() ([]fleet.Size, error) {
	var out []fleet.Size
	for text := range strings.SplitSeq(o.sizes, ",") {
		clusters, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("--clusters: expected numbers with commas between them, found %q", o.sizes)
		}
		s := fleet.Size{Clusters: clusters, Services: o.services, Exporters: 2, Backends: 3,
			Namespaces: max(1, o.services/10), Agents: o.agents, Reports: o.reports, Halves: o.halves}
		if err := s.Check(); err != nil {
			return nil, fmt.Errorf("%d clusters: %w", clusters, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// command returns the flags that the figures depend on.
func (o *options) command(size fleet.Size) string {
	out := fmt.Sprintf("--clusters=%d --services=%d --changes=%d --churn=%s --slow=%s --agents=%d --silence=%s",
		size.Clusters, o.services, o.changes, o.churn, o.slow, o.agents, o.silence)
	if o.reports > 0 {
		out += fmt.Sprintf(" --reports=%d", o.reports)
	}
	if o.halves {
		out += " --halves"
	}
	if text := o.only.String(); text != "" {
		out += fmt.Sprintf(" --run=%q", text)
	}
	return out
}

// lost is the error that an import has lost what its exporters still had.
func lost(tables []table) error {
	var errs []error
	for i := range tables {
		for _, r := range tables[i].Rows {
			if !r.Lost.None() {
				errs = append(errs, fmt.Errorf("%d clusters: %s: %d exporters lost, %d stale, and %d imports emptied: %s",
					tables[i].Size.Clusters, r.Scenario, r.Lost.Exporters, r.Lost.Stale, r.Lost.Imports,
					strings.Join(r.Lost.First, "; ")))
			}
		}
	}
	return errors.Join(errs...)
}

func (t *table) add(row fleet.Row, err error) error {
	if err != nil {
		return err
	}
	fmt.Printf("%d clusters: %s: %s, of which load %s, p50 %s, p99 %s, %d late, %d writes (%d deltas), %d KiB, "+
		"%d requests, CPU %s, API CPU %s, RSS %d MiB, queue %.0f, etcd %d KiB\n",
		t.Size.Clusters, row.Scenario, row.Took.Round(time.Millisecond), row.Load.Round(time.Millisecond),
		row.Quantile(0.5).Round(time.Millisecond), row.Quantile(0.99).Round(time.Millisecond), row.Late,
		row.Writes, row.Deltas, row.Bytes>>10, row.Requests,
		row.CPU.Round(time.Millisecond), row.APICPU.Round(time.Millisecond), row.RSS>>10, row.Depth, row.Growth)
	if t.Size.Agents > 0 {
		fmt.Printf("    sites: p50 %s, p99 %s, %d behind, agent CPU %s, RSS %d MiB, DNS CPU %s, RSS %d MiB\n",
			row.LandedQuantile(0.5).Round(time.Millisecond), row.LandedQuantile(0.99).Round(time.Millisecond), row.Behind,
			row.Sites.Agent.CPU.Round(time.Millisecond), row.Sites.Agent.RSS>>10,
			row.Sites.DNS.CPU.Round(time.Millisecond), row.Sites.DNS.RSS>>10)
	}
	if !row.Lost.None() {
		fmt.Printf("    lost: %d exporters, %d stale, %d imports: %s\n", row.Lost.Exporters, row.Lost.Stale,
			row.Lost.Imports, strings.Join(row.Lost.First, "; "))
	}
	t.Rows = append(t.Rows, row)
	return nil
}
