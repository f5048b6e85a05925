// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sealane-io/sealane/propagation"
)

// Row is what one scenario took: by the broker, and of the wire.
type Row struct {
	Scenario string
	// Took is until the last write; latencies stand in Arrived where changes were followed one by one.
	Took    time.Duration
	Arrived []time.Duration
	// Late counts arrivals that were given up.
	Late     int
	Changes  int
	Writes   int64
	Bytes    int64
	Requests int64
	CPU      time.Duration
	// RSS and Peak of the broker at the end, in KiB.
	RSS, Peak int64
}

// Quantile of the latencies, 0 without any.
func (r Row) Quantile(q float64) time.Duration {
	if len(r.Arrived) == 0 {
		return 0
	}
	return r.Arrived[min(len(r.Arrived)-1, int(q*float64(len(r.Arrived))))]
}

// Run takes what a scenario costs the broker, until nothing is written any more.
func (f *Fleet) Run(ctx context.Context, b *Broker, name string, do func() ([]*Arrival, error)) (Row, error) {
	before, err := b.Usage(ctx)
	if err != nil {
		return Row{}, err
	}
	f.Tally.Take()
	begun := time.Now()
	arrivals, err := do()
	if err != nil {
		return Row{}, fmt.Errorf("%s: %w", name, err)
	}
	row := Row{Scenario: name, Changes: max(1, len(arrivals))}
	for _, a := range arrivals {
		select {
		case <-a.Done():
		case <-time.After(10 * time.Second):
			row.Late++
		case <-ctx.Done():
			return Row{}, fmt.Errorf("%s: %w", name, ctx.Err())
		}
		row.Arrived = append(row.Arrived, f.Tally.Took(a)...)
	}
	slices.Sort(row.Arrived)
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
	row.Writes, row.Bytes = counts.Writes, counts.Bytes
	row.Requests, row.CPU = after.Requests-before.Requests, after.CPU-before.CPU
	row.RSS, row.Peak = after.RSS, after.Peak
	return row, nil
}

// Change replaces a pod of one service after the other, each when the one before has arrived everywhere.
func (f *Fleet) Change(count int) func() ([]*Arrival, error) {
	return func() ([]*Arrival, error) {
		var out []*Arrival
		for k := range count {
			a, err := f.ReplacePod(k * 7 % f.Size.Services)
			if err != nil {
				return nil, err
			}
			out = append(out, a)
			select {
			case <-a.Done():
			case <-time.After(10 * time.Second):
			}
		}
		return out, nil
	}
}

// Churn replaces pods at a rate, one service after the other.
func (f *Fleet) Churn(ctx context.Context, perSecond int, length time.Duration) func() ([]*Arrival, error) {
	return func() ([]*Arrival, error) {
		var out []*Arrival
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for k := range int(length.Seconds() * float64(perSecond)) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-tick.C:
			}
			a, err := f.ReplacePod(k * 7 % f.Size.Services)
			if err != nil {
				return nil, err
			}
			out = append(out, a)
		}
		return out, nil
	}
}

// Withdraw takes all pods of a cluster away, or brings them back.
func (f *Fleet) Withdraw(n int, away bool) func() ([]*Arrival, error) {
	return func() ([]*Arrival, error) {
		cluster := f.Size.cluster(n)
		f.members[cluster].withdrawPods(away)
		f.poke(cluster, func(a *answering) bool { return a.kind == propagation.KindBundle })
		return nil, nil
	}
}

// MoveGateway gives the gateway of a cluster another address.
func (f *Fleet) MoveGateway(n int) func() ([]*Arrival, error) {
	return func() ([]*Arrival, error) {
		cluster := f.Size.cluster(n)
		m := f.members[cluster]
		m.mu.Lock()
		address := fmt.Sprintf("192.168.%d.2", n)
		m.facts.Endpoints[0].Addresses[0].IP = address
		m.facts.NodeCIDRs = []string{address + "/32"}
		m.mu.Unlock()
		a := f.Tally.expect(address, f.Size.Clusters-1)
		f.poke(cluster, func(a *answering) bool { return a.kind == propagation.KindPeering })
		return []*Arrival{a}, nil
	}
}
