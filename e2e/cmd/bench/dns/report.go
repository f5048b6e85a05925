// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func summarize(took []time.Duration, all, cpu time.Duration) sample {
	if len(took) == 0 {
		return sample{}
	}
	slices.Sort(took)
	return sample{
		perSecond: float64(len(took)) / all.Seconds(),
		p50:       took[len(took)/2],
		p99:       took[len(took)*99/100],
		cpu:       cpu / time.Duration(len(took)),
	}
}

// median of one figure of the samples.
func median[T cmp.Ordered](samples []sample, figure func(sample) T) T {
	values := make([]T, 0, len(samples))
	for _, s := range samples {
		values = append(values, figure(s))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func perSecond(s sample) float64   { return s.perSecond }
func p50(s sample) time.Duration   { return s.p50 }
func p99(s sample) time.Duration   { return s.p99 }
func cpu(s sample) time.Duration   { return s.cpu }
func allocations(s sample) float64 { return s.allocations }

// aim for the ratio of queries per second.
const aim = 1.1

func report(o options, results []result) string {
	var b strings.Builder
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Fprintf(&b, `DNS: sealane-dns beside CoreDNS's own kubernetes plugin with the same zone as "multicluster"

Written by "go run -C e2e ./cmd/bench/dns" on %s, %s, %d processors, load average at the end %s.

Both servers run in one process without any other plugin and read a real API server: both the ServiceImports, the
kubernetes plugin the EndpointSlices, sealane-dns the Bundles. Three of four imports have a ClusterSetIP; the fourth is
headless with three endpoints in two clusters. Every name of a kind is asked for in turn, type A. The servers take turns
for %d rounds of %v; the figures are medians of the rounds.

"In the process" is one goroutine that hands parsed queries to the server's handler and packs the replies, without a
network. "Over UDP" is %d clients on the loopback interface, which share the processors with the servers, as does
whatever else the machine does. CPU is the processor time of the whole process per query, the clients' included, and
depends less on that. Allocations are those of the whole server; the plugin's own are the reply message.
The aim is a ratio of queries per second of at least %.1f.

`, time.Now().UTC().Format("2006-01-02 15:04 UTC"), runtime.Version(), runtime.NumCPU(), firstField(string(load)), o.rounds, o.duration, clients, aim)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "imports\tquery\tsealane q/s\tp50 µs\tp99 µs\tCPU µs\tallocs\tkubernetes q/s\tp50 µs\tp99 µs\tCPU µs\tallocs\tratio q/s\tratio p99\tratio CPU\taim\t")
	for _, r := range results {
		for _, c := range r.rows {
			ratio := median(c.sealane, perSecond) / median(c.stock, perSecond)
			verdict := "met"
			if ratio < aim {
				verdict = "missed"
			}
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%.2f\t%.2f\t%.2f\t%s\t\n", r.imports, c.kind, columns(c.sealane), columns(c.stock),
				ratio, float64(median(c.sealane, p99))/float64(median(c.stock, p99)),
				float64(median(c.sealane, cpu))/float64(median(c.stock, cpu)), verdict)
		}
	}
	_ = t.Flush()
	fmt.Fprintf(&b, "\nHeap that the imports take, from before a server starts until it answers for all of them:\n\n")
	t = tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "imports\tsealane-dns KiB\tkubernetes KiB\tsealane-dns KiB per 1,000\tkubernetes KiB per 1,000\t")
	for _, r := range results {
		per := func(heap int64) string {
			if r.imports < 1000 {
				return "-"
			}
			return fmt.Sprintf("%.0f", float64(heap)/1024*1000/float64(r.imports))
		}
		fmt.Fprintf(t, "%d\t%d\t%d\t%s\t%s\t\n", r.imports, r.sealaneHeap/1024, r.stockHeap/1024, per(r.sealaneHeap), per(r.stockHeap))
	}
	_ = t.Flush()
	return b.String()
}

// columns of one server's figures.
func columns(samples []sample) string {
	allocated := "-"
	if a := median(samples, allocations); a > 0 {
		allocated = fmt.Sprintf("%.1f", a)
	}
	micro := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Nanoseconds())/1000) }
	return fmt.Sprintf("%.0f\t%s\t%s\t%s\t%s", median(samples, perSecond),
		micro(median(samples, p50)), micro(median(samples, p99)), micro(median(samples, cpu)), allocated)
}

func firstField(s string) string {
	first, _, _ := strings.Cut(s, " ")
	return first
}
