// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// metrics of the cluster agent. No label ever holds the name of a service or an address.
type metrics struct {
	reports *prometheus.CounterVec
	changes *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sealane_mailbox_writes_total", Help: "Reports written, by the kind of the mailbox.",
		}, []string{"kind"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sealane_import_changes_total", Help: "Objects of imports written, by kind and operation.",
		}, []string{"kind", "operation"}),
	}
}

func (m *metrics) reported(kind string) func() {
	counter := m.reports.WithLabelValues(kind)
	return counter.Inc
}

func (m *metrics) changed(kind, operation string) { m.changes.WithLabelValues(kind, operation).Inc() }

// state reads numbers from the caches whenever metrics are collected.
type state struct {
	reader                      client.Reader
	imports, exports, conflicts *prometheus.Desc
}

func newState(reader client.Reader) *state {
	describe := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	return &state{
		reader:    reader,
		imports:   describe("sealane_imports", "Services that this cluster imports."),
		exports:   describe("sealane_exports", "Services that this cluster exports."),
		conflicts: describe("sealane_export_conflicts", "Exports of this cluster that conflict with another cluster's."),
	}
}

// Describe implements prometheus.Collector.
func (s *state) Describe(ch chan<- *prometheus.Desc) {
	ch <- s.imports
	ch <- s.exports
	ch <- s.conflicts
}

// Collect implements prometheus.Collector.
func (s *state) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	list := &v1alpha1.BundleList{}
	if err := s.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	var imports, exports, conflicts float64
	for _, b := range v1alpha1.InForce(list.Items) {
		imports += float64(len(b.Spec.Imports))
		exports += float64(len(b.Status.Exports))
		for _, c := range b.Spec.ExportConditions {
			if c.Type == string(mcs.ServiceExportConditionConflict) && c.Status == metav1.ConditionTrue {
				conflicts++
			}
		}
	}
	ch <- prometheus.MustNewConstMetric(s.imports, prometheus.GaugeValue, imports)
	ch <- prometheus.MustNewConstMetric(s.exports, prometheus.GaugeValue, exports)
	ch <- prometheus.MustNewConstMetric(s.conflicts, prometheus.GaugeValue, conflicts)
}
