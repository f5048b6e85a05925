// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/sealane-io/sealane/e2e/fleet"
)

// goal is what a fleet is meant to cost, and what it was found to.
type goal struct {
	Text string
	// Found is of each fleet, with whether it is as it should be.
	Found []string
}

// goalsOf compares what was measured with what was meant.
func goalsOf(tables []table) []goal {
	var out []goal
	for _, g := range goals() {
		found := goal{Text: g.text}
		for i := range tables {
			text, ok := "not measured", false
			if r := tables[i].row(g.scenario); r != nil {
				text, ok = g.check(&tables[i], r)
			}
			if !ok {
				text += " **missed**"
			}
			found.Found = append(found.Found, text)
		}
		out = append(out, found)
	}
	return out
}

// check says what was found in a row of a table, and whether that is good enough.
type check func(t *table, r *fleet.Row) (string, bool)

// wanted is what a scenario is measured by.
type wanted struct {
	text, scenario string
	check          check
}

func goals() []wanted {
	const most = 2 * time.Second
	return []wanted{
		{"one pod is replaced: one write for each other cluster with the namespace, beside those that say of the first " +
			"deltas that they are there", onePod, toImporters},
		{"and p50 is 0.5 s at most", onePod, quantile(0.5, 500*time.Millisecond)},
		{"and p99 2 s", onePod, quantile(0.99, most)},
		{"and in the EndpointSlices of real agents p99 2 s", onePod, landed(most)},
		{"10 pods a second: the queues do not grow", slowRate, func(_ *table, r *fleet.Row) (string, bool) {
			return fmt.Sprintf("%.1f to %.1f", r.Early, r.Last), r.Last <= r.Early+2
		}},
		{"and p99 is 2 s at most", slowRate, quantile(0.99, most)},
		{"100 pods a second: p99 is 2 s at most", fastRate, quantile(0.99, most)},
		{"a quiet cluster beside one with 100 pods a second: p99 is 2 s at most", quiet, quantile(0.99, most)},
		{"one policy exports all within a minute: p99 is 2 s at most", publish, quantile(0.99, most)},
		{"converge from empty in 120 s", converge, func(_ *table, r *fleet.Row) (string, bool) {
			return within(min(r.Load, r.Took), 2*time.Minute)
		}},
		{"with 500 MB of memory at most", converge, func(_ *table, r *fleet.Row) (string, bool) { return memory(r.Peak) }},
		{"and as much whatever the load is", fastRate, func(t *table, _ *fleet.Row) (string, bool) {
			var most int64
			for i := range t.Rows {
				most = max(most, t.Rows[i].Peak)
			}
			return memory(most)
		}},
		{"a restart writes nothing, before the roll call", restart, noWrites},
		{"and is done in 30 s", restart, func(_ *table, r *fleet.Row) (string, bool) {
			return within(r.Took, 30*time.Second)
		}},
		{"a second replica that takes over writes nothing, before the roll call", failOver, noWrites},
		{"a gateway has another address: one write for each other cluster", move, toOthers},
		{"and each is 64 KiB at most", move, func(_ *table, r *fleet.Row) (string, bool) {
			each := float64(r.Bytes) / float64(max(1, r.Writes)) / 1024
			return fmt.Sprintf("%.1f KiB", each), each <= 64
		}},
		{"and p99 is 2 s at most", move, quantile(0.99, most)},
		{"10 pods a second while etcd is compacted: p99 is 2 s at most", compact, quantile(0.99, most)},
		{"and no import is emptied, or loses an exporter that has pods", compact, nothingLost},
		{"nor where Karmada does not reach some clusters", silent, nothingLost},
		{"nor where it reaches them again", heard, nothingLost},
		{"nor where the controller is killed while half of the clusters join", killed, nothingLost},
	}
}

func within(d, limit time.Duration) (string, bool) {
	return fmt.Sprintf("%.2f s", d.Seconds()), d <= limit
}

// quantile of how long changes took to arrive, of which none may be late.
func quantile(q float64, limit time.Duration) check {
	return func(_ *table, r *fleet.Row) (string, bool) {
		text, ok := within(r.Quantile(q), limit)
		if r.Late > 0 {
			text = fmt.Sprintf("%s, %d late", text, r.Late)
		}
		return text, ok && r.Late == 0
	}
}

// landed is how long they took to real agents' EndpointSlices.
func landed(limit time.Duration) check {
	return func(_ *table, r *fleet.Row) (string, bool) {
		text, ok := within(r.LandedQuantile(0.99), limit)
		if r.Behind > 0 {
			text = fmt.Sprintf("%s, %d behind", text, r.Behind)
		}
		return text, ok && r.Behind == 0 && len(r.Landed) > 0
	}
}

func nothingLost(_ *table, r *fleet.Row) (string, bool) {
	text := fmt.Sprintf("%d of %d", r.Lost.Imports, r.Lost.Exporters)
	if r.Lost.Stale > 0 {
		text = fmt.Sprintf("%s, %d stale", text, r.Lost.Stale)
	}
	return text, r.Lost.None()
}

// memory in KiB, of which 500 MB are enough.
func memory(kib int64) (string, bool) {
	return fmt.Sprintf("%.0f MB", float64(kib)*1024/1e6), kib*1024 <= 500e6
}

func noWrites(_ *table, r *fleet.Row) (string, bool) { return fmt.Sprint(r.Writes), r.Writes == 0 }

// toOthers compares writes with one for each other cluster.
func toOthers(t *table, r *fleet.Row) (string, bool) {
	each := float64(r.Writes) / float64(r.Changes)
	return fmt.Sprintf("%.1f", each), each <= float64(t.Size.Clusters-1)
}

// toImporters compares the writes of replaced pods with how many clusters have the namespaces. That one more Bundle of
// deltas is there is said once and for all.
func toImporters(t *table, r *fleet.Row) (string, bool) {
	want := 0
	for k := range r.Changes {
		want += t.Size.Importers(fleet.Changed(k, t.Size))
	}
	writes := r.Writes - r.Listings
	return fmt.Sprintf("%.1f of %.1f", float64(writes)/float64(r.Changes), float64(want)/float64(r.Changes)),
		writes <= int64(want)
}
