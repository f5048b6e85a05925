// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/sealane-io/sealane/propagation"
)

// ReplacePod replaces a pod of service i in its first exporter, and returns the change on its way to all others that
// have the namespace; nil where Karmada does not reach the exporter.
func (f *Fleet) ReplacePod(i int) (*Arrival, error) {
	return f.replacePod(i, true)
}

// replacePod returns no change where nobody follows it.
func (f *Fleet) replacePod(i int, followed bool) (*Arrival, error) {
	cluster := f.Size.cluster(f.Size.exporters(i)[0])
	address, err := f.members[cluster].replacePod(i)
	if err != nil {
		return nil, err
	}
	var a *Arrival
	if followed && !f.members[cluster].silent() {
		importers, sites := f.importersOf(i)
		a = f.Tally.expect(address, importers, sites)
	}
	f.changed(cluster, i)
	return a, nil
}

// Changed is the service of which change k replaces a pod.
func Changed(k int, s Size) int { return k * 7 % s.Services }

// Change replaces a pod of one service after the other, each when the one before has arrived everywhere.
func (f *Fleet) Change(ctx context.Context, count int) func() ([]*Arrival, error) {
	return func() ([]*Arrival, error) {
		var out []*Arrival
		for k := range count {
			a, err := f.ReplacePod(Changed(k, f.Size))
			if err != nil {
				return nil, err
			}
			if a == nil {
				continue
			}
			out = append(out, a)
			select {
			case <-a.Done():
			case <-time.After(patience):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return out, nil
	}
}

// ChangeAll replaces a pod of each service, all at once.
func (f *Fleet) ChangeAll() ([]*Arrival, error) {
	var out []*Arrival
	for i := range f.Size.Services {
		a, err := f.ReplacePod(i)
		if err != nil {
			return nil, err
		}
		if a != nil {
			out = append(out, a)
		}
	}
	return out, nil
}

// Churn replaces pods at a rate, one service after the other.
func (f *Fleet) Churn(ctx context.Context, perSecond int, length time.Duration) func() ([]*Arrival, error) {
	return func() ([]*Arrival, error) {
		var out []*Arrival
		err := paced(ctx, perSecond, length, func(k int) error {
			a, err := f.ReplacePod(Changed(k, f.Size))
			if a != nil {
				out = append(out, a)
			}
			return err
		})
		return out, err
	}
}

// Noise has the first cluster replace pods at a rate, of whatever it exports first, and the second one each second. It
// returns the changes of the second alone.
func (f *Fleet) Noise(ctx context.Context, perSecond int, length time.Duration) func() ([]*Arrival, error) {
	return func() ([]*Arrival, error) {
		var of [2][]int
		for i := range f.Size.Services {
			if n := f.Size.exporters(i)[0]; n < len(of) {
				of[n] = append(of[n], i)
			}
		}
		if len(of[0]) == 0 || len(of[1]) == 0 {
			return nil, fmt.Errorf("expected the first two clusters to export something, found %+v", f.Size)
		}
		var out []*Arrival
		err := paced(ctx, perSecond, length, func(k int) error {
			if k%perSecond == perSecond/2 {
				a, err := f.replacePod(of[1][k/perSecond%len(of[1])], true)
				if err != nil {
					return err
				}
				out = append(out, a)
			}
			_, err := f.replacePod(of[0][k%len(of[0])], false)
			return err
		})
		return out, err
	}
}

// paced does something so often each second.
func paced(ctx context.Context, perSecond int, length time.Duration, do func(k int) error) error {
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for k := range int(length.Seconds() * float64(perSecond)) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := do(k); err != nil {
			return err
		}
	}
	return nil
}

// Withdraw takes all pods of a cluster away, or brings them back.
func (f *Fleet) Withdraw(n int, away bool) func() ([]*Arrival, error) {
	return func() ([]*Arrival, error) {
		cluster := f.Size.cluster(n)
		f.changed(cluster, f.members[cluster].withdrawPods(away)...)
		return nil, nil
	}
}

// MoveGateway gives the gateway of a cluster another address.
func (f *Fleet) MoveGateway(n int) func() ([]*Arrival, error) {
	return func() ([]*Arrival, error) {
		cluster := f.Size.cluster(n)
		m := f.members[cluster]
		m.mu.Lock()
		m.moves++
		address := fmt.Sprintf("192.168.%d.%d", n, 1+m.moves)
		m.facts.Endpoints[0].Addresses[0].IP = address
		m.facts.NodeCIDRs = []string{address + "/32"}
		m.mu.Unlock()
		a := f.Tally.expect(address, f.others(n), nil)
		f.poke(cluster, func(a *answering) bool { return a.kind == propagation.KindPeering })
		return []*Arrival{a}, nil
	}
}
