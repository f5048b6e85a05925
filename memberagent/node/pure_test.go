// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// TestWhoIsProbedAsIfItCarried: of several peers of a cable by VXLAN, whose traffic nobody can tell apart, those that
// packets are sent to. Silent ones would take the probes of those that carry.
func TestWhoIsProbedAsIfItCarried(t *testing.T) {
	const link = "sl-cv0"
	shared := plan.Tunnel{Link: link, Peers: make([]plan.Peer, 2)}
	a := &Agent{plan: plan.Plan{Links: make([]plan.Link, 1), VXLAN: []plan.Tunnel{shared}}}
	for i, active := range []bool{true, false} {
		a.remotes = append(a.remotes, remote{cluster: "c2", link: link, active: active,
			gateway: topology.Gateway{PublicKey: topology.Key{byte(i + 1)}}})
	}
	for i, target := range a.targets() {
		if target.busy != a.remotes[i].active {
			t.Errorf("packets are sent to it: %t, and it is probed as if: %t", a.remotes[i].active, target.busy)
		}
	}
}

func TestConnection(t *testing.T) {
	private := netip.MustParseAddr("172.31.1.1")
	r := remote{cluster: "c2", link: "sl-c0", gateway: topology.Gateway{Node: "g",
		Candidates: []topology.Candidate{{Addr: private, Private: true}}}}
	now := time.Unix(1000, 0)
	at := func(address string, handshake time.Duration) kernel.PeerState {
		s := kernel.PeerState{LastHandshake: now.Add(-handshake)}
		if address != "" {
			s.Endpoint = netip.MustParseAddrPort(address)
		}
		if handshake == 0 {
			s.LastHandshake = time.Time{}
		}
		return s
	}
	for name, c := range map[string]struct {
		peer    kernel.PeerState
		health  *Health
		status  v1alpha1.ConnectionStatus
		nat     bool
		message string
		reason  string
	}{
		"probed": {at("172.31.1.1:4500", 1), &Health{Status: v1alpha1.ConnectionConnected},
			v1alpha1.ConnectionConnected, false, "", ""},
		"behind NAT": {at("203.0.113.1:999", 1), &Health{Status: v1alpha1.ConnectionConnected},
			v1alpha1.ConnectionConnected, true, "", ""},
		"dead": {at("172.31.1.1:4500", 1), &Health{Status: v1alpha1.ConnectionError}, v1alpha1.ConnectionError,
			false, "not answered any more", "ProbesLost"},
		"no handshake": {at("172.31.1.1:4500", 0), &Health{Status: v1alpha1.ConnectionConnecting},
			v1alpha1.ConnectionConnecting, false, "no handshake with 172.31.1.1:4500", "NoHandshake"},
		"no address": {at("", 0), &Health{Status: v1alpha1.ConnectionConnecting}, v1alpha1.ConnectionConnecting, false,
			"waiting for it to dial", "NoAddress"},
		"no probe answered": {at("172.31.1.1:4500", 1), &Health{Status: v1alpha1.ConnectionConnecting},
			v1alpha1.ConnectionConnecting, false, "no probe answered yet", "NoProbeAnswered"},
		"unprobed": {at("172.31.1.1:4500", time.Second), nil, v1alpha1.ConnectionConnected, false, "", ""},
		"unprobed, silent": {at("172.31.1.1:4500", time.Hour), nil, v1alpha1.ConnectionError, false,
			"not answered", "ProbesLost"},
	} {
		got := connection(r, c.peer, c.health, "", now)
		if got.Status != c.status || got.Reason != c.reason || got.NAT != c.nat ||
			!strings.Contains(got.Message, c.message) || c.message == "" && got.Message != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestStatusIsWrittenForNewsOnly(t *testing.T) {
	start := time.Unix(1000, 0)
	at := metav1.NewTime(start)
	last := v1alpha1.GatewayStatus{ReportedAt: &at, Connections: []v1alpha1.Connection{{Cluster: "c2",
		RTT: &v1alpha1.RTT{Last: 1}}}}
	other := *last.DeepCopy()
	other.Connections[0].Status = v1alpha1.ConnectionError
	measured := *last.DeepCopy()
	measured.Connections[0].RTT.Last = 2
	busy := *last.DeepCopy()
	busy.Connections[0].Traffic = &v1alpha1.Traffic{SentBytesPerSecond: 1}
	for name, c := range map[string]struct {
		next  v1alpha1.GatewayStatus
		after time.Duration
		want  bool
	}{
		"the same":           {last, time.Second, false},
		"the same, later":    {last, rttEvery, false},
		"a sign of life":     {last, reportEvery, true},
		"another status":     {other, time.Second, true},
		"another RTT":        {measured, time.Second, false},
		"another RTT, later": {measured, rttEvery, true},
		"traffic":            {busy, time.Second, false},
		"traffic, later":     {busy, rttEvery, true},
	} {
		if got := worthWriting(c.next, last, start.Add(c.after)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !worthWriting(last, v1alpha1.GatewayStatus{}, start) {
		t.Error("the first status is news")
	}
}

func TestConditionsKeepTheirTransitionTime(t *testing.T) {
	first := conditions(nil, 1, nil, "", time.Unix(1000, 0))
	second := conditions(first, 2, nil, "", time.Unix(2000, 0))
	failed := conditions(second, 2, errors.New("add route 10.9.0.0/16: no such device"), "", time.Unix(3000, 0))
	refused := conditions(second, 2, nil, "RemoteCluster/c2: Overlap: 10.8.0.0/16", time.Unix(4000, 0))
	for _, c := range []struct {
		have    []metav1.Condition
		kind    string
		status  metav1.ConditionStatus
		since   int64
		message string
	}{
		{second, v1alpha1.GatewayReady, metav1.ConditionTrue, 1000, ""},
		{second, v1alpha1.GatewayNetworksAccepted, metav1.ConditionTrue, 1000, ""},
		{failed, v1alpha1.GatewayReady, metav1.ConditionFalse, 3000, "10.9.0.0/16"},
		{failed, v1alpha1.GatewayNetworksAccepted, metav1.ConditionTrue, 1000, ""},
		{refused, v1alpha1.GatewayReady, metav1.ConditionTrue, 1000, ""},
		{refused, v1alpha1.GatewayNetworksAccepted, metav1.ConditionFalse, 4000, "10.8.0.0/16"},
	} {
		got := meta.FindStatusCondition(c.have, c.kind)
		if got.Status != c.status || got.LastTransitionTime.Unix() != c.since || got.ObservedGeneration != 2 ||
			!strings.Contains(got.Message, c.message) {
			t.Errorf("%s %+v, want %s since %d", c.kind, got, c.status, c.since)
		}
	}
}

// TestTrackingAlarm: it is raised at 80 % and ends below 70 %. Between the two nothing changes, the message included.
func TestTrackingAlarm(t *testing.T) {
	const limit = 1000
	kept := metav1.Condition{Type: v1alpha1.GatewayReady, Status: metav1.ConditionTrue}
	have := []metav1.Condition{kept}
	since := int64(0)
	for i, c := range []struct {
		connections int
		alarm       bool
	}{
		{0, false}, {799, false}, {800, true}, {1000, true}, {790, true}, {700, true}, {699, false}, {790, false},
		{900, true},
	} {
		before := meta.FindStatusCondition(have, v1alpha1.GatewayTrackingAvailable)
		now := time.Unix(int64(1000+i), 0)
		have = withTracking(slices.Clone(have), kernel.Tracked{Connections: c.connections, Limit: limit}, 1, now)
		got := meta.FindStatusCondition(have, v1alpha1.GatewayTrackingAvailable)
		if before == nil || (before.Status == metav1.ConditionFalse) != c.alarm {
			since = now.Unix()
		} else if got.Message != before.Message {
			t.Errorf("at %d another message: %s", c.connections, got.Message)
		}
		if (got.Status == metav1.ConditionFalse) != c.alarm || got.LastTransitionTime.Unix() != since || len(have) != 2 {
			t.Errorf("at %d: %+v, want an alarm: %v, since %d", c.connections, got, c.alarm, since)
		}
	}
	if have = withTracking(have, kernel.Tracked{}, 1, time.Unix(2000, 0)); len(have) != 1 {
		t.Errorf("where nobody knows: %+v", have)
	}
}

func TestTrackingMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, tracked := range []kernel.Tracked{{}, {Connections: 7, Limit: 9}} {
		m.tracks(tracked)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var got kernel.Tracked
		for _, f := range families {
			switch f.GetName() {
			case "sealane_node_conntrack_entries":
				got.Connections = int(f.GetMetric()[0].GetGauge().GetValue())
			case "sealane_node_conntrack_limit":
				got.Limit = int(f.GetMetric()[0].GetGauge().GetValue())
			}
		}
		if got != tracked {
			t.Errorf("metrics %+v, want %+v", got, tracked)
		}
	}
}

func TestRefusedIsBounded(t *testing.T) {
	if got := refused(nil); got != "" {
		t.Errorf("nothing left out: %q", got)
	}
	problems := slices.Repeat([]topology.Problem{{Ref: "RemoteCluster/c2", Reason: "Overlap", Message: "10.8.0.0/16"}},
		100)
	got := refused(problems)
	if !strings.HasPrefix(got, "RemoteCluster/c2: Overlap: 10.8.0.0/16; ") || !strings.HasSuffix(got, " more") ||
		len(got) > maxRefused+len("; and 100 more") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

func TestFacts(t *testing.T) {
	address := func(a string, mtu int) kernel.LocalAddress {
		return kernel.LocalAddress{Addr: netip.MustParseAddr(a), Link: a, MTU: mtu}
	}
	prefix := netip.MustParsePrefix
	top := topology.Topology{Local: topology.Local{
		Pods: []netip.Prefix{prefix("10.8.0.0/16"), prefix("fd00:8::/32")},
		Nodes: []topology.Node{{Name: "n", Addresses: []netip.Addr{netip.MustParseAddr("10.8.255.1")},
			Pods: []netip.Prefix{prefix("10.8.1.0/24")}}},
	}}
	f := facts(top, "n", "peer", []kernel.LocalAddress{
		address("10.8.0.1", 1500), address("10.8.1.1", 1500), address("10.8.255.1", 9000), address("fd00:8::1", 1500),
	}, true)
	want := []netip.Addr{netip.MustParseAddr("10.8.1.1"), netip.MustParseAddr("fd00:8::1")}
	if !slices.Equal(f.PodAddresses, want) || f.UnderlayMTU != 9000 {
		t.Errorf("facts %+v", f)
	}
	on := func(link, cidr string) kernel.LocalAddress {
		p := prefix(cidr)
		return kernel.LocalAddress{Addr: p.Addr(), Network: p.Masked(), Link: link, MTU: 1500}
	}
	f = facts(top, "n", "peer", []kernel.LocalAddress{
		on("eth0", "10.8.1.9/32"), on("eth0", "10.8.255.1/24"), on("eth0", "10.8.255.7/24"), on("cni0", "10.8.77.1/24"),
		on("eth0", "fd00:8::7/64"), on("eth0", "fe80::1/64"), on("lo", "127.0.0.1/8"),
	}, true)
	want = []netip.Addr{netip.MustParseAddr("10.8.77.1")}
	underlays := []netip.Prefix{prefix("10.8.255.0/24"), prefix("fd00:8::/64")}
	if !slices.Equal(f.PodAddresses, want) || !slices.Equal(f.Underlays, underlays) {
		t.Errorf("facts of a node on an underlay: %+v", f)
	}
	if f := facts(top, "unlisted", "peer", nil, false); f.PodAddresses != nil || f.UnderlayMTU != 0 {
		t.Errorf("facts of a node that is not known: %+v", f)
	}
}

type balancers map[string][]string

func (b balancers) LoadBalancer(_ context.Context, service string) ([]string, error) {
	if a, ok := b[service]; ok {
		return a, nil
	}
	return nil, errors.New("no such service")
}

func TestPublicAddresses(t *testing.T) {
	b := balancers{"cables": {"203.0.113.9"}, "named": {"localhost"}, "pending": nil}
	now := time.Unix(1000, 0)
	var p publicAddresses
	err := p.resolve(t.Context(), "ipv4:203.0.113.1, "+
		"ipv6:2001:db8::1,lb:cables,lb:none,ipv4:2001:db8::2,http://x,ipv4:999.1.1.1", b, now)
	var got []string
	for _, a := range p.addresses() {
		got = append(got, string(a.Type)+" "+a.IP)
	}
	want := []string{"Public 203.0.113.1", "Public 2001:db8::1", "LoadBalancer 203.0.113.9"}
	if !slices.Equal(got, want) {
		t.Errorf("addresses %q", got)
	}
	for _, bad := range []string{`"lb:none"`, `"ipv4:2001:db8::2"`, `"http://x"`, `"ipv4:999.1.1.1"`} {
		if err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("error %v does not name %s", err, bad)
		}
	}
	var named publicAddresses
	if err := named.resolve(t.Context(), "lb:named", b, now); err != nil || len(named.addresses()) == 0 ||
		!netip.MustParseAddr(named.addresses()[0].IP).IsLoopback() {
		t.Errorf("a load balancer that has a name: %v, %v", named.addresses(), err)
	}
	if err := named.resolve(t.Context(), "lb:pending", b, now); err == nil || !strings.Contains(err.Error(), "not ready") {
		t.Errorf("a load balancer without an address: %v", err)
	}
	delete(b, "cables")
	if err := p.resolve(t.Context(), "lb:cables", b, now.Add(publicEvery)); err == nil || len(p.addresses()) != 1 {
		t.Errorf("a source that fails loses its last answer: %v, %v", p.addresses(), err)
	}
}

// TestANodeOfAMeshLingers: what a node sends is taken for a while when it is one of the mesh no more, and neither is it
// sent to nor are its probes answered. One that another has the place of is gone at once.
func TestANodeOfAMeshLingers(t *testing.T) {
	pods := func(cidr string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(cidr)} }
	n1 := topology.MeshNode{Name: "n1", PublicKey: topology.Key{1}, Pods: pods("10.9.1.0/24")}
	n2 := topology.MeshNode{Name: "n2", PublicKey: topology.Key{2}, Pods: pods("10.9.2.0/24")}
	newKey, elsewhere := n2, n2
	newKey.PublicKey = topology.Key{3}
	elsewhere.Pods = pods("10.10.2.0/24")
	left := n2
	left.Leaving = true
	with := func(nodes ...topology.MeshNode) topology.Topology {
		return topology.Topology{Cable: topology.Cable{MeshPort: 4532}, Remotes: []topology.Remote{
			{Name: "c2", Routed: pods("10.9.0.0/16"), Nodes: nodes}}}
	}
	start := time.Unix(1000, 0)
	for _, c := range []struct {
		name       string
		before     topology.Topology
		next, want []topology.MeshNode
	}{
		{"nothing changes", with(n1, n2), []topology.MeshNode{n1, n2}, []topology.MeshNode{n1, n2}},
		{"one leaves", with(n1, n2), []topology.MeshNode{n1}, []topology.MeshNode{n1, left}},
		{"all leave", with(n2), nil, []topology.MeshNode{left}},
		{"one has another key", with(n1, n2), []topology.MeshNode{n1, newKey}, []topology.MeshNode{n1, newKey}},
		{"one is behind its cluster no more", with(n1, elsewhere), []topology.MeshNode{n1}, []topology.MeshNode{n1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &Agent{poke: make(chan struct{}, 1), top: c.before}
			for _, step := range []struct {
				after time.Duration
				want  []topology.MeshNode
			}{{0, c.want}, {lingering - 1, c.want}, {lingering, c.next}} {
				next := with(c.next...)
				a.lingerMesh(&next, start.Add(step.after))
				if diff := cmp.Diff(step.want, next.Remotes[0].Nodes, cmpopts.EquateEmpty(),
					cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
					t.Errorf("after %s: (-want +got)\n%s", step.after, diff)
				}
				a.top = next
			}
			if len(a.leavingMesh) != 0 {
				t.Errorf("not forgotten: %v", a.leavingMesh)
			}
		})
	}
}

// TestMoved: traffic moves when another gateway carries it, and not when the size of packets changes.
func TestMoved(t *testing.T) {
	gateway := func(slot int) topology.Gateway {
		return topology.Gateway{Node: string(rune('a' + slot)), Slot: slot, PublicKey: topology.Key{byte(slot + 1)}}
	}
	top := topology.Topology{Cluster: "c1", Cable: topology.Cable{Driver: "wireguard", Port: 4500},
		Local: topology.Local{Pods: []netip.Prefix{netip.MustParsePrefix("10.8.0.0/16")},
			Announced: []netip.Prefix{netip.MustParsePrefix("10.8.0.0/16")},
			Nodes:     []topology.Node{{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("172.31.1.1")}}},
			Gateways:  []topology.Gateway{{Node: "n1", PublicKey: topology.Key{9}}}},
		Remotes: []topology.Remote{{Name: "c2", Routed: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")},
			Gateways: []topology.Gateway{gateway(0), gateway(1)}}}}
	with := func(size int, alive ...int) plan.Plan {
		return plan.For(top, plan.NodeFacts{Name: "n1", ID: "n1", UnderlayMTU: 1500, IPv6: true,
			Alive:   map[string][]int{"c2": alive},
			PathMTU: map[plan.PeerID]int{plan.PeerOf(gateway(0)): size}})
	}
	both, smaller, one := with(1420, 0, 1), with(1300, 0, 1), with(1420, 1)
	if len(plan.Diff(smaller, both)) == 0 || moved(both.Active, smaller.Active) {
		t.Error("a smaller size changes nothing, or moves traffic")
	}
	if !moved(both.Active, one.Active) {
		t.Error("a gateway that is dead does not move traffic")
	}
}

// TestWithoutWhatIPsecNeeds: a gateway without the container, or without IPv6, says so of each connection that is to be
// by IPsec, whether or not WireGuard's ports are shut, and of no other.
func TestWithoutWhatIPsecNeeds(t *testing.T) {
	const connected, failed = v1alpha1.ConnectionConnected, v1alpha1.ConnectionError
	const connecting = v1alpha1.ConnectionConnecting
	const wireguard, byIPsec = v1alpha1.CableWireGuard, v1alpha1.CableIPsec
	for _, c := range []struct {
		name, cluster string
		ipv6          bool
		is            v1alpha1.Connection
		status        v1alpha1.ConnectionStatus
		reason, says  string
	}{
		{"no container", "c2", true, v1alpha1.Connection{Cable: byIPsec, Active: true, Status: connecting,
			Reason: v1alpha1.ReasonNoHandshake}, connecting, v1alpha1.ReasonNoIPsecContainer, "with --ipsec"},
		{"no container, as before", "c2", true, v1alpha1.Connection{Cable: wireguard, Active: true, Status: connected},
			connected, v1alpha1.ReasonCableSilent, "as before, until ipsec answers: this node has no container"},
		{"no IPv6", "c2", false, v1alpha1.Connection{Cable: wireguard, Status: connected}, failed, v1alpha1.ReasonNoIPv6,
			"nothing is sent, for the pair is to be reached by ipsec alone: this node's kernel has no IPv6"},
		{"no IPv6, and WireGuard is shut", "c2", false, v1alpha1.Connection{Cable: wireguard, Status: connecting,
			Reason: v1alpha1.ReasonNoHandshake}, failed, v1alpha1.ReasonNoIPv6, "no IPv6"},
		{"as before, and WireGuard is shut", "c2", true, v1alpha1.Connection{Cable: wireguard, Active: true, Status: failed,
			Reason: v1alpha1.ReasonProbesLost}, failed, v1alpha1.ReasonProbesLost, ""},
		{"another pair", "c3", false, v1alpha1.Connection{Cable: wireguard, Status: connecting,
			Reason: v1alpha1.ReasonNoHandshake}, connecting, v1alpha1.ReasonNoHandshake, ""},
	} {
		a := &Agent{facts: plan.NodeFacts{IPv6: c.ipv6}, top: topology.Topology{
			Remotes: []topology.Remote{{Name: "c2", IPsec: true}, {Name: "c3"}}}}
		c.is.Cluster = c.cluster
		tunnels := []Tunnel{{connection: c.is}}
		a.noteByOther(tunnels)
		got := tunnels[0].connection
		if got.Status != c.status || got.Reason != c.reason || !strings.Contains(got.Message, c.says) ||
			c.says == "" && got.Message != "" {
			t.Errorf("%s: %s %s %q, want %s %s %q", c.name, got.Status, got.Reason, got.Message, c.status, c.reason, c.says)
		}
	}
}

// TestKeysStayIsOfWhatCarries: a gateway that is down, with which there are no keys, is not reported to have any.
func TestKeysStayIsOfWhatCarries(t *testing.T) {
	a := &Agent{}
	for slot, name := range []string{"gw2", "gw3"} {
		a.remotes = append(a.remotes, remote{cluster: "c2", gateway: topology.Gateway{Node: name, Slot: slot, IPsec: true,
			PublicKey: topology.Key{byte(slot + 1)}}})
	}
	tunnels := []Tunnel{
		{connection: v1alpha1.Connection{Status: v1alpha1.ConnectionConnected, Reason: v1alpha1.ReasonKeysStay},
			peer: kernel.PeerState{ID: a.remotes[0].id()}},
		{connection: v1alpha1.Connection{Status: v1alpha1.ConnectionError, Reason: v1alpha1.ReasonNoHandshake},
			peer: kernel.PeerState{ID: a.remotes[1].id()}},
	}
	got := a.associations(tunnels)
	if len(got) != 2 || !got[0].stays || got[1].stays {
		t.Errorf("found %+v, expected the keys of the first to stay alone", got)
	}
}

// TestAdviceNamesThePortOfTheCable: by IPsec it is another than by WireGuard.
func TestAdviceNamesThePortOfTheCable(t *testing.T) {
	own := topology.Node{Name: "gw1", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	a := &Agent{node: "gw1", gateway: &v1alpha1.Gateway{}, public: &resolver{}, top: topology.Topology{Cluster: "c1",
		Local: topology.Local{Nodes: []topology.Node{own}}, Cable: topology.Cable{Port: 4500, IPsecPort: 4534}}}
	a.gateway.Spec.Slot = 1
	for _, byIPsec := range []bool{false, true} {
		r := remote{cluster: "c2", gateway: topology.Gateway{Slot: 2, IPsec: byIPsec, Candidates: []topology.Candidate{
			{Addr: netip.MustParseAddr("10.0.1.1"), Private: true}}}}
		want := []string{"UDP 4502 to 10.0.0.1 at c1", "UDP 4501 to 10.0.1.1 at c2"}
		if byIPsec {
			want = []string{"UDP 4534 to 10.0.0.1 at c1", "UDP 4534 to 10.0.1.1 at c2"}
		}
		got := a.advice(r, kernel.PeerState{})
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("by IPsec %t: %q, want %q", byIPsec, got, text)
			}
		}
	}
}
