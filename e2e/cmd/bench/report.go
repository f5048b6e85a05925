// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
	"time"
)

//go:embed report.md.tmpl
var layout string

// report is everything that was measured.
type report struct {
	Machine machine
	Lab     labFacts
	Latency []latency
	// Paths begin with the reference.
	Paths []path
	// Profiles are of the same paths.
	Profiles []profile
	Memory   []memoryRow
	// DNS and DNSMemory compare sealane-dns with CoreDNS's own plugin.
	DNS       []dnsRow
	DNSMemory []dnsMemory
	Changes   *changes
	// Settle is how long after the load memory was read again.
	Settle time.Duration
	// GoBench is the output of go test -bench.
	GoBench string
}

// write renders the figures. The file is replaced whole.
func (r report) write(file string) error {
	text, err := r.render()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	fmt.Println("figures:", file)
	return nil
}

// AimP50 and AimP99 are those for the latency of an export.
func (report) AimP50() time.Duration { return aimP50 }

// AimP99 goes with AimP50.
func (report) AimP99() time.Duration { return aimP99 }

func (r report) render() ([]byte, error) {
	functions := template.FuncMap{
		"ms":      func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) },
		"mb":      func(kilobytes int) string { return fmt.Sprintf("%.1f", float64(kilobytes)/1024) },
		"median":  median,
		"rates":   rates,
		"p99s":    p99s,
		"verdict": verdict,
		"ratios": func(of, to, too []float64) string {
			return fmt.Sprintf("%.2f (%.2f)", ratio(of, to), ratio(of, too))
		},
		"within": func(q quantiles) string { return verdict(q.P50 <= aimP50 && q.P99 <= aimP99) },
		"reaches": func(p path, to path) string {
			return verdict(ratio(p.One, to.One) >= p.Aim && ratio(p.Four, to.Four) >= p.Aim)
		},
		"aim":      memoryAim,
		"profiled": profiled,
		"whats":    whats,
	}
	t, err := template.New("report").Funcs(functions).Parse(layout)
	if err != nil {
		return nil, fmt.Errorf("parse the report's layout: %w", err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, r); err != nil {
		return nil, fmt.Errorf("render the report: %w", err)
	}
	return out.Bytes(), nil
}

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "**missed**"
}

// memoryAim is the verdict on a process for which there is an aim, in resident megabytes: before the load, and some
// time after it.
func memoryAim(row memoryRow) string {
	aim, ok := map[string]struct{ idle, settled int }{
		"sealane-agent node": {45, 60}, "sealane-controller": {80, 80},
	}[row.Settled.Program]
	if !ok {
		return ""
	}
	return fmt.Sprintf("≤ %d, %d: %s", aim.idle, aim.settled,
		verdict(row.Idle.RSS <= aim.idle*1024 && row.Settled.RSS <= aim.settled*1024))
}
