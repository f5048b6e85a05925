// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/ipsec"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
)

// Tunnel is a connection with its counters.
type Tunnel struct {
	connection v1alpha1.Connection
	peer       kernel.PeerState
}

// Metrics of the node agent.
type Metrics struct {
	syncs   *prometheus.HistogramVec
	changes *prometheus.CounterVec
	tunnels atomic.Pointer[[]Tunnel]
	tracked atomic.Pointer[kernel.Tracked]
	// associations are those of cables by IPsec.
	associations atomic.Pointer[[]associations]

	state, cable, rtt, loss, received, sent, handshake, mtu *prometheus.Desc
	trackedNow, trackedLimit, dropped                       *prometheus.Desc
	established, rekeys, opened, sealed                     *prometheus.Desc
	byKernel, stays                                         *prometheus.Desc

	drops atomic.Pointer[func(context.Context) ([]kernel.Drops, error)]
}

// dropsPatience is for reading the counters of drops, which is done for each scrape.
const dropsPatience = 2 * time.Second

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	remote := []string{"remote_cluster", "slot"}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append(remote[:2:2], labels...), nil)
	}
	m := &Metrics{
		syncs: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sealane_node_sync_duration_seconds", Help: "Duration of making the node as planned.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 11),
		}, []string{"result"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sealane_node_changes_total", Help: "Changes of the node's network that were tried.",
		}, []string{"kind", "op"}),
		state:    desc("sealane_node_connection_state", "Whether the tunnel to a remote gateway is in a state.", "state"),
		cable:    desc("sealane_node_connection_cable", "1 for the cable that the tunnel to a gateway is by.", "cable"),
		rtt:      desc("sealane_node_connection_rtt_seconds", "Average round-trip time of the probes over the last minute."),
		loss:     desc("sealane_node_connection_loss_ratio", "Share of probes lost over the last minute."),
		received: desc("sealane_node_connection_received_bytes_total", "Bytes received through the tunnel."),
		sent:     desc("sealane_node_connection_sent_bytes_total", "Bytes sent through the tunnel."),
		mtu: desc("sealane_node_connection_path_mtu_bytes",
			"Size of the largest packet that passes through the tunnel, while larger ones are lost on the way."),
		handshake:   desc("sealane_node_connection_handshake_age_seconds", "Time since the last handshake."),
		established: desc("sealane_node_ipsec_established", "Whether there are security associations with a remote gateway."),
		byKernel:    desc("sealane_node_ipsec_kernel", "Whether the kernel encrypts what goes to a remote gateway by IPsec."),
		stays:       desc("sealane_node_ipsec_keys_stay", "Whether nothing renews the keys that the kernel goes on with."),
		rekeys:      desc("sealane_node_ipsec_rekeys_total", "Security associations that have taken the place of others."),
		opened:      desc("sealane_node_ipsec_received_bytes_total", "Bytes received within security associations."),
		sealed:      desc("sealane_node_ipsec_sent_bytes_total", "Bytes sent within security associations."),
		trackedNow: prometheus.NewDesc("sealane_node_conntrack_entries", "Connections that the node tracks, of any origin.",
			nil, nil),
		trackedLimit: prometheus.NewDesc("sealane_node_conntrack_limit",
			"Tracked connections at which the node drops new ones.", nil, nil),
		dropped: prometheus.NewDesc("sealane_node_dropped_packets_total",
			"Packets that the node's rules have dropped.", []string{"family", "chain"}, nil),
	}
	for _, c := range []prometheus.Collector{m.syncs, m.changes, m} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) synced(d time.Duration, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.syncs.WithLabelValues(result).Observe(d.Seconds())
}

func (m *Metrics) changed(c plan.Change) {
	m.changes.WithLabelValues(string(c.Kind), string(c.Op)).Inc()
}

func (m *Metrics) measured(t []Tunnel) { m.tunnels.Store(&t) }

// tracks notes how many connections the node tracks; the zero value says that nobody knows.
func (m *Metrics) tracks(t kernel.Tracked) { m.tracked.Store(&t) }

// countsDrops says how to read what the node's rules have dropped.
func (m *Metrics) countsDrops(read func(context.Context) ([]kernel.Drops, error)) {
	m.drops.Store(&read)
}

// collectDrops has nothing to tell where the counters cannot be read.
func (m *Metrics) collectDrops(out chan<- prometheus.Metric) {
	read := m.drops.Load()
	if read == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), dropsPatience)
	defer cancel()
	drops, err := (*read)(ctx)
	if err != nil {
		return
	}
	for _, d := range drops {
		out <- prometheus.MustNewConstMetric(m.dropped, prometheus.CounterValue, float64(d.Packets), d.Family.String(),
			d.Chain)
	}
}

// associations of a cable by IPsec.
type associations struct {
	cluster string
	slot    int
	state   ipsec.State
	stays   bool // nothing renews the keys
}

func (m *Metrics) associated(a []associations) { m.associations.Store(&a) }

func (m *Metrics) collectAssociations(out chan<- prometheus.Metric) {
	all := m.associations.Load()
	if all == nil {
		return
	}
	for _, a := range *all {
		labels := []string{a.cluster, strconv.Itoa(a.slot)}
		for d, is := range map[*prometheus.Desc]bool{m.established: a.state.Up, m.byKernel: a.state.Kernel,
			m.stays: a.stays} {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, map[bool]float64{true: 1}[is], labels...)
		}
		for d, n := range map[*prometheus.Desc]int64{m.rekeys: int64(a.state.Rekeys), m.opened: a.state.Received,
			m.sealed: a.state.Sent} {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
		}
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.state, m.cable, m.rtt, m.loss, m.received, m.sent, m.handshake, m.mtu,
		m.trackedNow, m.trackedLimit, m.dropped, m.established, m.rekeys, m.opened, m.sealed,
		m.byKernel, m.stays} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	if t := m.tracked.Load(); t != nil && t.Limit > 0 {
		out <- prometheus.MustNewConstMetric(m.trackedNow, prometheus.GaugeValue, float64(t.Connections))
		out <- prometheus.MustNewConstMetric(m.trackedLimit, prometheus.GaugeValue, float64(t.Limit))
	}
	m.collectDrops(out)
	m.collectAssociations(out)
	tunnels := m.tunnels.Load()
	if tunnels == nil {
		return
	}
	for _, t := range *tunnels {
		labels := []string{t.connection.Cluster, strconv.Itoa(int(t.connection.Slot))}
		gauge := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, more ...string) {
			out <- prometheus.MustNewConstMetric(d, kind, v, append(labels[:2:2], more...)...)
		}
		for _, state := range []v1alpha1.ConnectionStatus{
			v1alpha1.ConnectionConnecting, v1alpha1.ConnectionConnected, v1alpha1.ConnectionError,
		} {
			is := 0.0
			if t.connection.Status == state {
				is = 1
			}
			gauge(m.state, prometheus.GaugeValue, is, string(state))
		}
		gauge(m.cable, prometheus.GaugeValue, 1, string(cmp.Or(t.connection.Cable, v1alpha1.CableWireGuard)))
		if rtt := t.connection.RTT; rtt != nil {
			gauge(m.rtt, prometheus.GaugeValue, (time.Duration(rtt.Avg) * time.Microsecond).Seconds())
		}
		gauge(m.loss, prometheus.GaugeValue, float64(t.connection.LossPercent)/100)
		gauge(m.received, prometheus.CounterValue, float64(t.peer.ReceivedBytes))
		gauge(m.sent, prometheus.CounterValue, float64(t.peer.SentBytes))
		if t.connection.MTU > 0 {
			gauge(m.mtu, prometheus.GaugeValue, float64(t.connection.MTU))
		}
		// That of IPsec is when associations came up, which are rekeyed without another one.
		if !t.peer.LastHandshake.IsZero() && t.connection.Cable != v1alpha1.CableIPsec {
			gauge(m.handshake, prometheus.GaugeValue, time.Since(t.peer.LastHandshake).Seconds())
		}
	}
}
