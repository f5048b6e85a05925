// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"maps"
	"sync"
	"time"
)

// unpublished are services that no cluster exports for the time being. Nil has none.
type unpublished struct {
	mu       sync.Mutex
	services map[int]bool
}

func (u *unpublished) has(service int) bool {
	if u == nil {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.services[service]
}

func (u *unpublished) set(service int, to bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.services == nil {
		u.services = map[int]bool{}
	}
	u.services[service] = to
}

// publishable are the services of simulated clusters alone.
func (f *Fleet) publishable() []int {
	var out []int
	for i := range f.Size.Services {
		real := false
		for _, n := range f.Size.exporters(i) {
			real = real || f.site(f.Size.cluster(n)) != nil
		}
		if !real {
			out = append(out, i)
		}
	}
	return out
}

// Unpublish has nobody export the services of simulated clusters any more, as where the policy of their ServiceExports
// is deleted.
func (f *Fleet) Unpublish() ([]*Arrival, error) {
	concerned := map[string][]int{}
	for _, i := range f.publishable() {
		f.unpublished.set(i, true)
		for _, n := range f.Size.exporters(i) {
			concerned[f.Size.cluster(n)] = append(concerned[f.Size.cluster(n)], i)
		}
	}
	for cluster := range maps.Keys(concerned) {
		f.changed(cluster, concerned[cluster]...)
	}
	return nil, nil
}

// Publish has them exported again, as Karmada does by one policy, spread over a time. Each is on its way to all that
// have the namespace.
func (f *Fleet) Publish(ctx context.Context, over time.Duration) func() ([]*Arrival, error) {
	return func() ([]*Arrival, error) {
		services := f.publishable()
		perSecond := max(1, int((float64(len(services))+over.Seconds()-1)/over.Seconds()))
		var out []*Arrival
		err := paced(ctx, perSecond, over, func(k int) error {
			if k >= len(services) {
				return nil
			}
			i := services[k]
			f.unpublished.set(i, false)
			a, err := f.replacePod(i, true)
			if err != nil {
				return err
			}
			out = append(out, a)
			for _, n := range f.Size.exporters(i)[1:] {
				f.changed(f.Size.cluster(n), i)
			}
			return nil
		})
		return out, err
	}
}
