// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"strings"
	"testing"
	"time"
)

func TestReportSaysWhatWasMissed(t *testing.T) {
	r := report{
		Latency: []latency{{Exporter: "c2", Mode: "pull", Count: 30,
			DNS:  quantiles{P50: 400 * time.Millisecond, P99: time.Second},
			HTTP: quantiles{P50: 500 * time.Millisecond, P99: 1600 * time.Millisecond}}},
		Paths: []path{
			{Name: "reference", One: []float64{900, 1000, 1100}, Four: []float64{1000}, RTT: []float64{200}},
			{Name: "gateways", Aim: 0.95, One: []float64{960}, Four: []float64{950}, RTT: []float64{300}},
			{Name: "workers", Aim: 0.80, One: []float64{790}, Four: []float64{900}, RTT: []float64{400}},
		},
		Memory: []memoryRow{{Loaded: process{Program: "sealane-controller", RSS: 90 << 10}}},
	}
	text, err := r.render()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| c2 (pull) | 30 | 400 ms | 1000 ms | 0 ms | 500 ms | 1600 ms | 0 ms | **missed** |",
		"| reference | 1000 | 1.00 | 1000 | 1.00 | 200 | 1.00 |  |",
		"| gateways | 960 | 0.96 | 950 | 0.95 | 300 | 1.50 | ≥ 0.95: met |",
		"| workers | 790 | 0.79 | 900 | 0.90 | 400 | 2.00 | ≥ 0.80: **missed** |",
		"| ≤ 80: **missed** |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("expected %q in:\n%s", want, text)
		}
	}
}

func TestReportLeavesOutWhatWasNotMeasured(t *testing.T) {
	text, err := report{GoBench: "BenchmarkPlan"}.render()
	if err != nil {
		t.Fatal(err)
	}
	if s := string(text); strings.Contains(s, "exporter") || strings.Contains(s, "Mbit/s") || !strings.Contains(s, "BenchmarkPlan") {
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
