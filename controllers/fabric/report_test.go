// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/claim"
	"github.com/sealane-io/sealane/internal/netfacts"
)

func TestParseReport(t *testing.T) {
	for name, c := range map[string]struct {
		raw    string
		floor  int64
		known  bool
		reason string
	}{
		"good":               {raw: `{"observedRevision":3}`, floor: 3, known: true},
		"none":               {raw: ``},
		"empty":              {raw: `{}`},
		"null":               {raw: `null`},
		"of the past":        {raw: `{"observedRevision":2}`, floor: 3},
		"not an object":      {raw: `[]`, reason: v1alpha1.ReasonInvalidNetworks},
		"of the wrong types": {raw: `{"observedRevision":"3"}`, reason: v1alpha1.ReasonInvalidNetworks},
		"cut off":            {raw: `{"observedRevision":3`, reason: v1alpha1.ReasonInvalidNetworks},
		"2 MB": {raw: `{"agentVersion":"` + strings.Repeat("x", 2<<20) + `"}`,
			reason: v1alpha1.ReasonStatusTooLarge},
		"too many endpoints": {raw: `{"observedRevision":3,"endpoints":[{}` + strings.Repeat(",{}", 16) + `]}`,
			reason: v1alpha1.ReasonStatusTooLarge},
		"too many pod CIDRs": {raw: `{"observedRevision":3,"networks":{"podCIDRs":[""` + strings.Repeat(`,""`, 1024) + `]}}`,
			reason: v1alpha1.ReasonStatusTooLarge},
		"too many conditions": {raw: `{"observedRevision":3,"conditions":[{}` + strings.Repeat(`,{}`, 16) + `]}`,
			reason: v1alpha1.ReasonStatusTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			r := ParseReport("c1", []byte(c.raw), c.floor)
			if r.Known != c.known {
				t.Errorf("known: %v", r.Known)
			}
			switch {
			case c.reason == "" && r.Problem != nil:
				t.Errorf("problem %v", *r.Problem)
			case c.reason != "" && (r.Problem == nil || r.Problem.Reason != c.reason):
				t.Errorf("problem %v, want %s", r.Problem, c.reason)
			case r.Problem != nil && len(r.Problem.Message) > maxMessage:
				t.Errorf("a message of %d bytes", len(r.Problem.Message))
			}
		})
	}
}

func key(n byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, 32)) }

// FuzzReport feeds Decide whatever a member could write. What comes out must be valid, and what the
// others are told of a third member must not depend on it.
func FuzzReport(f *testing.F) {
	for _, n := range []int{2, 3} {
		raw, err := json.Marshal(reported(n))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"observedRevision":1,"networks":{"podCIDRs":["10.1.0.0/16","0.0.0.0/0"],"serviceCIDRs":["::/0"]}}`))
	f.Add(
		[]byte(
			`{"observedRevision":1,"endpoints":[{"gateway":"g","publicKey":"AQ==",` +
				`"addresses":[{"type":"Private","ip":"10.1.0.1"}]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		in := Input{Now: time.Unix(1e9, 0), Members: []Member{known(1), known(3), known(2)}}
		in.Set.Spec.Shards = 4
		in.Set.Spec.Topology.Mode = v1alpha1.TopologyAuto // of c2 and c3
		in.Set.Spec.Topology.Pairs = []v1alpha1.TopologyPair{pairOf("c1", "c2"), pairOf("c1", "c3")}
		in.Members[0].Report.Status.Nodes, in.Members[1].Report.Status.Nodes = nodesOf(1, 2), nodesOf(3, 2)
		in.Members[2].Report = ParseReport("c2", raw, 0)
		d := Decide(in)
		for name, status := range d.Statuses {
			if _, err := claim.Parse(status.Networks, status.NodeCIDRs); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, r := range d.Peerings["c1"].RemoteClusters {
			for _, e := range r.Endpoints {
				if err := claim.CheckEndpoint(&e, claim.Others{Routed: new(netfacts.Owners)}); err != nil {
					t.Errorf("c1 is told of gateway %q of %s: %v", e.Gateway, r.Name, err)
				}
			}
			if r.Name == "c3" && r.Networks.PodCIDRs[0] != "10.3.0.0/16" {
				t.Errorf("c1 is told that c3 has %v", r.Networks)
			}
		}
		if len(d.Peerings["c1"].RemoteClusters) == 0 {
			t.Error("c1 has lost c3")
		}
	})
}

// reported are the facts of cluster n.
func reported(n int) v1alpha1.PeeringStatus {
	return v1alpha1.PeeringStatus{
		ObservedRevision: 1,
		Networks: v1alpha1.Networks{PodCIDRs: []string{fmt.Sprintf("10.%d.0.0/16", n)},
			ServiceCIDRs: []string{fmt.Sprintf("10.%d.0.0/16", 100+n)}},
		NodeCIDRs: []string{fmt.Sprintf("192.168.%d.1/32", n)},
		Endpoints: []v1alpha1.Endpoint{{
			Gateway: "g", PublicKey: key(byte(n)),
			Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPrivate, IP: fmt.Sprintf("192.168.%d.1", n)}},
		}},
	}
}

// known is cluster n, which reports and is as old as its number is high.
func known(n int) Member {
	m := Member{Writable: true, Report: Report{Known: true, Status: reported(n)}}
	m.Record.Name = fmt.Sprintf("c%d", n)
	m.Record.CreationTimestamp = metav1.Unix(int64(n), 0)
	m.Record.Spec.Phase = v1alpha1.MemberActive
	return m
}

// TestPodsThatAreNotRouted are a problem of the ClusterSet, which is ready all the same, and told of the Member.
func TestPodsThatAreNotRouted(t *testing.T) {
	w := connected(1, 1)
	w.step()
	s := &w.member("c2").Report.Status
	s.Conditions = append(s.Conditions, metav1.Condition{Type: v1alpha1.PeeringPodsRouted, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonPodsNotRouted, Message: "2 pods"})
	w.step()
	w.expect(t, "problems", w.complaints(), "PodsNotRouted: c2 reports: 2 pods")
	if !w.ready() {
		t.Errorf("conditions %v", w.in.Set.Status.Conditions)
	}
	if c := meta.FindStatusCondition(w.member("c2").Record.Status.Conditions, v1alpha1.PeeringPodsRouted); c == nil ||
		c.Message != "2 pods" {
		t.Errorf("the Member says %+v", c)
	}
}

// TestAnUnderlayThatIsNotRouted is a problem of the ClusterSet where the plugin cannot be told, and told of the Member
// for as long as the report does.
func TestAnUnderlayThatIsNotRouted(t *testing.T) {
	w := connected(1, 1)
	w.step()
	s := &w.member("c2").Report.Status
	before := s.Conditions
	for _, c := range []struct {
		status   metav1.ConditionStatus
		reason   string
		problems string
	}{
		{metav1.ConditionUnknown, v1alpha1.ReasonNotPublished, ""},
		{metav1.ConditionFalse, v1alpha1.ReasonPublishRefused, "PublishRefused: c2 reports: route 10.9.0.0/16"},
	} {
		s.Conditions = append(slices.Clone(before), metav1.Condition{Type: v1alpha1.PeeringUnderlayRouted, Status: c.status,
			Reason: c.reason, Message: "route 10.9.0.0/16"})
		w.step()
		w.expect(t, "problems", w.complaints(), c.problems)
		got := meta.FindStatusCondition(w.member("c2").Record.Status.Conditions, v1alpha1.PeeringUnderlayRouted)
		if got == nil || got.Status != c.status || got.Message != "route 10.9.0.0/16" {
			t.Errorf("%s: the Member says %+v", c.reason, got)
		}
	}
	s.Conditions = before
	w.step()
	if got := meta.FindStatusCondition(w.member("c2").Record.Status.Conditions,
		v1alpha1.PeeringUnderlayRouted); got != nil {
		t.Errorf("the Member still says %+v", got)
	}
}

// TestALabelThatDoesNothing is a problem of the ClusterSet, whose network is ready all the same.
func TestALabelThatDoesNothing(t *testing.T) {
	w := connected(1, 1)
	w.step()
	if !w.ready() || w.complaints() != "" {
		t.Fatalf("not ready before: %s", w.complaints())
	}
	s := &w.member("c2").Report.Status
	s.Conditions = append(s.Conditions, metav1.Condition{
		Type: v1alpha1.PeeringGatewaysReady, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonGatewayLabelIgnored, Message: "labelled and no gateways: n3"})
	w.step()
	w.expect(t, "problems", w.complaints(), "GatewayLabelIgnored: c2 reports: labelled and no gateways: n3")
	if !w.ready() {
		t.Errorf("conditions %v", w.in.Set.Status.Conditions)
	}
}
