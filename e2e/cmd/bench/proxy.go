// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
)

// kube-proxy waits this long between two syncs: by default, and where somebody asked for less.
const (
	defaultMinSync = time.Second
	quickMinSync   = 100 * time.Millisecond
)

// latencies are those of exports from every cluster, with kube-proxy as it is by default and then with one
// that may sync more often, which is how it stays.
func latencies(ctx context.Context, l *lab.Lab, count int) ([]latency, error) {
	var rows []latency
	var errs []error
	for _, minSync := range []time.Duration{defaultMinSync, quickMinSync} {
		if minSync != defaultMinSync {
			if err := setMinSync(ctx, l, minSync); err != nil {
				return rows, errors.Join(append(errs, err)...)
			}
		}
		for _, c := range l.Topology.Clusters {
			samples, err := exportLatency(ctx, l, c, minSync.String(), count)
			if err != nil {
				errs = append(errs, fmt.Errorf("export latency from %s: %w", c.Name, err))
				continue
			}
			rows = append(rows, summarize(c, other(l, c), minSync, samples))
		}
	}
	return rows, errors.Join(errs...)
}

// setMinSync starts the kube-proxies anew with another minSyncPeriod.
func setMinSync(ctx context.Context, l *lab.Lab, period time.Duration) error {
	for _, c := range l.Topology.Clusters {
		for _, n := range c.Nodes {
			name := n.Name + "-kube-proxy"
			if err := l.StopProcess(ctx, name); err != nil {
				return fmt.Errorf("stop %s: %w", name, err)
			}
			path := filepath.Join(l.Dir, "nodes", n.Name, "etc/kubernetes/kube-proxy.yaml")
			config, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("configure %s: %w", name, err)
			}
			config = fmt.Appendf(config, "\niptables: {minSyncPeriod: %s}\nnftables: {minSyncPeriod: %s}\n", period, period)
			if err := os.WriteFile(path, config, 0o644); err != nil {
				return fmt.Errorf("configure %s: %w", name, err)
			}
			if err := l.StartProcess(name); err != nil {
				return fmt.Errorf("start %s: %w", name, err)
			}
		}
	}
	return nil
}
