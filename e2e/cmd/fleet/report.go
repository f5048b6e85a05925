// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/template"
	"time"
)

//go:embed fleet.md.tmpl
var layout string

// machine is where and with what the figures were taken.
type machine struct {
	Date, Commit, CPU, Kernel, Go, Kubernetes, Karmada, Load, Command string
	Cores                                                             int
}

func describe(ctx context.Context, root string) (machine, error) {
	m := machine{Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), Go: runtime.Version(), Cores: runtime.NumCPU()}
	version := func(module string) []string {
		return []string{"go", "-C", "e2e/tools", "list", "-m", "-f", "{{.Version}}", module}
	}
	for to, command := range map[*string][]string{
		&m.Commit:     {"git", "describe", "--always", "--tags", "--dirty"},
		&m.Kernel:     {"uname", "-srm"},
		&m.Kubernetes: version("k8s.io/kubernetes"),
		&m.Karmada:    version("github.com/karmada-io/karmada"),
	} {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			return m, fmt.Errorf("describe the machine: %s: %w", strings.Join(command, " "), err)
		}
		*to = strings.TrimSpace(string(out))
	}
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m, fmt.Errorf("describe the machine: %w", err)
	}
	for line := range strings.Lines(string(cpu)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	return m, nil
}

// load is how many processes want a processor, on average of the last minute.
func load() (string, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", fmt.Errorf("read the load: %w", err)
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first, nil
}

// former reads the fleets of earlier runs, none where there is no such file.
func former(path string) ([]table, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the results of earlier runs: %w", err)
	}
	var tables []table
	if err := json.Unmarshal(text, &tables); err != nil {
		return nil, fmt.Errorf("read the results of earlier runs: %s: expected what --results has written: %w", path, err)
	}
	return tables, nil
}

// keep writes what former reads: of latencies not each one, of which there are a million.
func keep(path string, tables []table) error {
	if path == "" {
		return nil
	}
	kept := slices.Clone(tables)
	for i := range kept {
		kept[i].Rows = slices.Clone(kept[i].Rows)
		for k := range kept[i].Rows {
			r := &kept[i].Rows[k]
			r.Arrived, r.Landed = thinned(r.Arrived), thinned(r.Landed)
		}
	}
	text, err := json.MarshalIndent(kept, "", "\t")
	if err != nil {
		return fmt.Errorf("keep the results: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("keep the results: %w", err)
	}
	return nil
}

// quantiles are how many of many latencies are kept, so that p50 and p99 are what they were.
const quantiles = 200

func thinned(sorted []time.Duration) []time.Duration {
	if len(sorted) <= quantiles {
		return sorted
	}
	out := make([]time.Duration, quantiles)
	for k := range out {
		out[k] = sorted[k*len(sorted)/quantiles]
	}
	return out
}

// write writes the figures, of each size the medians of its runs, and the picture beside them.
func write(root, out string, runs []table) error {
	if out == "" {
		return nil
	}
	tables := medians(runs)
	functions := template.FuncMap{
		"ms":  func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) },
		"sec": func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) },
		"mb":  func(kib int64) string { return fmt.Sprintf("%.0f", float64(kib)/1024) },
		"each": func(total int64, of int) string {
			return fmt.Sprintf("%.1f", float64(total)/float64(of))
		},
		"eachms": func(d time.Duration, of int) string {
			return fmt.Sprintf("%.0f ms", float64(d.Microseconds())/1000/float64(of))
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
	path := filepath.Join(root, out)
	picture := strings.TrimSuffix(path, filepath.Ext(path)) + ".svg"
	var text bytes.Buffer
	if err := t.Execute(&text, struct {
		Picture string
		Goals   []goal
		Tables  []table
	}{filepath.Base(picture), goalsOf(tables), tables}); err != nil {
		return fmt.Errorf("render the figures: %w", err)
	}
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	if err := os.WriteFile(picture, plot(panelsOf(tables)), 0o644); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	fmt.Println("figures:", out)
	return nil
}
