// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
)

// machine is where and with what the figures were taken.
type machine struct {
	Date, Commit, CPU, Kernel, Go, WireGuard, Load string
	Cores                                          int
	MemoryMB                                       int
}

// labFacts are those that only a running lab knows.
type labFacts struct {
	Kubernetes, Karmada string
	// Cable is how the gateways encrypt: kernel or userspace.
	Cable string
}

func describe(ctx context.Context) (machine, error) {
	m := machine{Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), Go: runtime.Version(), Cores: runtime.NumCPU()}
	var err error
	if m.Commit, err = command(ctx, "git", "describe", "--always", "--tags", "--dirty"); err != nil {
		return machine{}, err
	}
	if m.Kernel, err = command(ctx, "uname", "-srm"); err != nil {
		return machine{}, err
	}
	if m.WireGuard, err = command(ctx, "go", "list", "-m", "-f", "{{.Version}}",
		"golang.zx2c4.com/wireguard"); err != nil {
		return machine{}, err
	}
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return machine{}, fmt.Errorf("describe the machine: %w", err)
	}
	for line := range strings.Lines(string(cpu)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return machine{}, fmt.Errorf("describe the machine: %w", err)
	}
	m.MemoryMB = field(memory, "MemTotal:") / 1024
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return machine{}, fmt.Errorf("describe the machine: %w", err)
	}
	m.Load, _, _ = strings.Cut(string(load), " ")
	return m, nil
}

func describeLab(ctx context.Context, l *lab.Lab) (labFacts, error) {
	var f labFacts
	var err error
	if f.Karmada, err = command(ctx, "go", "-C", "e2e/tools", "list", "-m", "-f", "{{.Version}}",
		"github.com/karmada-io/karmada"); err != nil {
		return labFacts{}, err
	}
	if f.Kubernetes, err = command(ctx, "go", "-C", "e2e/tools", "list", "-m", "-f", "{{.Version}}",
		"k8s.io/kubernetes"); err != nil {
		return labFacts{}, err
	}
	cable, err := l.Kubectl(ctx, "--context", l.Topology.Clusters[0].Name, "get", "gateways.sealane.io", "-o",
		"jsonpath={.items[0].status.implementation}")
	if err != nil {
		return labFacts{}, fmt.Errorf("ask a gateway how it encrypts: %w", err)
	}
	f.Cable = string(cable)
	return f, nil
}

// goBench runs the benchmarks of the packages whose speed matters, and returns their output.
func goBench(ctx context.Context) (string, error) {
	return command(ctx, "go", "test", "-run", "^$", "-bench", ".", "-benchmem", "-count=1", "-timeout=1h",
		"./dataplane/plan", "./lighthouse", "./controllers/fabric", "./controllers/services", "./memberagent/node")
}
