// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/reach"
)

// TestLastTransitionOfAConnection: that an agent begins to probe anew is no change of a connection that it finds as the
// one before it left it, and everything else is.
func TestLastTransitionOfAConnection(t *testing.T) {
	const (
		connected  = v1alpha1.ConnectionConnected
		connecting = v1alpha1.ConnectionConnecting
		failed     = v1alpha1.ConnectionError
	)
	start := time.Unix(1e9, 0)
	to := func(gateway string, s v1alpha1.ConnectionStatus) v1alpha1.Connection {
		return v1alpha1.Connection{Cluster: "c2", Gateway: gateway, Status: s}
	}
	former := func(s v1alpha1.ConnectionStatus, reported time.Duration) v1alpha1.GatewayStatus {
		c := to("a", s)
		c.LastTransitionTime = ptr.To(metav1.NewTime(start.Add(-time.Hour)))
		return v1alpha1.GatewayStatus{ReportedAt: ptr.To(metav1.NewTime(start.Add(-reported))),
			Connections: []v1alpha1.Connection{c}}
	}
	const hour = -3600 // what the former agent says
	type look struct {
		second int
		status v1alpha1.ConnectionStatus
		want   int // seconds after the start
	}
	untimed := former(connected, time.Second)
	untimed.Connections[0].LastTransitionTime = nil
	for _, c := range []struct {
		name  string
		found v1alpha1.GatewayStatus
		looks []look
	}{
		{"a new gateway", v1alpha1.GatewayStatus{}, []look{{0, connecting, 0}, {2, connected, 2}, {50, connected, 2},
			{60, failed, 60}, {61, failed, 60}, {70, connected, 70}}},
		{"a restart", former(connected, time.Second), []look{{0, connecting, 0}, {2, connected, hour}, {3, connected, hour}}},
		{"a restart that nobody sees", former(connected, time.Second), []look{{0, connected, hour}}},
		{"a restart, and then a gap", former(connected, time.Second), []look{{0, connecting, 0}, {2, connected, hour},
			{4, connecting, 4}, {6, connected, 6}}},
		{"a restart in which it fails", former(connected, time.Second), []look{{0, connecting, 0}, {5, failed, 5},
			{8, connected, 8}}},
		{"a restart after which it takes long", former(connected, time.Second), []look{{0, connecting, 0},
			{int(reach.ConnectingGrace.Seconds()), connected, int(reach.ConnectingGrace.Seconds())}}},
		{"down before and after", former(failed, time.Second), []look{{0, connecting, 0}, {10, failed, hour}}},
		{"repaired by the restart", former(failed, time.Second), []look{{0, connecting, 0}, {2, connected, 2}}},
		{"a node that was off", former(connected, reach.ReportLifetime), []look{{0, connecting, 0}, {2, connected, 2}}},
		{"an agent that tells no time", untimed, []look{{0, connecting, 0}, {2, connected, 2}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			transitions := newTransitions(c.found, start)
			var before []v1alpha1.Connection
			for _, l := range c.looks {
				now := start.Add(time.Duration(l.second) * time.Second)
				// Others come and go beside it.
				connections := []v1alpha1.Connection{to("b", connecting), to("a", l.status)}
				transitions.stamp(connections, before, now.Add(400*time.Millisecond))
				if got := connections[1].LastTransitionTime.Sub(start); got != time.Duration(l.want)*time.Second {
					t.Errorf("%s at %d s has changed at %s, want %d s", l.status, l.second, got, l.want)
				}
				before = connections[1:]
			}
		})
	}
}
