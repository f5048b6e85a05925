// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// moment is the moment of the tests.
func moment() time.Time { return time.Unix(1_000_000, 0) }

// report is what a gateway wrote some time before the moment.
type report struct {
	age     time.Duration
	standby bool
	states  []v1alpha1.Connection
}

// disconnectedCase has the reports of each gateway, oldest first, and what follows from them.
type disconnectedCase struct {
	reports map[string][]report
	want    string
	// next is after what time that may change without a report; 0 is never.
	next time.Duration
}

func disconnectedCases() map[string]disconnectedCase {
	const connected, connecting, failed = v1alpha1.ConnectionConnected, v1alpha1.ConnectionConnecting, v1alpha1.ConnectionError
	to := func(cluster string, status v1alpha1.ConnectionStatus) v1alpha1.Connection {
		return v1alpha1.Connection{Cluster: cluster, Status: status}
	}
	return map[string]disconnectedCase{
		"nothing is known":              {nil, "", 0},
		"a gateway that lists nothing":  {map[string][]report{"n1": {{}}}, "", 90 * time.Second},
		"connected":                     {map[string][]report{"n1": {{states: []v1alpha1.Connection{to("c2", connected)}}}}, "", 90 * time.Second},
		"down":                          {map[string][]report{"n1": {{states: []v1alpha1.Connection{to("c2", failed)}}}}, "c2", 90 * time.Second},
		"never was connected":           {map[string][]report{"n1": {{states: []v1alpha1.Connection{to("c2", connecting)}}}}, "c2", 90 * time.Second},
		"this cluster":                  {map[string][]report{"n1": {{states: []v1alpha1.Connection{to("c1", failed)}}}}, "", 90 * time.Second},
		"one of two tunnels is down":    {map[string][]report{"n1": {{states: []v1alpha1.Connection{to("c2", failed), to("c2", connected)}}}}, "", 90 * time.Second},
		"an old report":                 {map[string][]report{"n1": {{age: 91 * time.Second, states: []v1alpha1.Connection{to("c2", failed)}}}}, "", 0},
		"a report that is about to end": {map[string][]report{"n1": {{age: 89 * time.Second, states: []v1alpha1.Connection{to("c2", failed)}}}}, "c2", time.Second},
		"only a standby says so":        {map[string][]report{"n1": {{standby: true, states: []v1alpha1.Connection{to("c2", failed)}}}}, "", 0},
		"the active one knows better": {map[string][]report{
			"n1": {{states: []v1alpha1.Connection{to("c2", failed), to("c3", failed)}}},
			"n2": {{standby: true, states: []v1alpha1.Connection{to("c2", connected)}}},
		}, "c2 c3", 90 * time.Second},
		"the agent restarted just now": {map[string][]report{"n1": {
			{states: []v1alpha1.Connection{to("c2", connected)}},
			{states: []v1alpha1.Connection{to("c2", connecting)}},
		}}, "", 10 * time.Second},
		"it restarted twice": {map[string][]report{"n1": {
			{states: []v1alpha1.Connection{to("c2", connected)}},
			{states: []v1alpha1.Connection{to("c2", connecting)}},
			{states: []v1alpha1.Connection{to("c2", connecting)}},
		}}, "", 10 * time.Second},
		"it restarted and found the tunnel down": {map[string][]report{"n1": {
			{states: []v1alpha1.Connection{to("c2", connected)}},
			{states: []v1alpha1.Connection{to("c2", connecting)}},
			{states: []v1alpha1.Connection{to("c2", failed)}},
			{states: []v1alpha1.Connection{to("c2", connecting)}},
		}}, "c2", 90 * time.Second},
	}
}

func TestDisconnected(t *testing.T) {
	now := moment()
	for name, tt := range disconnectedCases() {
		t.Run(name, func(t *testing.T) {
			gateways := map[string]gatewayReport{}
			for name, reports := range tt.reports {
				for _, r := range reports {
					g := &v1alpha1.Gateway{Status: v1alpha1.GatewayStatus{
						HAState:     v1alpha1.GatewayActive,
						ReportedAt:  ptr.To(metav1.NewTime(now.Add(-r.age))),
						Connections: r.states,
					}}
					if r.standby {
						g.Status.HAState = v1alpha1.GatewayStandby
					}
					gateways[name] = parseGateway(g, gateways[name], now)
				}
			}
			down, next := disconnected(gateways, "c1", now)
			if got := strings.Join(slices.Sorted(maps.Keys(down)), " "); got != tt.want {
				t.Errorf("down: %q, want %q", got, tt.want)
			}
			if tt.next == 0 && !next.IsZero() || tt.next != 0 && !next.Equal(now.Add(tt.next)) {
				t.Errorf("next change at %v, want in %v", next, tt.next)
			}
		})
	}
}

// A connection that stays Connecting counts as down after its grace, without a new report.
func TestConnectingGraceEnds(t *testing.T) {
	now := time.Now()
	up := parseGateway(gateway("n1", map[string]v1alpha1.ConnectionStatus{"c2": v1alpha1.ConnectionConnected}), gatewayReport{}, now)
	again := parseGateway(gateway("n1", map[string]v1alpha1.ConnectionStatus{"c2": v1alpha1.ConnectionConnecting}), up, now)
	reports := map[string]gatewayReport{"n1": again}
	_, next := disconnected(reports, "c1", now)
	if down, _ := disconnected(reports, "c1", next); len(down) != 1 {
		t.Errorf("down after %v: %v, want c2", next.Sub(now), down)
	}
}
