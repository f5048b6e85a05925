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
	last.Reason = v1alpha1.ReasonProbesLost
	if c, bad := (&snapshot{}).tunnel(p, g, last, nil); bad {
		t.Errorf("the tunnel to the relay is judged twice: %+v", c)
	}
}
