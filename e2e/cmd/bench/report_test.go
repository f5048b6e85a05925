// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReportSaysWhatWasMissed(t *testing.T) {
	r := report{
		Latency: []latency{{Exporter: "c2", Mode: "pull", Proxy: "iptables", MinSync: time.Second, Count: 30,
			Objects: quantiles{P50: 50 * time.Millisecond, P99: 60 * time.Millisecond},
			DNS:     quantiles{P50: 400 * time.Millisecond, P99: time.Second},
			HTTP:    quantiles{P50: 500 * time.Millisecond, P99: 1600 * time.Millisecond}}},
		Paths: []path{
			{Name: "reference", One: []float64{900, 1000, 1100}, Four: []float64{1000}, RTT: []float64{200},
				Cost: []float64{10}},
			{Name: "with pods", One: []float64{900, 1000, 1100}, Four: []float64{1000}, RTT: []float64{400},
				Cost: []float64{20}},
			{Name: "gateways", Aim: 0.95, One: []float64{864, 960, 1056}, Four: []float64{950}, RTT: []float64{300}},
			{Name: "workers", Aim: 0.80, One: []float64{711, 790, 869}, Four: []float64{900}, RTT: []float64{400},
				Cost: []float64{12}},
		},
		Memory: []memoryRow{
			{Settled: process{Program: "sealane-controller", RSS: 90 << 10}},
			{Loaded: process{RSS: 200 << 10}, Settled: process{Program: "sealane-agent node", RSS: 49 << 10}},
			{Idle: process{RSS: 51 << 10}, Settled: process{Program: "sealane-agent node", RSS: 49 << 10}},
		},
	}
	text, err := r.render()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| c2 (pull) | iptables, 1s | 30 | 50 ms | 60 ms | 400 ms | 1000 ms | met | 500 ms | 1600 ms | 0 ms | **missed** |",
		"| reference | 1000 | 1.00 (1.00) | 1000 | 1.00 (1.00) | 200 | 1.00 (0.50) | 10.00 |  |",
		"| gateways | 960 | 0.96 (0.96) | 950 | 0.95 (0.95) | 300 | 1.50 (0.75) | 0.00 | ≥ 0.95: met |",
		"| workers | 790 | 0.79 (0.79) | 900 | 0.90 (0.90) | 400 | 2.00 (1.00) | 12.00 | ≥ 0.80: **missed** |",
		"| ≤ 80, 80: **missed** |",
		"| sealane-agent node |  | 0.0 | 200.0 | 49.0 | 0.0 | 0.0 | 0.0 | ≤ 45, 60: met |",
		"| sealane-agent node |  | 51.0 | 0.0 | 49.0 | 0.0 | 0.0 | 0.0 | ≤ 45, 60: **missed** |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("expected %q in:\n%s", want, text)
		}
	}
}

func TestReportOfChangesSaysWhatAnExportCosts(t *testing.T) {
	text, err := report{Settle: time.Minute, Changes: &changes{
		Exporter: "c2", Importer: "c1", Services: 1000, Count: 100, Boot: 90 * time.Second,
		Writes: []writes{{written{"c1", "endpointslices", "PATCH"}, 1, 900}},
		Export: cost{
			Writes:    []writes{{written{"karmada", "works", "PUT"}, 0.25, 1234.4}},
			Processor: []processorTime{{"kube-apiserver", 40 * time.Millisecond}, {"sealane-controller", 3 * time.Millisecond}},
		},
	}}.render()
	if err != nil {
		t.Fatal(err)
	}
	_, cost, found := strings.Cut(string(text), "What one export cost")
	if !found || !strings.Contains(cost, "until all were imported and 1m0s more") {
		t.Fatalf("no cost of an export:\n%s", text)
	}
	for _, want := range []string{
		"| karmada | works | PUT | 0.25 | 1234 |\n", "| kube-apiserver | 40ms |\n| sealane-controller | 3ms |\n",
	} {
		if !strings.Contains(cost, want) {
			t.Errorf("expected %q in:\n%s", want, cost)
		}
	}
	if strings.Contains(cost, "endpointslices") {
		t.Errorf("what a change costs is in what an export costs:\n%s", cost)
	}
}

func TestParseProcessorTime(t *testing.T) {
	// Fields 14 and 15 are 250 and 30; the command may hold anything.
	const rest = " S 1 9 9 0 -1 4194560 6 0 0 0 250 30 7 8 20 0 9 0 100 0 0"
	for _, c := range []struct {
		name, stat string
		want       time.Duration
		fails      bool
	}{
		{"a process", "42 (sealane-agent)" + rest, 2800 * time.Millisecond, false},
		{"a command with blanks and brackets", "42 (a) 1 (b c)" + rest, 2800 * time.Millisecond, false},
		{"too short", "42 (a) S 1 9 9 0 -1 4194560 6 0 0 0 250", 0, true},
		{"no number", strings.Replace("42 (a)"+rest, "250", "x", 1), 0, true},
		{"nothing", "", 0, true},
	} {
		got, err := parseProcessorTime(c.stat)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %s, %v", c.name, got, err)
		}
	}
}

func TestProcessorTimePerExport(t *testing.T) {
	before := map[string]time.Duration{"agent": time.Second, "idle": time.Second}
	after := map[string]time.Duration{"agent": 3 * time.Second, "idle": time.Second, "new": 4 * time.Second,
		"api": 2 * time.Second}
	got := processorTimePer(before, after, 1000)
	want := []processorTime{{"new", 4 * time.Millisecond}, {"agent", 2 * time.Millisecond}, {"api", 2 * time.Millisecond}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestReportLeavesOutWhatWasNotMeasured(t *testing.T) {
	text, err := report{GoBench: "BenchmarkPlan"}.render()
	if err != nil {
		t.Fatal(err)
	}
	if s := string(text); strings.Contains(s, "exporter") || strings.Contains(s, "Mbit/s") ||
		!strings.Contains(s, "BenchmarkPlan") {
		t.Errorf("unexpected report:\n%s", s)
	}
}

func TestObserveReadsAWatcher(t *testing.T) {
	created := 0
	create := func() error { created++; return nil }
	for _, c := range []struct {
		name, events string
		creations    int
		fails        bool
	}{
		{"all of it", "watching 1\ndns 2\nhttp 3\n", 1, false},
		{"a watcher that never watched", "", 0, true},
		{"a watcher that gave up", "watching 1\ndns 2\n", 1, true},
		{"something else", "watching 1\nhttp 2\n", 1, true},
		{"no time", "watching 1\ndns soon\n", 1, true},
	} {
		created = 0
		_, err := observe(bufio.NewReader(strings.NewReader(c.events)), create)
		if (err != nil) != c.fails || created != c.creations {
			t.Errorf("%s: error %v, %d creations", c.name, err, created)
		}
	}
}

func TestParseGroup(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       group
	}{
		{"version 1", "9:name=systemd:/other\n2:cpu,cpuacct:/k8s.io/abc\n0::/other\n", "/k8s.io/abc"},
		{"cpuset is not it", "3:cpuset:/other\n1:cpu:/k8s.io/abc\n", "/k8s.io/abc"},
		{"version 2", "0::/k8s.io/abc\n", "/k8s.io/abc"},
		{"neither", "", ""},
	} {
		got, err := parseGroup(c.text)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}
