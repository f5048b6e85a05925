// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/node"
)

// shut drops datagrams to a UDP port on their way between two machines, in one direction.
func (n *network) shut(t *testing.T, from, to *machine, port int) {
	t.Helper()
	n.run(t, fmt.Sprintf(`nft -f - <<EOF
table bridge shut {
	chain between {
		type filter hook forward priority 0;
		iifname %q oifname %q udp dport %d drop
	}
}
EOF`, from.name, to.name, port))
}

// hears is what a gateway says of whether it hears the one that it has a tunnel to: "yes", "no" or "".
func (m *machine) hears() string {
	var s v1alpha1.GatewayStatus
	if m.read("status.json", &s) != nil || len(s.Connections) != 1 || s.Connections[0].Heard == nil {
		return ""
	}
	return map[bool]string{true: "yes", false: "no"}[*s.Connections[0].Heard]
}

func (m *machine) unheard() []string {
	var s v1alpha1.GatewayStatus
	_ = m.read("status.json", &s)
	return s.UnheardNodes
}

func (m *machine) unreached() string {
	var s node.NodeState
	_ = m.read("state.json", &s)
	return s.Unreached
}

// TestWhichWayIsShut: between gateways, and between nodes, what both ends report says which of the two ways datagrams
// do not pass.
func TestWhichWayIsShut(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	eventually(t, time.Minute, "gateways connected", func() bool { return n.gw1.connected() && n.gw2.connected() })
	eventually(t, time.Minute, "traffic", func() bool { return n.worker1.pings(podOfC2, "") })

	n.shut(t, n.gw2, n.gw1, 4500)
	n.shut(t, n.gw1, n.worker1, 4800)
	took := eventually(t, 90*time.Second, "gw1 does not hear gw2, and gw2 hears gw1",
		func() bool { return n.gw1.hears() == "no" && n.gw2.hears() == "yes" })
	t.Logf("between gateways after %s", took)
	eventually(t, 30*time.Second, "worker1 does not reach gw1", func() bool { return n.worker1.unreached() == "gw1" })
	if got := n.gw1.unheard(); len(got) > 0 {
		t.Errorf("gw1 does not hear %v, though what they send arrives", got)
	}

	n.run(t, "nft delete table bridge shut")
	n.shut(t, n.worker1, n.gw1, 4800)
	took = eventually(t, 90*time.Second, "gw1 does not hear worker1",
		func() bool {
			return slices.Equal(n.gw1.unheard(), []string{"worker1"}) && n.worker1.unreached() == "gw1"
		})
	t.Logf("between nodes after %s", took)
	eventually(t, 90*time.Second, "nothing is said of a tunnel that is connected",
		func() bool { return n.gw1.connected() && n.gw1.hears() == "" && n.gw2.hears() == "" })

	n.run(t, "nft delete table bridge shut")
	took = eventually(t, 30*time.Second, "all pass again",
		func() bool { return len(n.gw1.unheard()) == 0 && n.worker1.unreached() == "" })
	t.Logf("healed after %s", took)
}
