// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/node"
)

// bulk is a TCP connection that carries as much as 6 MB a second in one direction.
type bulk struct {
	name     string
	received atomic.Int64
}

func (n *network) bulk(t *testing.T, from, to *machine, address string) *bulk {
	t.Helper()
	b := &bulk{name: from.name + " to " + address}
	var listener net.Listener
	var client net.Conn
	inNetworkOf(t, to.pod, func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		return err
	})
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		c, err := listener.Accept()
		buffer := make([]byte, 1<<16)
		for err == nil {
			var k int
			k, err = c.Read(buffer)
			b.received.Add(int64(k))
		}
	}()
	inNetworkOf(t, from.pod, func() (err error) {
		client, err = (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", address)
		return err
	})
	t.Cleanup(func() { _ = client.Close() })
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			if _, err := client.Write(buffer); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return b
}

// flows waits until a megabyte more has come.
func (b *bulk) flows(t *testing.T, within time.Duration, when string) time.Duration {
	t.Helper()
	before := b.received.Load()
	return eventually(t, within, b.name+" flows "+when, func() bool { return b.received.Load() > before+1<<20 })
}

// relay does what the API server does: it tells the machines of a cluster what its gateway has reported.
func (n *network) relay(t *testing.T, gateway *machine) v1alpha1.GatewayStatus {
	t.Helper()
	var s v1alpha1.GatewayStatus
	if gateway.read("status.json", &s) != nil {
		return s
	}
	for _, m := range n.all() {
		var o node.Objects
		if m.cluster != gateway.cluster || m.read("cluster.json", &o) != nil {
			continue
		}
		for i := range o.Gateways {
			if o.Gateways[i].Name == gateway.name {
				o.Gateways[i].Status = s
			}
		}
		if err := m.write("cluster.json", o); err != nil {
			t.Fatal(err)
		}
		if m.agent != nil {
			_ = m.agent.Process.Signal(syscall.SIGHUP)
		}
	}
	return s
}

// mtu is that of a machine's route to a prefix, as the kernel lists it.
func (m *machine) mtu(prefix string) string {
	family := "-4"
	if strings.Contains(prefix, ":") {
		family = "-6"
	}
	out, _ := m.command("ip " + family + " route show " + prefix + " table 5100 metric 100").CombinedOutput()
	_, after, _ := strings.Cut(string(out), " mtu ")
	mtu, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(after), "lock "), " ")
	return mtu
}

// TestLargePacketsVanish between two gateways, without a word: bulk transfers of both families and in both directions
// hang, and flow again. When the path heals, the size returns.
func TestLargePacketsVanish(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	for _, m := range []*machine{n.gw1, n.gw2} {
		m.run(t, "ip link set eth0 gso_max_segs 1") // else what is measured and dropped are batches of packets
	}
	eventually(t, time.Minute, "gateways connected", func() bool { return n.gw1.connected() && n.gw2.connected() })
	for _, to := range []string{podOfC2, podOfC26} {
		eventually(t, time.Minute, "traffic", func() bool { return n.worker1.pings(to, "") })
	}
	flows := []*bulk{
		n.bulk(t, n.worker1, n.gw2, podOfC2+":7100"), n.bulk(t, n.worker1, n.gw2, "["+podOfC26+"]:7100"),
		n.bulk(t, n.gw2, n.worker1, n.worker1.pods+".10:7101"), n.bulk(t, n.gw2, n.worker1, "["+n.worker1.pods6+"::10]:7101"),
		n.bulk(t, n.gw1, n.gw2, podOfC2+":7102"), n.bulk(t, n.gw2, n.gw1, "["+n.gw1.pods6+"::10]:7103"),
	}
	for _, b := range flows {
		b.flows(t, 20*time.Second, "before")
	}
	if s := n.relay(t, n.gw1); s.Connections[0].MTU != 0 || !meta.IsStatusConditionTrue(s.Conditions,
		v1alpha1.GatewayFullSize) {
		t.Fatalf("on a path that carries all: %+v", s)
	}

	// 60 bytes around an inner packet, which is filled up to a multiple of 16: 1328 of the 1340.
	n.run(t, `nft -f - <<EOF
table bridge hole {
	chain between {
		type filter hook forward priority 0;
		iifname { "gw1", "gw2" } oifname { "gw1", "gw2" } ip length > 1400 counter drop comment "vanished"
	}
}
EOF`)
	vanished := func() int {
		return counted(t, n.command("nft list table bridge hole"), "vanished")
	}
	began := time.Now()
	eventually(t, 5*time.Second, "large packets vanish, or this could not fail", func() bool { return vanished() > 0 })
	const wantMTU = 1328
	var s v1alpha1.GatewayStatus
	for _, m := range []*machine{n.gw1, n.gw2} {
		took := eventually(t, 5*time.Second, m.name+" lowers the MTU", func() bool {
			s = n.relay(t, m)
			return s.Connections[0].MTU == wantMTU
		})
		t.Logf("%s found the size after %s", m.name, took)
		if c := s.Connections[0]; c.Status != v1alpha1.ConnectionConnected || c.Reason != v1alpha1.ReasonPathMTULow ||
			!meta.IsStatusConditionFalse(s.Conditions, v1alpha1.GatewayFullSize) {
			t.Errorf("%s reports %+v, conditions %+v", m.name, c, s.Conditions)
		}
	}
	// With TCP's next try, which may be as far away as the last one lies back: on a machine with other things to do that
	// is longer, as it takes longer until here.
	for _, b := range flows {
		t.Logf("%s: a megabyte after %s", b.name, b.flows(t, 15*time.Second+time.Since(began), "again"))
	}
	for _, prefix := range []string{"10.9.0.0/16", "fd09::/48"} {
		eventually(t, 5*time.Second, "the worker's route",
			func() bool { return n.worker1.mtu(prefix) == fmt.Sprint(wantMTU) })
	}

	t.Run("an agent that starts anew keeps the size", func(t *testing.T) {
		n.gw1.stop(t, syscall.SIGKILL)
		n.gw1.start(t)
		eventually(t, time.Minute, "programmed", func() bool { return n.gw1.says(v1alpha1.ReasonNodeProgrammed) })
		if got := n.gw1.mtu("10.9.0.0/16"); got != fmt.Sprint(wantMTU) {
			t.Errorf("MTU %s after the start", got)
		}
		for _, b := range flows {
			b.flows(t, 20*time.Second, "after a restart")
		}
	})

	n.run(t, "nft delete table bridge hole")
	took := eventually(t, time.Minute, "the size returns", func() bool {
		one, two := n.relay(t, n.gw1), n.relay(t, n.gw2)
		return one.Connections[0].MTU == 0 && two.Connections[0].MTU == 0 && n.worker1.mtu("fd09::/48") == "1420" &&
			n.gw1.mtu("10.9.0.0/16") == "1420" && meta.IsStatusConditionTrue(one.Conditions, v1alpha1.GatewayFullSize)
	})
	t.Logf("the size returned after %s", took)
	for _, b := range flows {
		b.flows(t, 5*time.Second, "after the path has healed")
	}
}
