// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// exportMany has c1 export services of one pod each, and waits until c3 imports them.
func (f *fleet) exportMany(services int) []v1alpha1.Export {
	f.t.Helper()
	all := make([]v1alpha1.Export, 0, services)
	for i := range services {
		all = append(all, export("sample", fmt.Sprintf("web-%d", i), fmt.Sprintf("10.101.%d.%d", i/250, 1+i%250),
			fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250)))
	}
	f.export("c1", all...)
	f.eventually("c3 imports all", func() bool {
		for i := range all {
			// The last of a shard tells of the others: they come in one Bundle.
			if i%100 == 99 && f.imported("c3", all[i].Name) == nil {
				return false
			}
		}
		return true
	})
	f.settled()
	return all
}

// change gives one of c1's exports another pod and waits until the others import it.
func (f *fleet) change(all []v1alpha1.Export, at, round int) {
	f.t.Helper()
	ip := fmt.Sprintf("10.1.%d.%d", 100+round/250%100, 1+round%250)
	f.mu.Lock()
	all[at] = export("sample", all[at].Name, all[at].ClusterIPs[0], ip)
	f.exports["c1"] = slices.Clone(all)
	f.mu.Unlock()
	f.eventually("c2 and c3 import the pod", func() bool {
		for _, c := range []string{"c2", "c3"} {
			if i := f.imported(c, all[at].Name); i == nil || i.Clusters[0].Backends[0].Addresses[0].IP != ip {
				return false
			}
		}
		return true
	})
}

// TestOneEndpointIsOneWritePerImporter, and no request more: what a Work is before, the cache knows.
func TestOneEndpointIsOneWritePerImporter(t *testing.T) {
	f := newFleet(t)
	f.connect(3)
	all := f.exportMany(100)
	f.mu.Lock()
	f.reads = 0
	f.mu.Unlock()
	f.change(all, 42, 1)
	writes := ""
	f.never("more Works are written", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		before := writes
		writes = fmt.Sprint(f.writes)
		return before != "" && writes != before
	})
	if writes != "map[c2 PUT:1 c3 PUT:1]" {
		t.Errorf("writes of Works: %s", writes)
	}
	if f.mu.Lock(); f.reads > 0 {
		t.Errorf("%d Works are read from the API server", f.reads)
	}
	f.mu.Unlock()
}

// BenchmarkEndpointChange says what one changed endpoint costs the Karmada API: Works written by the broker
// and their bytes. Its time is that of the test's own slow agents, too.
func BenchmarkEndpointChange(b *testing.B) {
	for _, services := range []int{100, 1000} {
		b.Run(fmt.Sprintf("services=%d/members=3/shards=4", services), func(b *testing.B) {
			f := newFleet(b)
			f.connect(3)
			all := f.exportMany(services)
			f.counted()
			before := f.sent
			rounds := 0
			for b.Loop() {
				f.change(all, rounds%len(all), rounds)
				rounds++
			}
			writes := 0
			for _, n := range f.counted() {
				writes += n
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			b.ReportMetric(float64(writes)/float64(rounds), "writes/op")
			b.ReportMetric(float64(f.sent-before)/float64(rounds), "bytes/op")
		})
	}
}
