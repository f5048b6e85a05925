// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// shards of the benchmarks' imports, as by default.
const shards = 4

// manyBundles returns the Bundles of n imports: of every four, one in ClusterIP mode and one headless with three
// endpoints in two clusters.
func manyBundles(n int) []*v1alpha1.Bundle {
	var bundles []*v1alpha1.Bundle
	for shard := range shards {
		bundles = append(bundles, bundle(v1alpha1.BundleName(int32(shard))))
	}
	for i := range n {
		name := fmt.Sprintf("service-%d", i)
		imp := clusterIP(name, exporter("c2", address(9, i)), exporter("c3", address(10, i)))
		switch i % 4 {
		case 1:
			imp.Mode = v1alpha1.ServiceModeClusterIP
			for j := range imp.Clusters {
				imp.Clusters[j].Backends = group(ready(imp.Clusters[j].ClusterIPs[0], ""))
			}
		case 3:
			imp = headless(name,
				withBackends("c2", ready(address(11, i), "h-0"), ready(address(12, i), "h-1")),
				withBackends("c3", ready(address(13, i), "h-0")))
		}
		b := bundles[(i/4)%shards]
		b.Spec.Imports = append(b.Spec.Imports, imp)
	}
	return bundles
}

func address(second, i int) string { return fmt.Sprintf("10.%d.%d.%d", second, i/250, 1+i%250) }

// manyImports returns an index of n imports, and its Bundles.
func manyImports(n int) (*index, []*v1alpha1.Bundle) {
	x := newIndex(nil)
	x.setPeering(peering("c1", v1alpha1.DNSSpec{}))
	bundles := manyBundles(n)
	for _, b := range bundles {
		x.setBundle(b)
		for _, imp := range b.Spec.Imports {
			var i int
			_, _ = fmt.Sscanf(imp.Name, "service-%d", &i)
			x.setServiceImport(&serviceImport{
				name: imp.Name, namespace: imp.Namespace,
				headless: imp.Settings.Type == v1alpha1.Headless, ips: []string{address(8, i)},
			})
		}
	}
	x.setGateway(gateway("n1", map[string]v1alpha1.ConnectionStatus{
		"c2": v1alpha1.ConnectionConnected, "c3": v1alpha1.ConnectionConnected,
	}))
	return x, bundles
}

func BenchmarkQuery(b *testing.B) {
	for _, imports := range []int{10, 1000, 10_000} {
		x, _ := manyImports(imports)
		l := serve(b, x)
		clusterSetIP := imports / 2 / 4 * 4
		for _, bench := range []struct {
			kind    string
			name    string
			service int
		}{
			{"ClusterSetIP", "service-%d.sample.svc.clusterset.local.", clusterSetIP},
			{"ClusterIP", "service-%d.sample.svc.clusterset.local.", clusterSetIP + 1},
			{"Cluster", "c2.service-%d.sample.svc.clusterset.local.", clusterSetIP},
			{"Headless", "service-%d.sample.svc.clusterset.local.", clusterSetIP + 3},
			{"Host", "h-1.c2.service-%d.sample.svc.clusterset.local.", clusterSetIP + 3},
			{"Unknown", "none-%d.sample.svc.clusterset.local.", 0},
		} {
			query := new(dns.Msg).SetQuestion(fmt.Sprintf(bench.name, bench.service), dns.TypeA)
			b.Run(fmt.Sprintf("%s/imports=%d", bench.kind, imports), func(b *testing.B) {
				w, ctx := &test.ResponseWriter{}, context.Background()
				b.ReportAllocs()
				for b.Loop() {
					_, _ = l.ServeDNS(ctx, w, query)
				}
			})
		}
	}
}

// BenchmarkChange measures one changed ClusterIP in one Bundle, from the decoded object to the Snapshot.
func BenchmarkChange(b *testing.B) {
	for _, imports := range []int{10, 1000, 10_000} {
		x, bundles := manyImports(imports)
		x.snapshot(time.Now(), true)
		b.Run(fmt.Sprintf("imports=%d", imports), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				bundles[0].Spec.Imports[0].Clusters[0].ClusterIPs[0] = address(20, i%60_000)
				x.setBundle(bundles[0])
				x.snapshot(time.Now(), true)
			}
		})
	}
}

// BenchmarkStart measures the first Snapshot of 10,000 imports in 512 halves of four shards.
func BenchmarkStart(b *testing.B) {
	const imports, halves = 10_000, 128
	bundles := map[string]*v1alpha1.Bundle{}
	for shard := range int32(shards) {
		own := bundle(v1alpha1.BundleName(shard))
		bundles[own.Name] = own
		for i := range halves {
			own.Spec.Halves = append(own.Spec.Halves, fmt.Sprintf("%07b", i))
			name := v1alpha1.HalfName(own.Name, own.Spec.Halves[i])
			bundles[name] = bundle(name)
		}
	}
	for i := range imports {
		name := fmt.Sprintf("service-%d", i)
		own := bundles[v1alpha1.BundleName(v1alpha1.Shard("sample", name, shards))]
		half := bundles[v1alpha1.BundleOf(own, "sample", name)]
		half.Spec.Imports = append(half.Spec.Imports, clusterIP(name, exporter("c2", address(9, i))))
	}
	known := peering("c1", v1alpha1.DNSSpec{})
	known.Spec.Shards = shards
	for b.Loop() {
		b.StopTimer()
		x := newIndex(nil)
		x.setPeering(known)
		for _, d := range bundles {
			for i := range d.Spec.Imports {
				x.setServiceImport(&serviceImport{name: d.Spec.Imports[i].Name, namespace: "sample", ips: []string{"10.8.0.1"}})
			}
			x.setBundle(d)
		}
		b.StartTimer()
		x.snapshot(time.Now(), true)
	}
}

// BenchmarkMemory measures what the plugin keeps per import.
func BenchmarkMemory(b *testing.B) {
	const imports = 10_000
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		x, _ := manyImports(imports)
		s, _ := x.snapshot(time.Now(), true)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/imports, "heap-B/import")
		runtime.KeepAlive(s)
		runtime.KeepAlive(x)
	}
}
