// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sealane-io/sealane/internal/probe"
)

// units of what is measured: how a figure is written for people, and its unit in JSON.
var units = map[string]struct {
	name, shown string
	factor      float64
	digits      int
}{
	probe.Throughput: {"bits per second", "Mbit/s", 1e-6, 0},
	probe.Latency:    {"seconds", "µs", 1e6, 0},
	probe.DNS:        {"seconds", "ms", 1e3, 2},
}

// notes say what is to be compared with what. The figures are those of docs/benchmarks/README.md.
var notes = map[string]string{
	probe.Throughput: "on one machine with two processors, two network namespaces that are wired by hand with the same " +
		"WireGuard, in userspace, and one veth pair further out at each end, as in a pod, carried 1804 Mbit/s by one flow; " +
		"Sealane there 0.93 of it between pods of gateways, 0.88 between pods of workers (docs/benchmarks)",
	probe.Latency: "on one machine with two processors, a round trip by two network namespaces that are wired by hand " +
		"with the same WireGuard, in userspace, and one veth pair further out at each end, as in a pod, took 312 µs; " +
		"Sealane there 1.12 of it between pods of gateways, 1.37 between pods of workers (docs/benchmarks)",
	probe.DNS: "a path by hand has no names: the first row, a name of the cluster's own through the same resolver, is " +
		"what the others compare with",
}

// report prints what was measured, and fails if a path gave nothing.
func (b *bench) report(m measured) error {
	if b.output == outputJSON || b.output == outputYAML {
		if err := write(b.Out, b.output, table{subject: "bench", rows: m}); err != nil {
			return err
		}
	} else {
		columns := []string{"PATH", "MEAN", "P10", "P50", "P90", "P99", "UNIT", "MIN", "MAX", "SAMPLES", "FAILED"}
		t := table{subject: "bench", columns: columns, narrow: 7}
		for i := range m.Paths {
			t.cells = append(t.cells, benchCells(b.kind, &m.Paths[i]))
		}
		if err := write(b.Out, b.output, t); err != nil {
			return err
		}
		for i := range m.Paths {
			if s := &m.Paths[i]; s.Error != "" {
				fmt.Fprintf(b.Out, "%s: %d failed, the last: %s\n", s.Path, s.Failed, oneLine(s.Error))
			}
		}
		if within := m.Paths[0].P50; within > 0 {
			for _, s := range m.Paths[1:] {
				fmt.Fprintf(b.Out, "%s: the median is %.2f of that %s\n", s.Path, s.P50/within, m.Paths[0].Path)
			}
		}
		fmt.Fprintf(b.Out, "For comparison: %s.\n", m.Note)
	}
	var none []string
	for _, s := range m.Paths {
		if s.Samples == 0 {
			none = append(none, s.Path)
		}
	}
	if len(none) > 0 {
		return fmt.Errorf("bench %s: nothing could be measured: %s", b.kind, strings.Join(none, ", "))
	}
	return nil
}

func benchCells(kind string, s *probe.Summary) []string {
	unit := units[kind]
	cells := []string{s.Path}
	for _, v := range []float64{s.Mean, s.P10, s.P50, s.P90, s.P99} {
		cells = append(cells, strconv.FormatFloat(v*unit.factor, 'f', unit.digits, 64))
	}
	cells = append(cells, unit.shown)
	for _, v := range []float64{s.Min, s.Max} {
		cells = append(cells, strconv.FormatFloat(v*unit.factor, 'f', unit.digits, 64))
	}
	return append(cells, strconv.Itoa(s.Samples), strconv.Itoa(s.Failed))
}
