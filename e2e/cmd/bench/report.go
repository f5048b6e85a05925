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
	Paths  []path
	Memory []memoryRow
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

func (r report) render() ([]byte, error) {
	functions := template.FuncMap{
		"ms":      func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) },
		"mb":      func(kilobytes int) string { return fmt.Sprintf("%.1f", float64(kilobytes)/1024) },
		"median":  median,
		"verdict": verdict,
		"ratio":   func(of, to []float64) float64 { return median(of) / median(to) },
		"within":  func(l latency) string { return verdict(l.HTTP.P50 <= aimP50 && l.HTTP.P99 <= aimP99) },
		"reaches": func(p path, to path) string {
			return verdict(median(p.One) >= p.Aim*median(to.One) && median(p.Four) >= p.Aim*median(to.Four))
		},
		"aim": memoryAim,
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

// memoryAim is the verdict on a process for which there is an aim, in resident megabytes.
func memoryAim(row memoryRow) string {
	aims := map[string]int{"sealane-agent node": 50, "sealane-controller": 80}
	aim, ok := aims[row.Loaded.Program]
	if !ok {
		return ""
	}
	return fmt.Sprintf("≤ %d: %s", aim, verdict(row.Loaded.RSS <= aim*1024))
}
