// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
)

// processorTime is what the processes of a name have used, or use per export.
type processorTime struct {
	Program string
	Time    time.Duration
}

// cost is what exports cost all processes of a lab, Karmada's and the API servers' included, per export.
type cost struct {
	Writes    []writes
	Processor []processorTime
}

// processorTimes reads the processor time of every process of a lab since it started.
func processorTimes(l *lab.Lab) map[string]time.Duration {
	times := map[string]time.Duration{}
	for _, p := range l.Programs() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
		if err != nil {
			continue // it has ended
		}
		if used, err := parseProcessorTime(string(stat)); err == nil {
			times[p.Name] += used
		}
	}
	return times
}

// parseProcessorTime reads user and system time, fields 14 and 15 of proc(5)'s stat, in hundredths of a second.
func parseProcessorTime(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("expected at least 13 fields after the command, found %d", len(fields))
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parse processor time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// processorTimePer is the difference of two readings per export, the most first.
func processorTimePer(before, after map[string]time.Duration, exports int) []processorTime {
	var out []processorTime
	for program, used := range after {
		if used -= before[program]; used > 0 {
			out = append(out, processorTime{program, used / time.Duration(exports)})
		}
	}
	slices.SortFunc(out, func(a, b processorTime) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Program, b.Program))
	})
	return out
}
