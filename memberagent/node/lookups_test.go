// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/node"
)

// silentNameServer answers no query, and counts them.
func (n *network) silentNameServer(t *testing.T) *atomic.Int64 {
	t.Helper()
	n.run(t, "ip addr add "+silentResolver+"/24 dev under")
	var c net.PacketConn
	inNetworkOf(t, n.underlay, func() (err error) {
		c, err = new(net.ListenConfig).ListenPacket(t.Context(), "udp4", silentResolver+":53")
		return err
	})
	t.Cleanup(func() { _ = c.Close() })
	queries := &atomic.Int64{}
	go func() {
		for buffer := make([]byte, 1500); ; {
			if _, _, err := c.ReadFrom(buffer); err != nil {
				return
			}
			queries.Add(1)
		}
	}()
	return queries
}

// publishes sets the sources of a gateway's public addresses.
func (m *machine) publishes(t *testing.T, sources string) {
	t.Helper()
	var o node.Objects
	if err := m.read("cluster.json", &o); err != nil {
		t.Fatal(err)
	}
	for i := range o.Nodes {
		if o.Nodes[i].Name == m.name {
			o.Nodes[i].Annotations = map[string]string{v1alpha1.AnnotationPublicIP: sources}
		}
	}
	if err := m.write("cluster.json", o); err != nil {
		t.Fatal(err)
	}
	_ = m.agent.Process.Signal(syscall.SIGHUP)
}

// TestFailoverWaitsForNoLookup: a gateway whose name server, or whose API server asked for a load balancer, never
// answers changes its routes as fast as one that asks for nothing, when a remote gateway dies.
func TestFailoverWaitsForNoLookup(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.gw3 = n.newMachine(t, "gw3", "c2", 4, "10.9.1", "fd09:0:0:1")
	n.tell(t, v1alpha1.MemberActive)
	n.gw3.start(t)
	queries := n.silentNameServer(t)
	lookedUp := func() bool { _, err := os.Stat(n.gw1.path("asked")); return err == nil }
	for _, c := range []struct {
		name, sources string
		asked         func() bool
	}{
		{"without look-ups", "ipv4:203.0.113.9", func() bool { return true }},
		// Each look-up is given up after 2 s.
		{"lb", "lb:a,lb:b,lb:c,lb:d", lookedUp},
		{"dns", "dns:a.example,dns:b.example,dns:c.example,dns:d.example",
			func() bool { return queries.Load() > 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			eventually(t, time.Minute, "both connected, and traffic by both", func() bool {
				var s v1alpha1.GatewayStatus
				return n.gw1.read("status.json", &s) == nil && len(s.Connections) == 2 &&
					n.gw1.carries("10.9.0.0/16", "sl-c0", "sl-c1") &&
					!slices.ContainsFunc(s.Connections, func(
						c v1alpha1.Connection) bool {
						return c.Status != v1alpha1.ConnectionConnected
					})
			})
			if err := os.WriteFile(n.gw1.path("unanswered"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			n.gw1.publishes(t, c.sources)
			eventually(t, 20*time.Second, "asks", c.asked)
			n.gw2.run(t, "ip link set eth0 down")
			took := eventually(t, 1500*time.Millisecond, "traffic by gw3",
				func() bool { return n.gw1.carries("10.9.0.0/16", "sl-c1") })
			t.Logf("routes changed after %s", took)
			n.gw2.run(t, "ip link set eth0 up")
			if err := os.Remove(n.gw1.path("unanswered")); err != nil {
				t.Fatal(err)
			}
		})
	}
}
