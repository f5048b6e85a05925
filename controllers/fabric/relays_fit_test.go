// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestWhatMakesARelayUnfit, and what does not, though it is near.
func TestWhatMakesARelayUnfit(t *testing.T) {
	networks := func(w *walk, name string, of ...string) {
		w.member(name).Report.Status.Networks.PodCIDRs = append(w.member(name).Report.Status.Networks.PodCIDRs, of...)
	}
	topology := func(mode v1alpha1.TopologyMode, clusters ...string) func(*walk) {
		return func(w *walk) {
			w.in.Set.Spec.Topology.Pairs = []v1alpha1.TopologyPair{{Clusters: clusters, Mode: mode}}
		}
	}
	for name, c := range map[string]struct {
		change func(w *walk)
		want   string // part of the problem; "" is none
	}{
		"one behind a relay for the other": {func(w *walk) { w.in.Relays[[2]string{"c2", "c3"}] = "c4" },
			"it would have to reach c2 by its own gateways, and spec.relays has c4"},
		"a family that one of the two has alone": {func(w *walk) { networks(w, "c1", "fd01::/48") }, ""},
		"a family that all have": {func(w *walk) {
			networks(w, "c1", "fd01::/48")
			networks(w, "c2", "fd02::/48")
			networks(w, "c3", "fd03::/48")
		}, ""},
		"a mesh of one of the two": {topology(v1alpha1.TopologyMesh, "c1", "c4"), ""},
		"by gateways, as is said":  {topology(v1alpha1.TopologyGateways, "c1", "c2"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := relayed(knowing(4))
			c.change(w)
			w.step()
			w.step()
			if c.want == "" {
				w.expect(t, "told", w.relays("c1"), "c2:c3")
				if got := w.complaints(); strings.Contains(got, v1alpha1.ReasonRelayNotUsed) {
					t.Errorf("problems: %s", got)
				}
				return
			}
			w.expect(t, "told", w.relays("c1"), "")
			if got := w.complaints(); !strings.Contains(got, c.want) {
				t.Errorf("problems: %q, want %q", got, c.want)
			}
		})
	}
}

// TestARelayWithoutIPv4 is none of two that have it.
func TestARelayWithoutIPv4(t *testing.T) {
	members := []Member{knowing(1), knowing(2), knowing(3)}
	for i, six := range []string{"fd01::/48", "fd02::/48", "fd03::/48"} {
		n := &members[i].Report.Status.Networks
		if n.PodCIDRs = append(n.PodCIDRs, six); i == 2 {
			n.PodCIDRs, n.ServiceCIDRs = []string{six}, []string{"fd33::/112"}
		}
	}
	w := newWalk(members...)
	w.in.Relays = map[[2]string]string{{"c1", "c2"}: "c3"}
	w.allConnected()
	w.settle(t)
	w.expect(t, "told", w.allRelays(), "c1[] c2[] c3[]")
	if got := w.complaints(); !strings.Contains(got, "it has no IPv4 networks, which both have") {
		t.Errorf("problems: %s", got)
	}
}

// TestARelayThatIsRefused is none: it is known to nobody.
func TestARelayThatIsRefused(t *testing.T) {
	members := []Member{knowing(1), knowing(2), knowing(3)}
	members[2].Report.Status.Networks = members[0].Report.Status.Networks
	w := newWalk(members...)
	w.in.Relays = map[[2]string]string{{"c1", "c2"}: "c3"}
	w.allConnected()
	w.settle(t)
	w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=True/Accepted c3=False/CIDROverlap")
	if got := w.complaints(); !strings.Contains(got, "it is no accepted member of the ClusterSet") {
		t.Errorf("problems: %s", got)
	}
}

// TestARelayThatIsTheTwinOfOne of the two knows that one by a block, by which the other does not know it.
func TestARelayThatIsTheTwinOfOne(t *testing.T) {
	for one, want := range map[int]string{1: "c2 knows c1 by other addresses", 2: "c1 knows c2 by other addresses"} {
		members := []Member{knowing(1), knowing(2), knowing(3)}
		members[2].Report.Status.Networks = members[one-1].Report.Status.Networks
		w := auto(newWalk(members...))
		w.in.Relays = map[[2]string]string{{"c1", "c2"}: "c3"}
		w.allConnected()
		w.settle(t)
		w.expect(t, "told", w.allRelays(), "c1[] c2[] c3[]")
		if got := w.complaints(); !strings.Contains(got, want) {
			t.Errorf("problems: %q, want %q", got, want)
		}
	}
}

// TestBlocksWithoutIPv6 tell the same: they are of members of before blocks had anything of IPv6.
func TestBlocksWithoutIPv6(t *testing.T) {
	members := []Member{knowing(1), knowing(2), knowing(3)}
	members[2].Report.Status.Networks = members[1].Report.Status.Networks
	w := auto(newWalk(members...))
	w.allConnected()
	w.settle(t)
	for i := range w.in.Members {
		w.in.Members[i].Record.Status.GlobalIPv6CIDR = ""
	}
	w.in.Relays = map[[2]string]string{{"c1", "c2"}: "c3"}
	w.step()
	w.expect(t, "told", w.allRelays(), "c1[] c2[] c3[]")
	if got := w.complaints(); !strings.Contains(got, "c1 knows c2 by other addresses") {
		t.Errorf("problems: %s", got)
	}
}

// TestNoMeshOfAPairBehindARelay: their nodes are told of none of the other's.
func TestNoMeshOfAPairBehindARelay(t *testing.T) {
	w := connected(2, 2, 2)
	for i := range w.in.Members {
		w.in.Members[i].Report.Status.Relays = v1alpha1.DigestOfRelays(nil)
	}
	w.in.Set.Spec.Topology.Mode = v1alpha1.TopologyAuto
	w.in.Relays = map[[2]string]string{{"c1", "c2"}: "c3"}
	w.settle(t)
	w.expect(t, "told", w.allRelays(), throughC3)
	w.expect(t, "nodes", w.told("c1"), "c2:: c3:Mesh:n00+n01")
	w.expect(t, "ways", w.ways("c1"), "c2 c3:Auto")
}

// TestTheLeastOfAClustersGateways is what can be sent to it: the relay may send by any of them.
func TestTheLeastOfAClustersGateways(t *testing.T) {
	for _, sizes := range [][]int32{{1400, 1440}, {1440, 1400}, {0, 1400}, {1400, 0}} {
		w := relayed()
		s := &w.member("c2").Report.Status
		s.NodeCIDRs = append(s.NodeCIDRs, "192.168.2.2/32")
		s.Endpoints = append(s.Endpoints, v1alpha1.Endpoint{Gateway: "h", Slot: 1, PublicKey: key(22),
			Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPrivate, IP: "192.168.2.2"}}})
		s.Endpoints[0].MTU, s.Endpoints[1].MTU = sizes[0], sizes[1]
		w.step()
		if got := w.member("c1").Sent.RemoteClusters[0].RelayMTU; got != 1400 {
			t.Errorf("gateways with %v: told %d, want 1400", sizes, got)
		}
	}
}

// TestWhatIsMeasuredIsOfTunnels: of what is reached through a relay nothing is kept, as it would be of the tunnel to
// that.
func TestWhatIsMeasuredIsOfTunnels(t *testing.T) {
	w := relayed()
	for i := range w.member("c1").Report.Status.Connections {
		c := &w.member("c1").Report.Status.Connections[i]
		c.MTU, c.Measured = 1330, &v1alpha1.Measurements{RTTMicroseconds: 1000}
	}
	w.step()
	for _, c := range w.member("c1").Record.Status.Connections {
		if tunnel := c.Cluster == "c3"; (c.MTU == 1330) != tunnel || (c.Measured != nil) != tunnel {
			t.Errorf("kept of %s, through %q: size %d, %+v", c.Cluster, c.Through, c.MTU, c.Measured)
		}
	}
}
