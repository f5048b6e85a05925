// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sealane-io/sealane/e2e/fleet"
	"github.com/sealane-io/sealane/e2e/lab"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	os.Exit(m.Run())
}

var size = fleet.Size{Clusters: 10, Services: 100, Exporters: 2, Backends: 3, Namespaces: 10, Agents: 1}

// The real controller serves ten clusters with a hundred services, and writes what a change asks for and nothing else.
// One of them has a real agent and a real DNS server, which follow.
func TestCostOfAFleet(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	root, err := lab.SourceRoot(ctx)
	must(t, err)
	dir := t.TempDir()
	programs, err := fleet.Build(ctx, root, dir)
	must(t, err)
	program := programs.Controller
	f, err := fleet.Launch(ctx, size)
	must(t, err)
	t.Cleanup(f.Stop)
	must(t, f.StartAgents(ctx, programs, dir))
	b := start(ctx, t, f, program, dir)
	report := func(row fleet.Row, err error) fleet.Row {
		t.Helper()
		must(t, err)
		t.Logf("%s: %s, latency %s to %s, %d writes, %d KiB, CPU %s, %d MiB", row.Scenario, row.Took,
			row.Quantile(0.5), row.Quantile(1), row.Writes, row.Bytes>>10, row.CPU, row.RSS>>10)
		t.Logf("the agent: %s to %s, CPU %s, %d MiB; the DNS server: CPU %s, %d MiB", row.LandedQuantile(0.5),
			row.LandedQuantile(1), row.Sites.Agent.CPU, row.Sites.Agent.RSS>>10, row.Sites.DNS.CPU, row.Sites.DNS.RSS>>10)
		if !row.Lost.None() || row.Behind > 0 {
			t.Errorf("%s: %d changes are behind at the agent, lost is %+v", row.Scenario, row.Behind, row.Lost)
		}
		return row
	}
	report(f.Run(ctx, b, "converge from empty", func() ([]*fleet.Arrival, error) { return nil, f.Connect(ctx) }))

	const changes = 5
	// A shard of this size is about as large as one may be: the first changes may have it halved, with writes of its own.
	// And from who has not the namespace endpoints are withheld.
	report(f.Run(ctx, b, "shards are halved", f.Change(ctx, changes)))
	row := report(f.Run(ctx, b, "a pod is replaced", f.Change(ctx, changes)))
	want := 0
	for k := range changes {
		want += size.Importers(fleet.Changed(k, size))
	}
	if row.Listings > int64(3*size.Clusters) {
		t.Errorf("%d of the writes say of deltas that they are there, expected three for each of %d clusters at most",
			row.Listings, size.Clusters)
	}
	if row.Writes-row.Listings != int64(want) || row.Late > 0 || want >= changes*(size.Clusters-1) {
		t.Errorf("%d pods replaced: %d writes, of which %d say of deltas that they are there, %d changes late; want %d, one "+
			"for each importer with the namespace, which not all have, and none late", changes, row.Writes, row.Listings,
			row.Late, want)
	}
	if row.Sites.Agent.CPU == 0 || row.Sites.Agent.RSS == 0 || row.Sites.DNS.RSS == 0 || len(row.Landed) == 0 ||
		row.LandedQuantile(0) < row.Quantile(0) {
		t.Errorf("a pod replaced: the agent had it after %v and used %+v, which is not of a real one", row.Landed, row.Sites)
	}
	// No Bundle that carries a service has more than 32 KiB, in a Work with its envelope, and none is empty.
	if each := row.Bytes / max(1, row.Writes); each < 1<<10 || each > 32<<10 {
		t.Errorf("a write has %d bytes, want 1 to 32 KiB", each)
	}
	row = report(f.Run(ctx, b, "a gateway has another address", f.MoveGateway(1)))
	if want := int64(size.Clusters - 1); row.Writes != want || row.Late > 0 {
		t.Errorf("a gateway has another address: %d writes, %d late; want %d, one for each other cluster", row.Writes,
			row.Late, want)
	}
	if each := row.Bytes / max(1, row.Writes); each < 1<<10 || each > 8<<10 {
		t.Errorf("a write has %d bytes, want 1 to 8 KiB for nine gateways", each)
	}
	report(f.Run(ctx, b, "a cluster's pods go", f.Withdraw(0, true)))
	report(f.Run(ctx, b, "they return", f.Withdraw(0, false)))

	b.Kill()
	b = start(ctx, t, f, program, dir)
	row = report(f.Run(ctx, b, "the controller restarts", func() ([]*fleet.Arrival, error) {
		return nil, b.Settled(ctx)
	}))
	if row.Writes != 0 {
		t.Errorf("the controller restarts: %d writes, though nothing has changed", row.Writes)
	}
	// That it works again is what makes the zero mean something.
	row = report(f.Run(ctx, b, "a pod is replaced after that", f.Change(ctx, 1)))
	if want := int64(size.Importers(fleet.Changed(0, size))); row.Late > 0 || row.Writes != want {
		t.Errorf("after the restart: %d writes, %d late; want %d and none late", row.Writes, row.Late, want)
	}
}

func start(ctx context.Context, t *testing.T, f *fleet.Fleet, program, dir string) *fleet.Broker {
	t.Helper()
	b, err := f.Start(ctx, program, dir)
	must(t, err)
	t.Cleanup(func() {
		if errs, err := b.Errors(); err != nil || len(errs) > 0 {
			t.Errorf("the controller logs errors: %q, %v", errs, err)
		}
		b.Kill()
	})
	must(t, b.Ready(ctx))
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
