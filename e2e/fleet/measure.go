// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Row is what one scenario took: by the broker, and of the wire.
type Row struct {
	Scenario string
	// Took is until the last write, of which Load was until nothing changed any more; latencies stand in Arrived where
	// changes were followed one by one.
	Took, Load time.Duration
	Arrived    []time.Duration
	// Late counts arrivals that were given up.
	Late int
	// Landed are the latencies to the EndpointSlices of sites, and Behind counts those that were given up.
	Landed []time.Duration
	Behind int
	// Sites is what a site's agent and DNS server have used.
	Sites SiteUsage
	// Lost is what importers have lost that its exporters still had.
	Lost    Lost
	Changes int
	Writes  int64
	// Deltas and Listings are those among the writes.
	Deltas, Listings int64
	Bytes            int64
	Requests         int64
	// CPU that the broker has taken, and APICPU that the API server has.
	CPU, APICPU time.Duration
	// RSS and Peak of the broker at the end, in KiB, and Growth of what etcd stores.
	RSS, Peak, Growth int64
	// Depth of the broker's queues at most, and on average in the first and the last third of the load.
	Depth, Early, Last float64
}

// Quantile of the latencies, 0 without any.
func (r *Row) Quantile(q float64) time.Duration { return quantile(r.Arrived, q) }

// LandedQuantile is that of the latencies to the EndpointSlices of sites.
func (r *Row) LandedQuantile(q float64) time.Duration { return quantile(r.Landed, q) }

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// patience is how long after the end of its load a scenario waits for changes to arrive.
const patience = 20 * time.Second

// Run takes what a scenario costs the broker, until nothing is written any more.
func (f *Fleet) Run(ctx context.Context, b *Broker, name string, do func() ([]*Arrival, error)) (Row, error) {
	before, err := b.Usage(ctx)
	if err != nil {
		return Row{}, err
	}
	api, err := f.API(ctx)
	if err != nil {
		return Row{}, err
	}
	sites, err := f.siteUsage()
	if err != nil {
		return Row{}, err
	}
	f.Tally.Take()
	begun := time.Now()
	depths := b.watchDepths(ctx)
	arrivals, err := do()
	row := Row{Scenario: name, Changes: max(1, len(arrivals)), Load: time.Since(begun)}
	row.Depth, row.Early, row.Last = thirds(depths())
	if err != nil {
		return Row{}, fmt.Errorf("%s: %w", name, err)
	}
	late := time.After(patience)
	for _, a := range arrivals {
		select {
		case <-a.Done():
		case <-late:
			late = closed
		case <-ctx.Done():
			return Row{}, fmt.Errorf("%s: %w", name, ctx.Err())
		}
		took, landed := f.Tally.Took(a)
		if len(took) < len(a.want) {
			row.Late++
		}
		if len(landed) < len(a.sites) {
			row.Behind++
		}
		row.Arrived, row.Landed = append(row.Arrived, took...), append(row.Landed, landed...)
	}
	f.Tally.giveUp()
	slices.Sort(row.Arrived)
	slices.Sort(row.Landed)
	last, err := f.Converged(ctx, b)
	if err != nil {
		return Row{}, fmt.Errorf("%s: %w", name, err)
	}
	row.Took = max(0, last.Sub(begun))
	after, err := b.Usage(ctx)
	if err != nil {
		return Row{}, err
	}
	counts := f.Tally.Take()
	row.Writes, row.Bytes, row.Deltas, row.Listings = counts.Writes, counts.Bytes, counts.Deltas, counts.Listings
	row.Requests, row.CPU = after.Requests-before.Requests, after.CPU-before.CPU
	row.RSS, row.Peak = after.RSS, after.Peak
	if row.Sites, err = f.siteUsage(); err != nil {
		return Row{}, err
	}
	row.Sites.Agent.CPU -= sites.Agent.CPU
	row.Sites.DNS.CPU -= sites.DNS.CPU
	row.Lost = f.Lost()
	now, err := f.API(ctx)
	row.Growth, row.APICPU = now.Stored-api.Stored, now.CPU-api.CPU
	return row, err
}

// closed is a time that has come.
var closed = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// watchDepths samples the depth of the broker's queues each second, until what it returns is called.
func (b *Broker) watchDepths(ctx context.Context) (end func() []float64) {
	ctx, cancel := context.WithCancel(ctx)
	var out []float64
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if sum, err := b.sums(ctx); err == nil {
					out = append(out, sum["workqueue_depth"])
				}
			}
		}
	})
	return func() []float64 {
		cancel()
		running.Wait()
		return out
	}
}

// thirds returns the most of samples, and the means of the first and the last third.
func thirds(samples []float64) (most, early, last float64) {
	if len(samples) < 3 {
		return 0, 0, 0
	}
	n := len(samples) / 3
	for i, s := range samples {
		most = max(most, s)
		if i < n {
			early += s / float64(n)
		}
		if i >= len(samples)-n {
			last += s / float64(n)
		}
	}
	return most, early, last
}
