// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"text/template"
	"time"
)

//go:embed nodes.md.tmpl
var layout string

// machine is where and with what the figures were taken.
type machine struct {
	Date, Commit, CPU, Kernel, Go, Load, Flags string
	Cores                                      int
}

func describe(ctx context.Context) (machine, error) {
	m := machine{Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), Go: runtime.Version(), Cores: runtime.NumCPU()}
	for to, command := range map[*string][]string{
		&m.Commit: {"git", "describe", "--always", "--tags", "--dirty"},
		&m.Kernel: {"uname", "-srm"},
		&m.CPU:    {"sed", "-n", `s/^model name\s*: //p;T;q`, "/proc/cpuinfo"},
		&m.Load:   {"cut", "-d", " ", "-f1", "/proc/loadavg"},
	} {
		out, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
		if err != nil {
			return m, fmt.Errorf("describe the machine: %s: %w", strings.Join(command, " "), err)
		}
		*to = strings.TrimSpace(string(out))
	}
	return m, nil
}

// write writes the figures, also to the terminal.
func write(out string, m machine, rows []row) error {
	t, err := template.New("nodes").Funcs(template.FuncMap{
		"mib":     func(kib int) string { return fmt.Sprintf("%.1f", float64(kib)/1024) },
		"kib":     func(bytes int64) string { return fmt.Sprintf("%.0f", float64(bytes)/1024) },
		"percent": func(part float64) string { return fmt.Sprintf("%.2f %%", 100*part) },
		"seconds": func(d time.Duration) string {
			if d == 0 {
				return ""
			}
			return fmt.Sprintf("%.1f", d.Seconds())
		},
	}).Parse(layout)
	if err != nil {
		return fmt.Errorf("parse the layout of the figures: %w", err)
	}
	var text bytes.Buffer
	if err := t.Execute(&text, struct {
		Machine machine
		Rows    []row
	}{m, rows}); err != nil {
		return fmt.Errorf("render the figures: %w", err)
	}
	fmt.Println(text.String())
	if out == "" {
		return nil
	}
	if err := os.WriteFile(out, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	return nil
}
