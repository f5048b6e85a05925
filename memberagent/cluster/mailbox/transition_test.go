// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestLastTransitionOfAConnection: while the connection to a cluster is what it was, it has not changed, whichever
// gateway carries it; and when it changes, gateways say when.
func TestLastTransitionOfAConnection(t *testing.T) {
	const (
		connected = v1alpha1.ConnectionConnected
		failed    = v1alpha1.ConnectionError
	)
	ago := func(seconds int) *metav1.Time {
		return ptr.To(metav1.NewTime(now.Add(-time.Duration(seconds) * time.Second)))
	}
	gw := func(name string, status v1alpha1.ConnectionStatus, at *metav1.Time) v1alpha1.Gateway {
		g := gateway(name, 0, v1alpha1.GatewayActive, status)
		g.Status.Connections[0].LastTransitionTime = at
		return g
	}
	for _, c := range []struct {
		name     string
		last     v1alpha1.ConnectionStatus // 1000 s ago
		gateways []v1alpha1.Gateway
		want     int // seconds ago
	}{
		{"the first report", "", []v1alpha1.Gateway{gw("a", connected, ago(50))}, 50},
		{"it has connected", failed, []v1alpha1.Gateway{gw("a", connected, ago(3))}, 3},
		{"by the first of two gateways", failed, []v1alpha1.Gateway{gw("a", connected, ago(3)), gw("b", connected, ago(7)),
			gw("c", failed, ago(500))}, 7},
		{"both have lost it", connected, []v1alpha1.Gateway{gw("a", failed, ago(3)), gw("b", failed, ago(7))}, 3},
		{"another gateway carries it", connected, []v1alpha1.Gateway{gw("a", failed, ago(3)), gw("b", connected, ago(7))},
			1000},
		{"nothing new", connected, []v1alpha1.Gateway{gw("a", connected, ago(3))}, 1000},
		{"by an agent that tells no time", failed, []v1alpha1.Gateway{gw("a", connected, nil)}, 0},
		{"by a clock that is ahead", failed, []v1alpha1.Gateway{gw("a", connected, ago(-90))}, 0},
		{"nobody is heard of", connected, []v1alpha1.Gateway{silent(gw("a", connected, ago(3)))}, 0},
		{"by a node that is no more", failed, []v1alpha1.Gateway{gw("gone", connected, ago(3))}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := peeringInput(c.gateways...)
			if c.last != "" {
				in.Peering.Status.Connections = []v1alpha1.MemberConnection{{Cluster: "c2", Status: c.last,
					LastTransitionTime: ago(1000)}}
			}
			in.Now = now.Add(400 * time.Millisecond)
			got := PeeringStatus(in).Connections[0]
			if got.Cluster != "c2" || !got.LastTransitionTime.Equal(ago(c.want)) {
				t.Errorf("%s since %v, want %v", got.Status, got.LastTransitionTime, ago(c.want))
			}
		})
	}
}

// TestATransitionAloneIsNoNews: when a connection changed is written with the change, and else waits as
// measurements do.
func TestATransitionAloneIsNoNews(t *testing.T) {
	before := PeeringStatus(peeringInput(gateway("a", 0, v1alpha1.GatewayActive, v1alpha1.ConnectionConnected)))
	after := *before.DeepCopy()
	after.Connections[0].LastTransitionTime = ptr.To(metav1.NewTime(now.Add(-time.Hour)))
	if got := paceOf(before, after); got != measuredPace {
		t.Errorf("another time is written after %s, want %s", got, measuredPace)
	}
	after.Connections[0].Status = v1alpha1.ConnectionError
	if got := paceOf(before, after); got != pace {
		t.Errorf("another status is written after %s, want %s", got, pace)
	}
}
