// SPDX-License-Identifier: Apache-2.0

package reach_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/reach"
)

const (
	connected  = v1alpha1.ConnectionConnected
	connecting = v1alpha1.ConnectionConnecting
	failed     = v1alpha1.ConnectionError
	active     = v1alpha1.GatewayActive
	standby    = v1alpha1.GatewayStandby
)

func gateway(state v1alpha1.HAState, reportedAt time.Time, of ...v1alpha1.ConnectionStatus) v1alpha1.Gateway {
	g := v1alpha1.Gateway{Status: v1alpha1.GatewayStatus{HAState: state, ReportedAt: ptr.To(metav1.NewTime(reportedAt))}}
	for _, status := range of {
		g.Status.Connections = append(g.Status.Connections, v1alpha1.Connection{Cluster: "c2", Status: status})
	}
	return g
}

// silent is a gateway whose agent is heard of no more.
func silent(g v1alpha1.Gateway) v1alpha1.Gateway {
	g.Status.SilentSince = g.Status.ReportedAt
	return g
}

func TestNext(t *testing.T) {
	now := time.Unix(1e6, 0)
	old, fresh := now.Add(-reach.ReportLifetime), now.Add(-reach.ReportLifetime+time.Second)
	up, down := reach.Clusters{"c2": {Connected: true}}, reach.Clusters{"c2": {}}
	since := func(d time.Duration) reach.Clusters {
		return reach.Clusters{"c2": {Connected: true, ConnectingSince: now.Add(-d)}}
	}
	gateways := func(g ...v1alpha1.Gateway) []v1alpha1.Gateway { return g }
	for _, c := range []struct {
		name     string
		before   reach.Clusters
		gateways []v1alpha1.Gateway
		want     bool
		again    time.Duration
	}{
		{"nothing is known", nil, nil, true, 0},
		{"without a report", nil, gateways(v1alpha1.Gateway{}), true, 0},
		{"a gateway that names no cluster", nil, gateways(gateway(active, now)), true, reach.ReportLifetime},
		{"connected", nil, gateways(gateway(active, now, connected)), true, reach.ReportLifetime},
		{"connected again", down, gateways(gateway(active, now, connected)), true, reach.ReportLifetime},
		{"down", up, gateways(gateway(active, now, failed)), false, reach.ReportLifetime},
		{"down, soon unknown", up, gateways(gateway(active, fresh, failed)), false, time.Second},
		{"down, as was reported last", down, gateways(gateway(active, old, connected)), false, 0},
		{"up, as was reported last", up, gateways(gateway(active, old, failed)), true, 0},
		{"one of two tunnels works", up, gateways(gateway(active, now, failed, connected)), true, reach.ReportLifetime},
		{"one of two gateways works", up, gateways(gateway(active, now, failed), gateway(active, now, connected)), true,
			reach.ReportLifetime},
		{"a standby does not carry", up, gateways(gateway(active, now, failed), gateway(standby, now, connected)), false,
			reach.ReportLifetime},
		{"an active one that has gone", up, gateways(gateway(active, old, connected), gateway(standby, now, failed)), false,
			reach.ReportLifetime},
		{"an active one whose agent is silent", up,
			gateways(silent(gateway(active, now, connected)), gateway(standby, now, failed)), false, reach.ReportLifetime},
		{"down, as was reported before the agent fell silent", up, gateways(silent(gateway(active, now, failed))), true, 0},
		{"no gateway is active yet", down, gateways(gateway(standby, now, connected)), true, reach.ReportLifetime},
		{"never was connected", nil, gateways(gateway(active, now, connecting)), false, reach.ReportLifetime},
		{"connecting anew", up, gateways(gateway(active, now, connecting)), true, reach.ConnectingGrace},
		{"connecting for a while", since(5 * time.Second), gateways(gateway(active, now, connecting)), true,
			10 * time.Second},
		{"connecting for long", since(reach.ConnectingGrace), gateways(gateway(active, now, connecting)), false,
			reach.ReportLifetime},
		{"connecting after an error", down, gateways(gateway(active, now, connecting)), false, reach.ReportLifetime},
		{"a status of a later version", up, gateways(gateway(active, now, "Resting")), false, reach.ReportLifetime},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, again := c.before.Next(c.gateways, now)
			if got.Connected("c2") != c.want || again != c.again {
				t.Errorf("connected %v, again after %v; want %v and %v", got.Connected("c2"), again, c.want, c.again)
			}
			if !got.Equal(got) || got.Equal(reach.Clusters{"c2": {Connected: !c.want}}) {
				t.Error("Equal compares something else")
			}
		})
	}
}

// TestTheGraceEnds: asking again when told so is enough to see a cluster go down without any report.
func TestTheGraceEnds(t *testing.T) {
	now := time.Unix(1e6, 0)
	c, _ := reach.Clusters(nil).Next([]v1alpha1.Gateway{gateway(active, now, connected)}, now)
	report := []v1alpha1.Gateway{gateway(active, now, connecting)}
	c, again := c.Next(report, now)
	if !c.Connected("c2") {
		t.Fatal("down at once")
	}
	if c, _ = c.Next(report, now.Add(again)); c.Connected("c2") {
		t.Errorf("still connected after %v", again)
	}
}
