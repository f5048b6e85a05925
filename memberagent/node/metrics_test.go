// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

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
