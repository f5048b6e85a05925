// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/fleet"
)

// runOf is one of a fleet of 100 clusters.
func runOf(date, command string, took time.Duration, peak int64) table {
	t := measured(100, took)
	t.Machine = machine{Date: date, Command: command, Kernel: "6.18", Cores: 2}
	t.row(fastRate).Peak = peak
	t.row(slowRate).Last = took.Seconds()
	t.row(onePod).Sites.Agent.CPU = took
	return t
}

// TestFiguresAreMedians of the runs of a size, and what was lost is that of the worst.
func TestFiguresAreMedians(t *testing.T) {
	runs := []table{runOf("a", "-x", 9*time.Second, 100), runOf("b", "-x", time.Second, 300),
		runOf("c", "-x", 2*time.Second, 200)}
	runs[0].row(killed).Lost = fleet.Lost{Exporters: 1, First: []string{"m001"}}
	runs[1].row(publish).Arrived = nil
	runs[1].row(restart).Scenario = "nothing that the others have"
	before := slices.Clone(runs[2].Rows)
	found := medians(append([]table{measured(10, time.Minute)}, runs...))
	if len(found) != 2 || !reflect.DeepEqual(found[0], measured(10, time.Minute)) {
		t.Fatalf("expected that of one run as it was, and one of three: found %+v", found)
	}
	m := found[1]
	if want := (machine{Date: "a; b; c", Command: "-x", Kernel: "6.18", Cores: 2}); m.Machine != want {
		t.Errorf("found %+v, want %+v", m.Machine, want)
	}
	for name, c := range map[string]struct{ found, want any }{
		"p99":                      {m.row(onePod).Quantile(0.99), 2 * time.Second},
		"p99 of agents":            {m.row(onePod).LandedQuantile(0.99), 4 * time.Second},
		"p50, of two":              {m.row(publish).Quantile(0.5), 9 * time.Second},
		"time":                     {m.row(converge).Took, 2 * time.Second},
		"time, of two":             {m.row(restart).Took, 9 * time.Second},
		"memory":                   {m.row(fastRate).Peak, int64(200)},
		"queues":                   {m.row(slowRate).Last, 2.0},
		"an agent's processor":     {m.row(onePod).Sites.Agent.CPU, 2 * time.Second},
		"lost, though in one only": {m.row(killed).Lost, runs[0].row(killed).Lost},
		"a scenario's name":        {m.Rows[0].Scenario, converge},
	} {
		if !reflect.DeepEqual(c.found, c.want) {
			t.Errorf("%s: found %v, want %v", name, c.found, c.want)
		}
	}
	if !reflect.DeepEqual(runs[2].Rows, before) {
		t.Error("the last run has other figures than before")
	}
}

// TestRunsThatStay are the latest, and of the same flags.
func TestRunsThatStay(t *testing.T) {
	var tables []table
	for _, c := range []struct {
		date, command string
		runs          int
		want          []string
	}{
		{"a", "-x", 1, []string{"a"}},
		{"b", "-x", 3, []string{"a", "b"}},
		{"c", "-x", 3, []string{"a", "b", "c"}},
		{"d", "-x", 3, []string{"b", "c", "d"}},
		{"e", "-y", 3, []string{"e"}},
		{"f", "-y", 3, []string{"e", "f"}},
		{"g", "-y", 1, []string{"g"}},
	} {
		tables = withTable(tables, runOf(c.date, c.command, time.Second, 1), c.runs)
		var dates []string
		for i := range tables {
			dates = append(dates, tables[i].Machine.Date)
		}
		if !slices.Equal(dates, c.want) {
			t.Errorf("after %s: found %v, want %v", c.date, dates, c.want)
		}
	}
}
