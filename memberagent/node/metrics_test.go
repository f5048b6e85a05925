// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/ipsec"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
)

// TestDropMetrics are read for each scrape, and missing where they cannot be read.
func TestDropMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string, want map[string]float64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			if f.GetName() != "sealane_node_dropped_packets_total" {
				continue
			}
			for _, s := range f.GetMetric() {
				labels := map[string]string{}
				for _, l := range s.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				got[labels["family"]+" "+labels["chain"]] = s.GetCounter().GetValue()
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	expect("before there is a kernel", nil)
	m.countsDrops(func(context.Context) ([]kernel.Drops, error) { return nil, errors.New("no nft") })
	expect("without nft", nil)
	m.countsDrops(func(context.Context) ([]kernel.Drops, error) {
		return []kernel.Drops{{Family: plan.IPv4, Chain: "guard", Packets: 7}, {Family: plan.IPv6, Chain: "host"}}, nil
	})
	expect("with it", map[string]float64{"ip guard": 7, "ip6 host": 0})
}

// TestAgeOfHandshakes is that of WireGuard's, by which an alert tells that keys are not renewed. Associations of IPsec
// get new keys and are as old as before.
func TestAgeOfHandshakes(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	of := func(cluster string, cable v1alpha1.CableDriver) Tunnel {
		return Tunnel{connection: v1alpha1.Connection{Cluster: cluster, Cable: cable, Status: v1alpha1.ConnectionConnected},
			peer: kernel.PeerState{LastHandshake: time.Now().Add(-time.Hour)}}
	}
	m.measured([]Tunnel{of("c2", v1alpha1.CableWireGuard), of("c3", v1alpha1.CableIPsec)})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var clusters []string
	for _, f := range families {
		for _, s := range f.GetMetric() {
			if f.GetName() == "sealane_node_connection_handshake_age_seconds" {
				clusters = append(clusters, s.GetLabel()[0].GetValue())
			}
		}
	}
	if !slices.Equal(clusters, []string{"c2"}) {
		t.Errorf("handshakes of %v, want those of c2 alone", clusters)
	}
}

// TestTheCableOfAConnection is a series of its own, as counters go on by the same name when another cable follows.
func TestTheCableOfAConnection(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	m.measured([]Tunnel{{connection: v1alpha1.Connection{Cluster: "c2", Slot: 1, Cable: v1alpha1.CableIPsec}},
		{connection: v1alpha1.Connection{Cluster: "c3"}}})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			if f.GetName() != "sealane_node_connection_cable" || s.GetGauge().GetValue() != 1 {
				continue
			}
			labels := map[string]string{}
			for _, l := range s.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			got[labels["remote_cluster"]+" "+labels["slot"]] += labels["cable"]
		}
	}
	if want := map[string]string{"c2 1": "ipsec", "c3 0": "wireguard"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestAssociationMetrics are there for each gateway to be reached by IPsec.
func TestAssociationMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	m.associated([]associations{{"c2", 1, ipsec.State{Up: true, Kernel: true, Rekeys: 2, Received: 30, Sent: 40}, true},
		{cluster: "c3"}})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			value := s.GetGauge().GetValue() + s.GetCounter().GetValue()
			got[f.GetName()+" "+s.GetLabel()[0].GetValue()+" "+s.GetLabel()[1].GetValue()] = value
		}
	}
	want := map[string]float64{
		"sealane_node_ipsec_established c2 1": 1, "sealane_node_ipsec_established c3 0": 0,
		"sealane_node_ipsec_kernel c2 1": 1, "sealane_node_ipsec_kernel c3 0": 0,
		"sealane_node_ipsec_keys_stay c2 1": 1, "sealane_node_ipsec_keys_stay c3 0": 0,
		"sealane_node_ipsec_rekeys_total c2 1": 2, "sealane_node_ipsec_rekeys_total c3 0": 0,
		"sealane_node_ipsec_received_bytes_total c2 1": 30, "sealane_node_ipsec_received_bytes_total c3 0": 0,
		"sealane_node_ipsec_sent_bytes_total c2 1": 40, "sealane_node_ipsec_sent_bytes_total c3 0": 0,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
