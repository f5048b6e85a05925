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
	"github.com/sealane-io/sealane/internal/reach"
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
	const connected, connecting, failed = v1alpha1.ConnectionConnected, v1alpha1.ConnectionConnecting,
		v1alpha1.ConnectionError
	to := func(cluster string, status v1alpha1.ConnectionStatus) v1alpha1.Connection {
		return v1alpha1.Connection{Cluster: cluster, Status: status}
	}
	return map[string]disconnectedCase{
		"nothing is known":             {nil, "", 0},
		"a gateway that lists nothing": {map[string][]report{"n1": {{}}}, "", 90 * time.Second},
		"connected": {map[string][]report{"n1": {{states: []v1alpha1.Connection{to("c2", connected)}}}},
			"", 90 * time.Second},
		"down": {map[string][]report{"n1": {{states: []v1alpha1.Connection{to("c2", failed)}}}},
			"c2", 90 * time.Second},
		"never was connected": {map[string][]report{"n1": {{states: []v1alpha1.Connection{to("c2", connecting)}}}},
			"c2", 90 * time.Second},
		"this cluster": {map[string][]report{"n1": {{states: []v1alpha1.Connection{to("c1", failed)}}}}, "",
			90 * time.Second},
		"one of two tunnels is down": {map[string][]report{"n1": {{states: []v1alpha1.Connection{to("c2", failed),
			to("c2", connected)}}}}, "", 90 * time.Second},
		"an old report": {map[string][]report{"n1": {{age: 91 * time.Second,
			states: []v1alpha1.Connection{to("c2", failed)}}}}, "", 0},
		"a report that is about to end": {map[string][]report{"n1": {{age: 89 * time.Second,
			states: []v1alpha1.Connection{to("c2", failed)}}}}, "c2", time.Second},
		"only a standby says so": {map[string][]report{"n1": {{standby: true,
			states: []v1alpha1.Connection{to("c2", failed)}}}}, "c2", 90 * time.Second},
		"the active one knows better": {map[string][]report{
			"n1": {{states: []v1alpha1.Connection{to("c2", failed), to("c3", failed)}}},
			"n2": {{standby: true, states: []v1alpha1.Connection{to("c2", connected)}}},
		}, "c2 c3", 90 * time.Second},
		"the agent restarted just now": {map[string][]report{"n1": {
			{states: []v1alpha1.Connection{to("c2", connected)}},
			{states: []v1alpha1.Connection{to("c2", connecting)}},
		}}, "", reach.ConnectingGrace},
		"it restarted twice": {map[string][]report{"n1": {
			{states: []v1alpha1.Connection{to("c2", connected)}},
			{states: []v1alpha1.Connection{to("c2", connecting)}},
			{states: []v1alpha1.Connection{to("c2", connecting)}},
		}}, "", reach.ConnectingGrace},
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
			x := newIndex(nil)
			x.self = "c1"
			var due time.Time
			for name, reports := range tt.reports {
				for _, r := range reports {
					g := v1alpha1.Gateway{Status: v1alpha1.GatewayStatus{
						HAState:     v1alpha1.GatewayActive,
						ReportedAt:  ptr.To(metav1.NewTime(now.Add(-r.age))),
						Connections: r.states,
					}}
					if r.standby {
						g.Status.HAState = v1alpha1.GatewayStandby
					}
					x.gateways[name] = g
					due = x.look(now)
				}
			}
			if got := strings.Join(slices.Sorted(maps.Keys(x.disconnected())), " "); got != tt.want {
				t.Errorf("down: %q, want %q", got, tt.want)
			}
			if tt.next == 0 && !due.IsZero() || tt.next != 0 && !due.Equal(now.Add(tt.next)) {
				t.Errorf("next change at %v, want in %v", due, tt.next)
			}
		})
	}
}
