// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"errors"
	"fmt"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// result of a query, as metrics count it.
type result uint8

const (
	resultSuccess result = iota
	resultNoData
	resultNameError
	resultRefused
	resultNotReady
	resultFallthrough
	results
)

var resultNames = [results]string{"success", "nodata", "nxdomain", "refused", "notready", "fallthrough"}

// queryTypes are the types that metrics tell apart; the last stands for all others.
var queryTypes = [...]uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeTXT, dns.TypeSOA, dns.TypeNS, dns.TypePTR,
	dns.TypeNone}

// measures are the plugin's metrics. Labels are bounded: no name, cluster or address is one.
type measures struct {
	queries     *prometheus.CounterVec
	byResult    [results][len(queryTypes)]prometheus.Counter
	latency     prometheus.Histogram
	services    prometheus.Gauge
	down        prometheus.Gauge
	build       prometheus.Histogram
	rejected    *prometheus.CounterVec
	watchErrors *prometheus.CounterVec
}

// newMeasures registers the metrics. After a reload of the Corefile the ones of before go on.
func newMeasures(reg prometheus.Registerer) (*measures, error) {
	m := &measures{
		queries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sealane_dns_queries_total",
			Help: "Queries for names of the clusterset, by result and type.",
		}, []string{"result", "type"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "sealane_dns_query_duration_seconds",
			Help:    "Time to answer a query for a name of the clusterset.",
			Buckets: prometheus.ExponentialBuckets(1e-6, 4, 9),
		}),
		services: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sealane_dns_services",
			Help: "Services that can be named.",
		}),
		down: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sealane_dns_disconnected_clusters",
			Help: "Clusters that are left out of answers because the gateway reports them disconnected.",
		}),
		build: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "sealane_dns_snapshot_duration_seconds",
			Help:    "Time to make the snapshot that queries read.",
			Buckets: prometheus.ExponentialBuckets(1e-5, 4, 8),
		}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sealane_dns_rejected_entries_total",
			Help: "Entries of objects left out because they are malformed, by kind.",
		}, []string{"kind"}),
		watchErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sealane_dns_watch_errors_total",
			Help: "Lists and watches of the API server that failed, by resource.",
		}, []string{"resource"}),
	}
	err := errors.Join(
		register(reg, &m.queries), register(reg, &m.latency), register(reg, &m.services),
		register(reg, &m.down), register(reg, &m.build), register(reg, &m.rejected), register(reg, &m.watchErrors))
	for r := range results {
		for t, qtype := range queryTypes {
			name := dns.TypeToString[qtype]
			if qtype == dns.TypeNone {
				name = "other"
			}
			m.byResult[r][t] = m.queries.WithLabelValues(resultNames[r], name)
		}
	}
	return m, err
}

// register registers a metric, or takes the one already registered under its name.
func register[C prometheus.Collector](reg prometheus.Registerer, c *C) error {
	err := reg.Register(*c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		existing, ok := already.ExistingCollector.(C)
		if !ok {
			return fmt.Errorf("register metric: another kind of metric has its name: %w", err)
		}
		*c = existing
		return nil
	}
	if err != nil {
		return fmt.Errorf("register metric: %w", err)
	}
	return nil
}

// count counts one query.
func (m *measures) count(r result, qtype uint16) {
	for t, known := range queryTypes {
		if known == qtype || known == dns.TypeNone {
			m.byResult[r][t].Inc()
			return
		}
	}
}
