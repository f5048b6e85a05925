// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestWhatIsReachedThroughARelay is shown as that, is no tunnel of its own, and names the relay where that is at fault.
func TestWhatIsReachedThroughARelay(t *testing.T) {
	f := twoAndLost()
	var g *v1alpha1.Gateway
	var m *fleetMember
	for i := range f.members {
		for j := range f.members[i].gateways {
			if at := &f.members[i].gateways[j]; g == nil && len(at.Status.Connections) > 0 && stale(f, at) == "" {
				m, g = &f.members[i], at
			}
		}
	}
	before := len(tunnelsOf(m))
	behind := v1alpha1.Connection{Cluster: "behind", Through: "relay", Gateway: "far", Cable: v1alpha1.CableVXLAN,
		Status: v1alpha1.ConnectionConnected}
	g.Status.Connections = append(g.Status.Connections, behind)
	last := &g.Status.Connections[len(g.Status.Connections)-1]
	show := func() string {
		t.Helper()
		var out bytes.Buffer
		if err := write(&out, outputWide, connectionTable(f), problemTable(f)); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if out := show(); !strings.Contains(out, "through relay; NOT ENCRYPTED") {
		t.Errorf("expected the relay in\n%s", out)
	}
	if row := connectionOf(f, m.Name, g, last); row.LossPercent != nil || row.Through != "relay" {
		t.Errorf("expected no loss, of which nothing is measured, in %+v", row)
	}
	if after := len(tunnelsOf(m)); after != before || inClear(m) != 0 {
		t.Errorf("%d tunnels, %d of them in clear, where there were %d", after, inClear(m), before)
	}
	p := &place{name: m.Name}
	if c, bad := (&snapshot{}).tunnel(p, g, last, nil); bad {
		t.Errorf("what is well is judged: %+v", c)
	}
	last.Status, last.Reason = v1alpha1.ConnectionError, v1alpha1.ReasonRelayNotConnected
	last.Message = "the relay says so"
	if out := show(); !strings.Contains(out, "the way to behind through relay is Error: the relay says so") {
		t.Errorf("expected the way among the problems of\n%s", out)
	}
	c, bad := (&snapshot{}).tunnel(p, g, last, nil)
	if !bad || c.Verdict != verdictFail || !strings.Contains(c.Expected, "relay to be connected to behind") {
		t.Errorf("expected a finding, found %t %+v", bad, c)
	}
	if c, bad := (&snapshot{}).tunnel(p, g, last, map[string]bool{"behind": true}); !bad || c.Verdict != verdictWarn {
		t.Errorf("expected a warning where another way leads there, found %t %+v", bad, c)
	}
	last.Reason = v1alpha1.ReasonProbesLost
	if c, bad := (&snapshot{}).tunnel(p, g, last, nil); bad {
		t.Errorf("the tunnel to the relay is judged twice: %+v", c)
	}
}

// TestWhatAMemberReportedOfARelay is what there is of one that cannot be asked.
func TestWhatAMemberReportedOfARelay(t *testing.T) {
	f := twoAndLost()
	lost := &f.members[2]
	lost.Status.Connections = []v1alpha1.MemberConnection{{Cluster: "behind", Through: "relay",
		Status: v1alpha1.ConnectionConnected}}
	rows := reportedConnections(f, lost)
	if len(rows) != 1 || rows[0].Through != "relay" ||
		!strings.HasPrefix(rows[0].Message, "through relay, as last reported") {
		t.Errorf("expected the relay in %+v", rows)
	}
}

// behindC5 has c1 and c2 reach each other by c5, whose gateways are of two names, and not be connected.
func behindC5(t *testing.T, s *snapshot) {
	t.Helper()
	for cluster, other := range map[string]string{"c1": "c2", "c2": "c1"} {
		g := the[*v1alpha1.Gateway](t, s.member(cluster), cluster+"-gw")
		g.Status.Connections = nil
		for _, gateway := range []string{"c5-gw", "c5-gw2"} {
			g.Status.Connections = append(g.Status.Connections, v1alpha1.Connection{Cluster: other, Through: "c5",
				Gateway: gateway, Link: "sl-c0", Status: v1alpha1.ConnectionError, Reason: v1alpha1.ReasonRelayNotConnected})
		}
	}
}

// TestNoFirewallIsJudgedByWhatIsThroughARelay: the relay is asked at another port, by its own tunnels.
func TestNoFirewallIsJudgedByWhatIsThroughARelay(t *testing.T) {
	s := well()
	behindC5(t, s)
	for _, c := range checkFirewall(s) {
		if c.Verdict != verdictOK {
			t.Errorf("%+v", c)
		}
	}
}

// TestTheMapNamesARelay once for each end, however many gateways it has.
func TestTheMapNamesARelay(t *testing.T) {
	s := well()
	behindC5(t, s)
	edges := s.picture().Edges
	if len(edges) != 1 || strings.Join(edges[0].Ways, ", ") != "c1: through c5, c2: through c5" {
		t.Errorf("expected the relay once for each end in %+v", edges)
	}
}
