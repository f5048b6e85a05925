// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
)

// translating is the table of a gateway with global addresses of services, each of which has a chain and two backends,
// and of pods, which lead there and back.
func translating(services, pods int) plan.Table {
	toService := plan.Map{Name: "services", Key: "ipv4_addr . inet_proto . inet_service", Value: "verdict"}
	toPod := plan.Map{Name: "globalpods", Key: "ipv4_addr", Value: "ipv4_addr"}
	toGlobal := plan.Map{Name: "podglobals", Key: "ipv4_addr", Value: "ipv4_addr"}
	chains := []plan.Chain{{Name: "services", Type: "nat", Hook: "prerouting", Priority: "dstnat-5", Rules: []string{
		`ip daddr . meta l4proto . th dport vmap @services`, `dnat to ip daddr map @globalpods`}}}
	for n := range services {
		global := fmt.Sprintf("120.1.%d.%d", n/250, n%250+1)
		c := plan.Chain{Name: "to-" + global, Rules: []string{fmt.Sprintf("dnat ip to jhash ip saddr . tcp sport mod 2 "+
			"seed 0x5ea1 map { 0 : 10.7.%[1]d.%[2]d . 8080, 1 : 10.7.%[1]d.%[3]d . 8080 }", n/250, n%250+1, n%250+2)}}
		chains = append(chains, c)
		toService.Elements = append(toService.Elements, plan.MapElement{Key: global + " . tcp . 80", Value: "goto " + c.Name})
	}
	for n := range pods {
		global, pod := fmt.Sprintf("120.1.%d.%d", 64+n/250, n%250+1), fmt.Sprintf("10.7.%d.%d", 64+n/250, n%250+1)
		toPod.Elements = append(toPod.Elements, plan.MapElement{Key: global, Value: pod})
		toGlobal.Elements = append(toGlobal.Elements, plan.MapElement{Key: pod, Value: global})
	}
	t := plan.Table{Family: plan.IPv4, Maps: []plan.Map{toPod, toGlobal, toService}, Chains: chains}
	for _, m := range t.Maps {
		slices.SortFunc(m.Elements, func(a, b plan.MapElement) int { return strings.Compare(a.Key, b.Key) })
	}
	slices.SortFunc(t.Chains, func(a, b plan.Chain) int { return strings.Compare(a.Name, b.Name) })
	return t
}

// BenchmarkGlobalnet is what the kernel of a gateway with global addresses takes: to list them anew, to look at them
// when nothing or one has changed, and to write one that has changed.
func BenchmarkGlobalnet(b *testing.B) {
	for _, addresses := range []int{10, 10_000} {
		services := addresses / 10
		k, _ := open(b)
		one := plan.Plan{Tables: []plan.Table{translating(services, addresses-services)}}
		other := plan.Plan{Tables: []plan.Table{translating(services, addresses-services)}}
		elements := other.Tables[0].Maps[0].Elements
		elements[len(elements)-1].Value = "10.7.250.1"
		reach(b, k, other)
		reach(b, k, one)
		want, have := other, one
		looker := k
		for _, part := range []struct {
			name   string
			before func() // and not measured
		}{
			{"list all", func() {
				var err error
				if looker, err = kernel.New(nil, "/proc/sys/net"); err != nil {
					b.Fatal(err)
				}
			}},
			{"look, nothing has changed", func() {}},
			{"look, one has changed", func() {
				if err := k.Do(b.Context(), plan.Diff(want, have)); err != nil {
					b.Fatal(err)
				}
				want, have = have, want
			}},
		} {
			b.Run(fmt.Sprintf("%s/addresses=%d", part.name, addresses), func(b *testing.B) {
				used := time.Duration(0)
				for b.Loop() {
					b.StopTimer()
					part.before()
					before := processorTime(b)
					b.StartTimer()
					seen, err := looker.Observe(b.Context())
					used += processorTime(b) - before
					if err != nil || len(seen.Tables) != 1 {
						b.Fatalf("%d tables, %v", len(seen.Tables), err)
					}
					if looker != k {
						looker.Close()
						looker = k
					}
				}
				b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
		reach(b, k, one)
		b.Run(fmt.Sprintf("change one/addresses=%d", addresses), func(b *testing.B) {
			before := processorTime(b)
			want, have := other, one
			for b.Loop() {
				if err := k.Do(b.Context(), plan.Diff(want, have)); err != nil {
					b.Fatal(err)
				}
				want, have = have, want
			}
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
		reach(b, k, plan.Plan{})
	}
}

// processorTime is what this process and those that it has waited for, nft, have used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var sum int64
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		if err := syscall.Getrusage(who, &usage); err != nil {
			b.Fatal(err)
		}
		sum += usage.Utime.Nano() + usage.Stime.Nano()
	}
	return time.Duration(sum)
}
