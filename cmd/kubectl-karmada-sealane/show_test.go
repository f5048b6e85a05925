// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with testdata/<name>, or rewrites it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// twoAndLost is a fleet of two connected members, and a third that cannot be asked and was refused.
func twoAndLost() *fleet {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return &fleet{
		now: now,
		clusterSets: []v1alpha1.ClusterSet{{
			ObjectMeta: metav1.ObjectMeta{Name: "default"},
			Spec: v1alpha1.ClusterSetSpec{Cable: v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard},
				DNS: v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}}},
			Status: v1alpha1.ClusterSetStatus{
				Members: 3, AcceptedMembers: 2, ConnectedMembers: 2, Pairs: 1, ConnectedPairs: 1,
				Problems: []v1alpha1.Problem{{Cluster: "c3", Reason: v1alpha1.ReasonCIDROverlap,
					Message: "pod CIDR 10.8.0.0/16 overlaps 10.8.0.0/16 of c1"}},
				Conditions: []metav1.Condition{{Type: v1alpha1.ClusterSetReady, Status: metav1.ConditionFalse}},
			},
		}},
		members: []fleetMember{
			connectedMember(now, "c1", "c2", "10.8.0.0/16", "10.88.0.0/16", "172.30.1.11"),
			connectedMember(now.Add(-2*time.Minute), "c2", "c1", "10.9.0.0/16", "10.99.0.0/16", "172.30.2.11"),
			lostMember(),
		},
	}
}

func connectedMember(reported time.Time, name, remote, pods, services, ip string) fleetMember {
	endpoint := v1alpha1.Endpoint{
		Gateway: name + "-gw", PublicKey: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", MTU: 1420,
		Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPrivate, IP: ip},
			{Type: v1alpha1.AddressPublic, IP: "192.0.2.7"}},
	}
	at := metav1.NewTime(reported)
	m := fleetMember{
		Member: v1alpha1.Member{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.MemberSpec{ClusterSet: "default", Phase: v1alpha1.MemberActive},
			Status: v1alpha1.MemberStatus{
				Networks:  v1alpha1.Networks{PodCIDRs: []string{pods}, ServiceCIDRs: []string{services}},
				NodeCIDRs: []string{ip + "/32"}, Endpoints: []v1alpha1.Endpoint{endpoint}, AgentVersion: "v1.2.3",
				Conditions: []metav1.Condition{{Type: v1alpha1.MemberAccepted, Status: metav1.ConditionTrue,
					Reason: v1alpha1.ReasonAccepted}},
			},
		},
		gateways: []v1alpha1.Gateway{{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-gw"},
			Status: v1alpha1.GatewayStatus{
				HAState: v1alpha1.GatewayActive, Endpoint: &endpoint, Implementation: v1alpha1.CableUserspace, Version: "v1.2.3",
				ReportedAt: &at, FlowHash: v1alpha1.FlowHashAddresses,
				Keys: &v1alpha1.GatewayKeys{Phase: v1alpha1.KeyOffered, MadeAt: metav1.NewTime(reported.Add(-time.Hour)), Peers: 2,
					Moved: 1, Waiting: []string{remote + "/" + remote + "-gw"}},
				Conditions: []metav1.Condition{{Type: v1alpha1.GatewayReady, Status: metav1.ConditionTrue}},
				Connections: []v1alpha1.Connection{{
					Cluster: remote, Gateway: remote + "-gw", Link: "sl-c0", Status: v1alpha1.ConnectionConnected,
					LastTransitionTime: ptr.To(metav1.NewTime(reported.Add(-50 * time.Hour))),
					Address:            "172.30.9.9:4500", Active: true,
					RTT: &v1alpha1.RTT{Last: 1200, Min: 400, Avg: 1234, Max: 5678, Dev: 90},
				}},
			},
		}},
	}
	m.bundles = []v1alpha1.Bundle{memberBundle(name)}
	if name == "c1" {
		m.globals = globalsOf(reported)
		m.Status.Endpoints[0].Observed = []v1alpha1.ObservedAddress{{IP: "198.51.100.7", Port: 41000}}
		m.Status.GlobalCIDR, m.Status.GlobalIPv6CIDR = "242.1.0.0/24", "fd5e:a1a4:e242:f201::/120"
	}
	m.Status.RollOut = &v1alpha1.MemberRollOut{State: v1alpha1.RollOutWaiting, Message: "it is the turn of c2",
		Report:       v1alpha1.RollOutReport{Revision: "7d9f", Nodes: 3, Outdated: 3},
		ProgressedAt: metav1.NewTime(reported.Add(-time.Minute))}
	if name == "c2" {
		m.Status.RollOut.State, m.Status.RollOut.Message = v1alpha1.RollOutInTurn, "2 of 3 nodes"
		m.Status.RollOut.Report.Updated, m.Status.RollOut.Report.LastNode = 2, "c2-gw"
	}
	return m
}

func memberBundle(name string) v1alpha1.Bundle {
	settings := v1alpha1.ServiceSettings{Type: v1alpha1.ClusterSetIP,
		Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80},
			{Protocol: corev1.ProtocolUDP, Port: 53}}}
	b := v1alpha1.Bundle{Spec: v1alpha1.BundleSpec{Imports: []v1alpha1.Import{{Namespace: "sample", Name: "whereami-cs",
		Settings: settings}}}}
	if name == "c2" {
		b.Status.Exports = []v1alpha1.Export{{Namespace: "sample", Name: "whereami-cs", Settings: settings},
			{Namespace: "sample", Name: "pending", Settings: settings}}
		b.Spec.ExportConditions = []v1alpha1.ExportCondition{{Namespace: "sample", Name: "pending", Type: "Ready",
			Status: metav1.ConditionFalse, Reason: "BundleFull"}}
	}
	return b
}

func lostMember() fleetMember {
	return fleetMember{
		Member: v1alpha1.Member{
			ObjectMeta: metav1.ObjectMeta{Name: "c3"},
			Spec:       v1alpha1.MemberSpec{ClusterSet: "default"},
			Status: v1alpha1.MemberStatus{
				Connections: []v1alpha1.MemberConnection{{Cluster: "c1", Status: v1alpha1.ConnectionError,
					LastTransitionTime: ptr.To(metav1.NewTime(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC))),
					Reason:             v1alpha1.ReasonProbesLost}},
				Conditions: []metav1.Condition{{Type: v1alpha1.MemberAccepted, Status: metav1.ConditionFalse,
					Reason: v1alpha1.ReasonCIDROverlap, Message: "overlaps\nc1 \x1b[31m"}},
			},
		},
		err: errors.New("cluster proxy: dial tcp: i/o timeout"),
	}
}

func TestShowTables(t *testing.T) {
	f := twoAndLost()
	var tables []table
	for _, subject := range showSubjects() {
		tables = append(tables, subject.table(f))
	}
	tables = append(tables, versionTable([]versionRow{
		{Component: "plugin", Version: "v1.2.3"},
		{Component: "cluster agent", Cluster: "c1", Version: "v1.2.3", Image: "localhost/sealane/agent:dev"},
	}))
	for _, format := range []string{outputTable, outputWide, outputJSON, outputYAML} {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			if err := write(&out, format, tables...); err != nil {
				t.Fatal(err)
			}
			golden(t, "show."+format, out.Bytes())
		})
	}
}

// TestASilentGatewayIsNotActive: what it last reported, Active, Ready and connected, says nothing of now.
func TestASilentGatewayIsNotActive(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.GatewayStatus, metav1.Time)
		since  time.Duration
		says   string
	}{
		"silent": {func(s *v1alpha1.GatewayStatus, at metav1.Time) { s.SilentSince = &at }, 30 * time.Second,
			"the node agent has not been heard of for 30s"},
		"an old report": {func(s *v1alpha1.GatewayStatus, at metav1.Time) { s.ReportedAt = &at }, time.Hour,
			"last report 1h0m0s ago"},
		"no report": {func(s *v1alpha1.GatewayStatus, _ metav1.Time) { s.ReportedAt, s.HAState = nil, "" }, 0,
			"has not reported yet"},
	} {
		t.Run(name, func(t *testing.T) {
			f := twoAndLost()
			f.members = f.members[:1]
			since := ""
			if c.since > 0 {
				since = f.now.Add(-c.since).Format(time.RFC3339)
			}
			c.change(&f.members[0].gateways[0].Status, metav1.NewTime(f.now.Add(-c.since)))
			if g := gatewayRows(f)[0]; g.HAState != "Unknown" || g.Ready != "Unknown" || g.UnknownSince != since ||
				g.Summary != c.says {
				t.Errorf("gateway %+v, want Unknown since %q: %s", g, since, c.says)
			}
			tunnel := connectionRows(f)[0]
			if tunnel.Status != "Unknown" || tunnel.Active || tunnel.RTT != nil || tunnel.LossPercent != nil ||
				tunnel.UnknownSince != since || tunnel.Message != c.says {
				t.Errorf("tunnel %+v, want Unknown since %q: %s", tunnel, since, c.says)
			}
		})
	}
}

// TestACanaryThatIsNoMemberIsShown, of the ClusterSet that names it, unless others were asked for.
func TestACanaryThatIsNoMemberIsShown(t *testing.T) {
	for _, c := range []struct {
		name, canary, set string
		only              []string
		shown             bool
	}{
		{"none", "", "default", nil, false},
		{"a member", "c1", "default", nil, false},
		{"no member", "c9", "default", nil, true},
		{"a member of another", "c1", "other", nil, true},
		{"asked for", "c9", "default", []string{"c9"}, true},
		{"others asked for", "c9", "default", []string{"c1"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := twoAndLost()
			f.only, f.clusterSets[0].Name, f.clusterSets[0].Spec.RollOut.Canary = c.only, c.set, c.canary
			row := rollOutRows(f)[0]
			if shown := row.State == "NotMember"; shown != c.shown || shown && row.Cluster != c.canary {
				t.Errorf("the first row is %+v", row)
			}
		})
	}
}

// TestShowWhatIsNotEncrypted in every place where connections are shown.
func TestShowWhatIsNotEncrypted(t *testing.T) {
	f := twoAndLost()
	var tunnel *v1alpha1.Connection
	for i := range f.members {
		for j := range f.members[i].gateways {
			if g := &f.members[i].gateways[j]; tunnel == nil && len(g.Status.Connections) > 0 && stale(f, g) == "" {
				tunnel = &g.Status.Connections[0]
			}
		}
	}
	f.clusterSets[0].Status.UnencryptedPairs, tunnel.Cable, tunnel.Message = 3, v1alpha1.CableVXLAN, ""
	var out bytes.Buffer
	if err := write(&out, outputWide, connectionTable(f), clusterSetTable(f)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NOT ENCRYPTED, by vxlan", "wireguard, 3 pairs NOT ENCRYPTED"} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("expected %q once in\n%s", want, out.String())
		}
	}
}

func TestShowNothing(t *testing.T) {
	var out bytes.Buffer
	if err := write(&out, outputTable, connectionTable(&fleet{})); err != nil || out.String() != "no connections\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestServicesOfOneNamespace(t *testing.T) {
	f := exportedShop()
	all := len(serviceRows(f))
	f.namespace = "shop"
	if got := len(serviceRows(f)); got != all || all == 0 {
		t.Errorf("-n shop shows %d services, expected all %d", got, all)
	}
	f.namespace = "elsewhere"
	var out bytes.Buffer
	if err := write(&out, outputTable, serviceTable(f)); err != nil ||
		out.String() != "no services in namespace elsewhere\n" {
		t.Errorf("-n elsewhere shows %q, %v", out.String(), err)
	}
}

func TestAnApiServerThatRefusesIsNotUnreachable(t *testing.T) {
	what := schema.GroupResource{Resource: "members"}
	for want, err := range map[string]error{
		forbidden:    fmt.Errorf("list members: %w", apierrors.NewForbidden(what, "", errors.New("no"))),
		unauthorized: apierrors.NewUnauthorized("who are you"),
		unreachable:  errors.New("dial tcp 10.0.0.1:443: connect: connection refused"),
		failed:       apierrors.NewInternalError(errors.New("etcd")),
	} {
		if got := refusal(err); got != want {
			t.Errorf("refusal(%v) = %s, want %s", err, got, want)
		}
		text := (&api{config: &rest.Config{}}).unanswered("the Karmada API", "--karmada-context", err).Error()
		if runs := strings.Contains(text, "see that it runs"); runs != (want == unreachable) {
			t.Errorf("%s: %s", want, text)
		}
	}
}

func TestOutputFormats(t *testing.T) {
	if checkOutput("wide") != nil || checkOutput("xml") == nil {
		t.Error("wide is a format, xml is not")
	}
}

func TestImageTag(t *testing.T) {
	for ref, want := range map[string]string{
		"localhost/sealane/agent:dev":              "dev",
		"registry.example:5000/agent":              "",
		"registry.example:5000/agent:v1@sha256:00": "v1",
		"agent": "",
	} {
		if got := imageTag(ref); got != want {
			t.Errorf("imageTag(%q) = %q, want %q", ref, got, want)
		}
	}
}

func TestInvocationFollowsTheBinarysName(t *testing.T) {
	for arg0, want := range map[string]string{
		"/usr/bin/kubectl-karmada-sealane": "kubectl karmada sealane",
		"kubectl-sealane":                  "kubectl sealane",
		"kubectl-sealane.exe":              "kubectl sealane",
		"./karmadactl-sealane":             "karmadactl-sealane",
	} {
		if got := invocation(arg0); got != want {
			t.Errorf("invocation(%q) = %q, want %q", arg0, got, want)
		}
	}
}

// TestShowMesh: of clusters whose nodes connect, or would, connections say which way traffic takes.
func TestShowMesh(t *testing.T) {
	for name, c := range map[string]struct {
		of     v1alpha1.MemberConnection
		active bool
		want   string // of the message
	}{
		"all": {v1alpha1.MemberConnection{Topology: v1alpha1.TopologyMesh, NodePairs: 6, StraightNodePairs: 6}, true,
			"Mesh: 6 of 6 pairs of nodes talk without gateways"},
		"some": {v1alpha1.MemberConnection{Topology: v1alpha1.TopologyAuto, NodePairs: 6, StraightNodePairs: 5}, true,
			"Auto: 5 of 6 pairs of nodes talk without gateways, the others by gateways"},
		"none": {v1alpha1.MemberConnection{Topology: v1alpha1.TopologyAuto, NodePairs: 6}, false,
			"Auto: by gateways, as none of 6 pairs of nodes reach each other; they are tried again from time to time"},
		"by an older controller": {v1alpha1.MemberConnection{NodePairs: 6, StraightNodePairs: 6}, true,
			"Mesh: 6 of 6 pairs of nodes talk without gateways"},
		"refused": {v1alpha1.MemberConnection{Topology: v1alpha1.TopologyAuto,
			TopologyReason: v1alpha1.ReasonTooManyNodes}, false, "Auto: by gateways, as the two clusters have too many nodes"},
		"refused for what this version does not know": {v1alpha1.MemberConnection{Topology: v1alpha1.TopologyAuto,
			TopologyReason: "Sunspots"}, false, "Auto: by gateways"},
		"not reported": {v1alpha1.MemberConnection{Topology: v1alpha1.TopologyMesh}, false,
			"Mesh: by gateways, as the member has not reported of its nodes yet"},
		"not known": {v1alpha1.MemberConnection{Topology: v1alpha1.TopologyMesh, Status: v1alpha1.ConnectionUnknown}, false,
			"Mesh: not known"},
	} {
		t.Run(name, func(t *testing.T) {
			m := lostMember()
			c.of.Cluster, m.err = "c1", nil
			m.Status.Connections = []v1alpha1.MemberConnection{c.of, {Cluster: "c2"}}
			rows := connectionRows(&fleet{members: []fleetMember{m}})
			if len(rows) != 1 || rows[0].Link != "sl-cmesh" || rows[0].RemoteCluster != "c1" || rows[0].Active != c.active ||
				rows[0].Message != c.want || rows[0].Reason != c.of.TopologyReason {
				t.Errorf("rows %+v, want %q", rows, c.want)
			}
		})
	}
}

// TestPodsThatAreNotRoutedAreShown among the networks, and as a problem.
func TestPodsThatAreNotRoutedAreShown(t *testing.T) {
	f := twoAndLost()
	f.members[0].Status.Conditions = append(f.members[0].Status.Conditions, metav1.Condition{
		Type: v1alpha1.PeeringPodsRouted, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPodsNotRouted,
		Message: "not reached from other clusters: 2 pods"})
	if got := networkRows(f)[0].Message; got != "not reached from other clusters: 2 pods" {
		t.Errorf("networks: %s", got)
	}
	if !slices.ContainsFunc(problemRows(f), func(r problemRow) bool {
		return r.Cluster == "c1" && r.Reason == v1alpha1.ReasonPodsNotRouted
	}) {
		t.Error("it is no problem")
	}
}
