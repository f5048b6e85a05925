// SPDX-License-Identifier: Apache-2.0

// Command fleet measures what the broker costs by the size of the fleet: a real Karmada API, the real controller, and
// members that exist on the wire alone. It writes the figures as text, with the machine they were taken on.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sealane-io/sealane/e2e/fleet"
	"github.com/sealane-io/sealane/e2e/lab"
)

//go:embed fleet.md.tmpl
var layout string

type options struct {
	sizes    string
	services int
	changes  int
	churn    time.Duration
	out      string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.sizes, "clusters", "10,30,100", "numbers of clusters, one fleet after the other")
	flag.IntVar(&o.services, "services", 1000, "services, each exported by two clusters with three pods")
	flag.IntVar(&o.changes, "changes", 20, "pods that are replaced one after the other")
	flag.DurationVar(&o.churn, "churn", 30*time.Second, "how long pods are replaced at each rate")
	flag.StringVar(&o.out, "out", "docs/benchmarks/fleet.md", "where the figures go, relative to the source tree; empty "+
		"is nowhere")
	flag.Parse()
	log.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "fleet: failed: %v\n", err)
		os.Exit(1)
	}
}

// table is what was measured of one fleet.
type table struct {
	Size fleet.Size
	Rows []fleet.Row
	// Stored is the size of etcd in KiB.
	Stored int64
}

func run(ctx context.Context, o options) error {
	root, err := lab.SourceRoot(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sealane-fleet-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program, err := fleet.Build(ctx, root, dir)
	if err != nil {
		return err
	}
	var tables []table
	for text := range strings.SplitSeq(o.sizes, ",") {
		clusters, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("--clusters: expected numbers, found %q", text)
		}
		t := table{Size: fleet.Size{Clusters: clusters, Services: o.services, Exporters: 2, Backends: 3,
			Namespaces: max(1, o.services/10)}}
		if err := t.measure(ctx, o, program, dir); err != nil {
			return fmt.Errorf("%d clusters: %w", clusters, err)
		}
		tables = append(tables, t)
	}
	return write(root, o.out, tables)
}

// measure runs all scenarios with one fleet.
func (t *table) measure(ctx context.Context, o options, program, dir string) (err error) {
	f, err := fleet.Launch(ctx, t.Size)
	if err != nil {
		return err
	}
	defer f.Stop()
	b, err := f.Start(ctx, program, dir)
	if err != nil {
		return err
	}
	defer func() { _ = b.Stop() }()
	if err := b.Ready(ctx); err != nil {
		return err
	}
	if err := t.add(f.Run(ctx, b, "converge from empty", func() ([]*fleet.Arrival, error) {
		return nil, f.Connect(ctx)
	})); err != nil {
		return err
	}
	for _, s := range []struct {
		name string
		do   func() ([]*fleet.Arrival, error)
	}{
		{"a pod is replaced", f.Change(o.changes)},
		{"10 pods a second", f.Churn(ctx, 10, o.churn)},
		{"100 pods a second", f.Churn(ctx, 100, o.churn)},
		{"a cluster's pods go", f.Withdraw(0, true)},
		{"they return", f.Withdraw(0, false)},
		{"a gateway has another address", f.MoveGateway(1)},
	} {
		if err := t.add(f.Run(ctx, b, s.name, s.do)); err != nil {
			return err
		}
	}
	if err := t.restart(ctx, f, &b, program, dir); err != nil {
		return err
	}
	t.Stored, err = f.Stored(ctx)
	return err
}

// restart ends the controller and starts it again: how long until it is ready, and what it writes.
func (t *table) restart(ctx context.Context, f *fleet.Fleet, b **fleet.Broker, program, dir string) error {
	if err := (*b).Stop(); err != nil {
		return err
	}
	begun := time.Now()
	next, err := f.Start(ctx, program, dir)
	if err != nil {
		return err
	}
	*b = next
	if err := next.Ready(ctx); err != nil {
		return err
	}
	ready := time.Since(begun)
	row, err := f.Run(ctx, next, "the controller restarts", func() ([]*fleet.Arrival, error) {
		return nil, next.Settled(ctx)
	})
	row.Took = ready
	return t.add(row, err)
}

func (t *table) add(row fleet.Row, err error) error {
	if err != nil {
		return err
	}
	fmt.Printf("%d clusters: %s: %s, p50 %s, p99 %s, %d late, %d writes, %d KiB, %d requests, CPU %s, RSS %d MiB\n",
		t.Size.Clusters, row.Scenario, row.Took.Round(time.Millisecond), row.Quantile(0.5).Round(time.Millisecond),
		row.Quantile(0.99).Round(time.Millisecond), row.Late, row.Writes, row.Bytes>>10, row.Requests,
		row.CPU.Round(time.Millisecond), row.RSS>>10)
	t.Rows = append(t.Rows, row)
	return nil
}

func write(root, out string, tables []table) error {
	if out == "" {
		return nil
	}
	functions := template.FuncMap{
		"ms":  func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) },
		"sec": func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) },
		"mb":  func(kib int64) string { return fmt.Sprintf("%.0f", float64(kib)/1024) },
		"each": func(total int64, of int) string {
			return fmt.Sprintf("%.1f", float64(total)/float64(of))
		},
		"kib": func(bytes, writes int64) string {
			if writes == 0 {
				return ""
			}
			return fmt.Sprintf("%.1f", float64(bytes)/float64(writes)/1024)
		},
	}
	t, err := template.New("fleet").Funcs(functions).Parse(layout)
	if err != nil {
		return fmt.Errorf("parse the layout of the figures: %w", err)
	}
	var text bytes.Buffer
	if err := t.Execute(&text, tables); err != nil {
		return fmt.Errorf("render the figures: %w", err)
	}
	if err := os.WriteFile(root+"/"+out, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	fmt.Println("figures:", out)
	return nil
}
