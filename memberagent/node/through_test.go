// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// tunnelTo is one that is connected, and measured, to a gateway of a slot.
func tunnelTo(cluster string, slot int32) v1alpha1.Connection {
	return v1alpha1.Connection{Cluster: cluster, Gateway: fmt.Sprintf("%s-gw%d", cluster, slot), Slot: slot,
		Link: fmt.Sprintf("sl-ci%d", slot), Cable: v1alpha1.CableIPsec, Status: v1alpha1.ConnectionConnected, Active: true,
		Address: fmt.Sprintf("203.0.113.%d:4534", slot), RTT: &v1alpha1.RTT{Avg: 1}, LossPercent: 3, MTU: 1300,
		Traffic: &v1alpha1.Traffic{SentBytesPerSecond: 1}, Heard: ptr.To(true)}
}

// TestThroughRelays: a way to each cluster by each tunnel to its relay, among the tunnels in their order.
func TestThroughRelays(t *testing.T) {
	remotes := []topology.Remote{{Name: "c2", Behind: "c5"}, {Name: "c3", Behind: "c9"}, {Name: "c4"},
		{Name: "c5"}, {Name: "c6", Behind: "c5"}}
	all := throughRelays([]v1alpha1.Connection{tunnelTo("c4", 0), tunnelTo("c5", 0), tunnelTo("c5", 1)}, remotes)
	var got []string
	for _, c := range all {
		got = append(got, strings.TrimSuffix(fmt.Sprintf("%s/%s/%d>%s", c.Cluster, c.Gateway, c.Slot, c.Through), ">"))
	}
	want := []string{"c2/c5-gw0/0>c5", "c2/c5-gw1/1>c5", "c4/c4-gw0/0", "c5/c5-gw0/0", "c5/c5-gw1/1", "c6/c5-gw0/0>c5",
		"c6/c5-gw1/1>c5"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAWayThroughARelay is as the tunnel, of which it has nothing that is measured, or as what the relay reports,
// whichever is worse.
func TestAWayThroughARelay(t *testing.T) {
	const connected, failed = v1alpha1.ConnectionConnected, v1alpha1.ConnectionError
	for _, c := range []struct {
		tunnel, relay   v1alpha1.ConnectionStatus
		status          v1alpha1.ConnectionStatus
		reason, message string
	}{
		{connected, "", connected, "", ""},
		{connected, failed, failed, v1alpha1.ReasonRelayNotConnected,
			"the relay c5 reports of its own connection to c2: Error; look there"},
		{failed, "", failed, v1alpha1.ReasonProbesLost, "the relay c5 is not reached: no answer"},
		{failed, failed, failed, v1alpha1.ReasonProbesLost, "the relay c5 is not reached: no answer"},
		{v1alpha1.ConnectionConnecting, failed, v1alpha1.ConnectionConnecting, v1alpha1.ReasonProbesLost,
			"the relay c5 is not reached: no answer"},
	} {
		tunnel := tunnelTo("c5", 1)
		if tunnel.Status = c.tunnel; c.tunnel != connected {
			tunnel.Reason, tunnel.Message = v1alpha1.ReasonProbesLost, "no answer"
		}
		got := throughRelay(topology.Remote{Name: "c2", Behind: "c5", BehindStatus: c.relay}, tunnel)
		want := v1alpha1.Connection{Cluster: "c2", Through: "c5", Gateway: "c5-gw1", Slot: 1, Link: "sl-ci1",
			Cable: v1alpha1.CableIPsec, Address: "203.0.113.1:4534", Active: true, Status: c.status, Reason: c.reason,
			Message: c.message}
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("the tunnel is %s, the relay reports %q:\n%+v, want\n%+v", c.tunnel, c.relay, got, want)
		}
	}
}

// TestRelaysInForce: a node that fails to program what it is told goes on saying what it has, if that was said by the
// agent before it, and not before an agent that did not know of relays.
func TestRelaysInForce(t *testing.T) {
	a := &Agent{gateway: &v1alpha1.Gateway{Status: v1alpha1.GatewayStatus{Relays: "as before"}}}
	a.top.Relayed = []topology.Relayed{{Clusters: []string{"c1"}, With: []string{"c2", "c3"}}}
	want := v1alpha1.DigestOfRelays([]v1alpha1.RelayedClusters{{Clusters: []string{"c1"}, With: []string{"c2", "c3"}}})
	if got := a.relaysInForce(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	a.syncErr = errors.New("nft: no such set")
	if got := a.relaysInForce(); got != "as before" {
		t.Errorf("after a failed sync %q, want what was said before", got)
	}
	a.gateway.Status.Version, a.gateway.Status.RelaysVersion = "v0.1.0", "v0.2.0"
	if got := a.relaysInForce(); got != "" {
		t.Errorf("after a failed sync %q, want nothing of what a later agent than the last has said", got)
	}
}

// TestAWayThroughARelayIsNotTheTunnel to a gateway of the same name: when one takes the other's place, that is news.
func TestAWayThroughARelayIsNotTheTunnel(t *testing.T) {
	start := time.Unix(1e9, 0)
	before := []v1alpha1.Connection{{Cluster: "c2", Gateway: "gw", Status: v1alpha1.ConnectionConnected,
		LastTransitionTime: ptr.To(metav1.NewTime(start.Add(-time.Hour)))}}
	for through, want := range map[string]time.Duration{"": -time.Hour, "c3": 0} {
		after := []v1alpha1.Connection{{Cluster: "c2", Through: through, Gateway: "gw",
			Status: v1alpha1.ConnectionConnected}}
		(&transitions{}).stamp(after, before, start)
		if got := after[0].LastTransitionTime.Sub(start); got != want {
			t.Errorf("through %q: changed at %s, want %s", through, got, want)
		}
	}
}

// events keeps what people are told.
type events struct {
	Cluster
	told []string
}

func (e *events) Event(_ *v1alpha1.Gateway, warning bool, reason, message string) {
	e.told = append(e.told, fmt.Sprintf("%t %s %s", warning, reason, message))
}

// TestPeopleAreToldOfWaysThroughARelay as that: the gateway is one of the relay's.
func TestPeopleAreToldOfWaysThroughARelay(t *testing.T) {
	told := &events{}
	a := &Agent{cluster: told}
	behind := topology.Remote{Name: "c2", Behind: "c5", BehindStatus: v1alpha1.ConnectionError}
	way := throughRelay(behind, tunnelTo("c5", 1))
	a.announce(t.Context(), nil, []v1alpha1.Connection{tunnelTo("c5", 1), way})
	want := []string{"false ConnectionConnected c5/c5-gw1 at 203.0.113.1:4534: Connected",
		"true ConnectionError c2 through c5/c5-gw1 at 203.0.113.1:4534: Error: the relay c5 reports of its own " +
			"connection to c2: Error; look there"}
	if !slices.Equal(told.told, want) {
		t.Errorf("%q, want %q", told.told, want)
	}
}

// TestTheSizeOfATunnel is none of a way through a relay, whose gateway may have the same name.
func TestTheSizeOfATunnel(t *testing.T) {
	a := &Agent{gateway: &v1alpha1.Gateway{Status: v1alpha1.GatewayStatus{Connections: []v1alpha1.Connection{
		{Cluster: "c2", Through: "c5", Gateway: "gw", MTU: 1290}, {Cluster: "c2", Gateway: "gw", MTU: 1300}}}}}
	if got := a.reportedMTU(remote{cluster: "c2", gateway: topology.Gateway{Node: "gw"}}); got != 1300 {
		t.Errorf("%d, want that of the tunnel", got)
	}
}
