// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
)

// The aims for the latency of an export.
const (
	aimP50 = 600 * time.Millisecond
	aimP99 = 1500 * time.Millisecond
)

// latency is one row of the table of exports.
type latency struct {
	Exporter, Mode     string
	Proxy              string        // the importer's kube-proxy's mode
	MinSync            time.Duration // and its minSyncPeriod
	Count              int
	Objects, DNS, HTTP quantiles
}

type quantiles struct{ P50, P99, Max time.Duration }

func summarize(exporter, importer lab.Cluster, minSync time.Duration, samples []sample) latency {
	var objects, dns, http []time.Duration
	for _, s := range samples {
		objects, dns, http = append(objects, s.Objects), append(dns, s.DNS), append(http, s.HTTP)
	}
	return latency{
		Exporter: exporter.Name, Mode: exporter.Mode, Proxy: importer.KubeProxyMode, MinSync: minSync, Count: len(samples),
		Objects: quantilesOf(objects), DNS: quantilesOf(dns), HTTP: quantilesOf(http),
	}
}

func quantilesOf(d []time.Duration) quantiles {
	return quantiles{P50: percentile(d, 50), P99: percentile(d, 99), Max: percentile(d, 100)}
}

// percentile is the least value that at least p percent of all values do not exceed (nearest rank); zero
// without values.
func percentile[T cmp.Ordered](values []T, p float64) T {
	var none T
	if len(values) == 0 {
		return none
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

func median(values []float64) float64 { return percentile(values, 50) }

// ratio is the median of the rounds' ratios: what disturbed the machine in one round disturbed both.
func ratio(of, to []float64) float64 {
	ratios := make([]float64, 0, len(of))
	for i := range min(len(of), len(to)) {
		ratios = append(ratios, of[i]/to[i])
	}
	return median(ratios)
}
