// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// troubled is a fleet with a problem of every kind.
func troubled() *fleet {
	f := twoAndLost()
	f.leaderSeen = f.now.Add(-5 * time.Minute)
	f.clusterSets = append(f.clusterSets, v1alpha1.ClusterSet{
		ObjectMeta: metav1.ObjectMeta{Name: "edited", Generation: 2},
		Status:     v1alpha1.ClusterSetStatus{ObservedGeneration: 1},
	})
	c1 := &f.members[0]
	c1.Status.Conditions = append(c1.Status.Conditions, condition(v1alpha1.PeeringDNSConfigured, metav1.ConditionFalse,
		v1alpha1.ReasonDomainTaken, "the Corefile serves com"), condition(v1alpha1.PeeringNetworksAccepted,
		metav1.ConditionFalse, v1alpha1.ReasonNetworksRefused, "10.2.0.0/16 of c2 overlaps eth1 (node c1-worker)"))
	// The broker sums up in the ClusterSet what a member says.
	set := &f.clusterSets[0]
	set.Status.Problems = append(set.Status.Problems, v1alpha1.Problem{Cluster: "c1",
		Reason: v1alpha1.ReasonNetworksRefused, Message: "c1 reports: 10.2.0.0/16 of c2 overlaps eth1 (node c1-worker)"})
	set.Status.ConnectedPairs, set.Status.UnlistedPairs = 0, 3
	set.Status.UnconnectedPairs = []v1alpha1.ClusterPair{{Cluster: "c1", RemoteCluster: "c2",
		Status: v1alpha1.ConnectionError, Reason: v1alpha1.ReasonProbesLost,
		Message: "c1 reports Error (ProbesLost), c2 reports Unknown (AgentSilent)"}}
	// The pair says more than this.
	c1.Status.Conditions = append(c1.Status.Conditions, condition(v1alpha1.MemberConnected, metav1.ConditionFalse,
		v1alpha1.ReasonNotConnected, "not connected to: c2 (ProbesLost)"))
	g := &c1.gateways[0]
	g.Status.Conditions = []metav1.Condition{condition("NetworksAccepted", metav1.ConditionFalse,
		v1alpha1.ReasonNetworksRefused, "8.0.0.0/8 of c2 covers the resolver 8.8.8.8")}
	g.Status.Connections[0].Status, g.Status.Connections[0].Message = v1alpha1.ConnectionError, "no probe was answered"
	// c2's gateway reported two minutes ago; c3 cannot be asked, and what the ClusterSet says of it is said once.
	services := shop()
	services.imports("cart", v1alpha1.ClusterSetIP, []string{"c1"}, "c2")
	services.exports("cart", v1alpha1.ClusterSetIP, 0, "c2")
	services.member("c1").services.namespaces = map[string]bool{}
	for i := range f.members {
		f.members[i].bundles, f.members[i].services = services.members[i].bundles, services.members[i].services
	}
	f.members[2].err = errors.New("cluster proxy: dial tcp: i/o timeout")
	return f
}

func TestShowProblemsListsEveryKind(t *testing.T) {
	for _, format := range []string{outputTable, outputWide, outputJSON, outputYAML} {
		var out bytes.Buffer
		if err := write(&out, format, problemTable(troubled())); err != nil {
			t.Fatal(err)
		}
		golden(t, "problems."+format, out.Bytes())
	}
	f := troubled()
	f.namespace = "shop"
	for _, row := range problemRows(f) {
		if !strings.Contains(row.Object, " shop/") && row.Reason != reasonController {
			t.Errorf("-n shop shows %+v", row)
		}
	}
}

func TestNoProblems(t *testing.T) {
	f := twoAndLost()
	f.leaderSeen = f.now.Add(leaderLost - time.Second)
	f.clusterSets[0].Status = v1alpha1.ClusterSetStatus{}
	f.members = f.members[:1]
	f.members[0].bundles = nil
	var out bytes.Buffer
	if err := write(&out, outputTable, problemTable(f)); err != nil || out.String() != "no problems\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

// TestEveryShowHasEveryFormat: a table of each subject in each format, with and without rows, decodes, and its rows
// are there.
func TestEveryShowHasEveryFormat(t *testing.T) {
	for _, f := range []*fleet{troubled(), {}} {
		for _, subject := range showSubjects() {
			table := subject.table(f)
			for _, format := range []string{outputTable, outputWide, outputJSON, outputYAML} {
				var out bytes.Buffer
				if err := write(&out, format, table); err != nil {
					t.Fatalf("show %s -o %s: %v", subject.name, format, err)
				}
				switch format {
				case outputJSON, outputYAML:
					content, err := yaml.YAMLToJSON(out.Bytes())
					decoded := map[string][]map[string]any{}
					if err == nil {
						err = json.Unmarshal(content, &decoded)
					}
					if rows, ok := decoded[table.subject]; err != nil || !ok || rows == nil || len(rows) == 0 && len(table.cells) > 0 {
						t.Errorf("show %s -o %s: %v, rows %v", subject.name, format, err, rows)
					}
				default:
					columns := table.columns[:table.narrow]
					if format == outputWide {
						columns = table.columns
					}
					if len(table.cells) > 0 && len(strings.Fields(strings.SplitN(out.String(), "\n", 2)[0])) != len(columns) {
						t.Errorf("show %s -o %s: the header is not %v: %s", subject.name, format, columns, out.String())
					}
				}
			}
		}
	}
}

// TestAGatewayThatBeginsIsNoProblem, until its agent should have reported, or is known to be silent.
func TestAGatewayThatBeginsIsNoProblem(t *testing.T) {
	for _, c := range []struct {
		name        string
		age         time.Duration
		silent, bad bool
	}{
		{"just labelled", 5 * time.Second, false, false},
		{"just labelled, on a node whose agent is silent", 5 * time.Second, true, true},
		{"labelled long ago", 90 * time.Second, false, true},
	} {
		f := twoAndLost()
		g := &f.members[0].gateways[0]
		created := metav1.NewTime(f.now.Add(-c.age))
		g.CreationTimestamp, g.Status = created, v1alpha1.GatewayStatus{}
		if c.silent {
			g.Status.SilentSince = &created
		}
		if rows := gatewayProblems(f, "c1", g); len(rows) > 0 != c.bad {
			t.Errorf("%s: found %+v", c.name, rows)
		}
		if rows := gatewayRows(f); rows[0].HAState != string(metav1.ConditionUnknown) {
			t.Errorf("%s: the gateway is shown as %q though nothing is known of it", c.name, rows[0].HAState)
		}
	}
}

// TestReplacingAKeyIsNoProblem, unless it takes for long or needs somebody.
func TestReplacingAKeyIsNoProblem(t *testing.T) {
	for _, c := range []struct {
		reason  string
		since   time.Duration
		problem bool
	}{
		{v1alpha1.ReasonKeyOffered, time.Minute, false},
		{v1alpha1.ReasonKeyPromoted, time.Minute, false},
		{v1alpha1.ReasonKeyWaits, time.Minute, false},
		{v1alpha1.ReasonKeyOffered, 2 * time.Hour, true},
		{v1alpha1.ReasonPortTaken, time.Minute, true},
		{v1alpha1.ReasonKeyNotKept, time.Minute, true},
	} {
		f := twoAndLost()
		g := &f.members[0].gateways[0]
		g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.GatewayKeyCurrent, Status: metav1.ConditionFalse,
			Reason: c.reason, Message: "waiting for c2/c2-gw", LastTransitionTime: metav1.NewTime(f.now.Add(-c.since))}}
		if rows := gatewayProblems(f, "c1", g); len(rows) > 0 != c.problem {
			t.Errorf("%s for %s: problems %+v", c.reason, c.since, rows)
		}
	}
}
