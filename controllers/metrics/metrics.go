// SPDX-License-Identifier: Apache-2.0

// Package metrics holds what sealane-controller counts. No label is a service or an address, and only one is a cluster.
package metrics

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Metrics of the broker.
type Metrics struct {
	members  *prometheus.GaugeVec
	pairs    *prometheus.GaugeVec
	rollOut  *prometheus.GaugeVec
	written  *prometheus.CounterVec
	decide   *prometheus.HistogramVec
	services *prometheus.GaugeVec
	refused  *prometheus.CounterVec

	propagation *prometheus.HistogramVec
	mu          sync.Mutex
	// importers are the members of each ClusterSet, sorted: those that are labels of propagation.
	importers map[string][]string
}

// New registers the metrics of the broker.
func New(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		members: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sealane_members", Help: "Members by state: all, accepted, connected.",
		}, []string{"clusterset", "state"}),
		pairs: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sealane_pairs", Help: "Pairs of accepted members by state: connected, unknown, disconnected.",
		}, []string{"clusterset", "state"}),
		rollOut: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sealane_rollout_members",
			Help: "Members by where they stand with new node agents: done, waiting, turn, stopped.",
		}, []string{"clusterset", "state"}),
		written: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sealane_works_written_total", Help: "Works written, by the kind they carry.",
		}, []string{"kind"}),
		decide: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sealane_decide_duration_seconds", Help: "Time to decide, without reading and writing.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8),
		}, []string{"controller"}),
		services: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sealane_services", Help: "Services by kind: exports (per cluster), imports (merged services), conflicts.",
		}, []string{"clusterset", "shard", "kind"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sealane_reports_refused_total", Help: "Reports of members that were refused as a whole or in part, by kind.",
		}, []string{"kind"}),
	}
	m.propagation = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "sealane_propagation_seconds", Help: "Time from when the broker first saw a change of a cluster's exports " +
			"until an importing cluster answered that it has it.",
		Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 240},
	}, []string{"clusterset", "importer"})
	m.importers = map[string][]string{}
	r.MustRegister(m.members, m.pairs, m.rollOut, m.written, m.decide, m.services, m.refused, m.propagation)
	return m
}

// Propagated records how long a change of exports took to a cluster that imports them, if it is still a member: what is
// dropped by Importers does not come back.
func (m *Metrics) Propagated(set, importer string, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, is := slices.BinarySearch(m.importers[set], importer); !is {
		return
	}
	m.propagation.WithLabelValues(set, importer).Observe(d.Seconds())
}

// Importers drops what is recorded of clusters that are members of a ClusterSet no more.
func (m *Metrics) Importers(set string, members []string) {
	slices.Sort(members)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range m.importers[set] {
		if _, still := slices.BinarySearch(members, name); !still {
			m.propagation.DeleteLabelValues(set, name)
		}
	}
	m.importers[set] = members
}

// Members records how many members of a ClusterSet there are in each state.
func (m *Metrics) Members(set string, all, accepted, connected int32) {
	m.members.WithLabelValues(set, "all").Set(float64(all))
	m.members.WithLabelValues(set, "accepted").Set(float64(accepted))
	m.members.WithLabelValues(set, "connected").Set(float64(connected))
}

// Pairs records how many pairs of members of a ClusterSet there are in each state.
func (m *Metrics) Pairs(set string, all, connected, unknown int32) {
	m.pairs.WithLabelValues(set, "connected").Set(float64(connected))
	m.pairs.WithLabelValues(set, "unknown").Set(float64(unknown))
	m.pairs.WithLabelValues(set, "disconnected").Set(float64(all - connected - unknown))
}

// RollOut records how many members of a ClusterSet are in each state of a roll-out of node agents.
func (m *Metrics) RollOut(set string, count map[v1alpha1.RollOutState]int) {
	for _, state := range []v1alpha1.RollOutState{v1alpha1.RollOutDone, v1alpha1.RollOutWaiting, v1alpha1.RollOutInTurn,
		v1alpha1.RollOutStopped} {
		m.rollOut.WithLabelValues(set, strings.ToLower(string(state))).Set(float64(count[state]))
	}
}

// Wrote counts a Work that was written.
func (m *Metrics) Wrote(kind string) { m.written.WithLabelValues(kind).Inc() }

// Decided records how long a decision took.
func (m *Metrics) Decided(controller string, d time.Duration) {
	m.decide.WithLabelValues(controller).Observe(d.Seconds())
}

// Services records what one shard holds.
func (m *Metrics) Services(set, shard string, exports, imports, conflicts int) {
	m.services.WithLabelValues(set, shard, "exports").Set(float64(exports))
	m.services.WithLabelValues(set, shard, "imports").Set(float64(imports))
	m.services.WithLabelValues(set, shard, "conflicts").Set(float64(conflicts))
}

// Refused counts a report of a member that was not used.
func (m *Metrics) Refused(kind string) { m.refused.WithLabelValues(kind).Inc() }

// Forget drops a ClusterSet that is gone.
func (m *Metrics) Forget(set string) {
	m.members.DeletePartialMatch(prometheus.Labels{"clusterset": set})
	m.pairs.DeletePartialMatch(prometheus.Labels{"clusterset": set})
	m.rollOut.DeletePartialMatch(prometheus.Labels{"clusterset": set})
	m.services.DeletePartialMatch(prometheus.Labels{"clusterset": set})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.propagation.DeletePartialMatch(prometheus.Labels{"clusterset": set})
	delete(m.importers, set)
}
