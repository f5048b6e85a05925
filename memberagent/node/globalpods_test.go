// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// podsOfTwins gives the pod of each twin's gateway the address 120.x.0.20, and that of its worker 120.x.0.21.
func podsOfTwins() map[string][]v1alpha1.GlobalPod {
	out := map[string][]v1alpha1.GlobalPod{}
	for i, cluster := range []string{"c1", "c2"} {
		out[cluster] = []v1alpha1.GlobalPod{
			{Name: "db-0", IP: "10.7.0.10", IPv6: sixOf("10.7.0.10"), GlobalIP: fmt.Sprintf("120.%d.0.20", i+1)},
			{Name: "db-1", IP: "10.7.1.10", IPv6: sixOf("10.7.1.10"), GlobalIP: fmt.Sprintf("120.%d.0.21", i+1)},
		}
	}
	return out
}

// TestPodsOfTwinClusters: pods behind headless services reach each other by their own global addresses, and are known
// by them, whichever of them connects.
func TestPodsOfTwinClusters(t *testing.T) {
	t.Parallel()
	n := newTwins(t, podsOfTwins())
	for _, m := range n.all() {
		m.serve(t)
	}
	eventually(t, time.Minute, "gateways connected", func() bool { return n.gw1.connected() && n.gw2.connected() })
	for from, to := range map[*machine]string{n.worker1: "120.2.0.21:8080", n.worker2: "120.1.0.21:8080"} {
		eventually(t, 20*time.Second, "an answer to "+from.name, func() bool {
			_, _, err := ask(t, from.pod, "tcp4", to)
			return err == nil
		})
	}
	for _, m := range []*machine{n.gw1, n.gw2} {
		m.run(t, fmt.Sprintf(`nft add table ip test
			nft add chain ip test pre '{ type filter hook prerouting priority -301; }'
			nft add rule ip test pre iifname sl-c0 ip saddr != 120.0.0.0/8 counter comment shown
			nft add rule ip test pre iifname sl-c0 ip daddr != %s counter comment shown`, blocks[m.cluster]))
	}
	t.Run("both ways", n.podsBothWays)
	t.Run("errors reach the real sender", func(t *testing.T) {
		if _, _, err := ask(t, n.worker1.pod, "udp4", "120.2.0.21:8081"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("echo", func(t *testing.T) {
		if text, err := within(n.worker1.pod, "ping -c 1 -W 3 120.2.0.21").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, text)
		}
	})
	t.Run("both connect at once", n.bothConnect)
	t.Run("pods come and go", n.podsComeAndGo)
	for _, m := range []*machine{n.gw1, n.gw2} {
		if shown := m.counted(t, "shown"); shown != 0 {
			t.Errorf("%s: %d packets came with an address that is not global", m.name, shown)
		}
	}
	t.Run("nothing is left", func(t *testing.T) {
		n.tellTwins(t, v1alpha1.MemberLeaving, nil)
		for _, m := range n.all() {
			m.becomes(t, 20*time.Second, "")
		}
	})
}

func (n *twins) podsBothWays(t *testing.T) {
	for _, c := range []struct {
		name, cluster string
		from          *exec.Cmd
		own           string // "": one of those that the gateway sends from
	}{
		{"a pod of a worker", "c1", n.worker1.pod, "120.1.0.21"}, {"a pod of a gateway", "c1", n.gw1.pod, "120.1.0.20"},
		{"a worker", "c1", n.worker1.holder, ""}, {"a gateway", "c1", n.gw1.holder, ""},
		{"a pod of the other's worker", "c2", n.worker2.pod, "120.2.0.21"},
		{"a pod of the other's gateway", "c2", n.gw2.pod, "120.2.0.20"},
	} {
		to := map[string]map[string]string{
			"c1": {"120.2.0.20": "gw2", "120.2.0.21": "worker2"}, "c2": {"120.1.0.20": "gw1", "120.1.0.21": "worker1"},
		}[c.cluster]
		for address, want := range to {
			for _, network := range []string{"tcp4", "udp4"} {
				server, client, err := ask(t, c.from, network, address+":8080")
				if err != nil || server != want {
					t.Errorf("%s from %s to %s: answered by %q, %v", network, c.name, address, server, err)
					continue
				}
				if c.own == "" && !sends[c.cluster].Contains(client) || c.own != "" && client != netip.MustParseAddr(c.own) {
					t.Errorf("%s from %s to %s: the server sees %s", network, c.name, address, client)
				}
			}
		}
		service := map[string]string{"c1": serviceOfTwin2, "c2": serviceOfTwin1}[c.cluster]
		if _, client, err := ask(t, c.from, "tcp4", service+":80"); err != nil || c.own != "" && client.String() != c.own {
			t.Errorf("from %s to a service: it sees %s, %v", c.name, client, err)
		}
	}
}

// bothConnect: two pods open one connection to each other at the same time (RFC 9293, simultaneous open). Each one's
// first segment is on its way when the other's arrives, so both gateways see the beginning of a flow from either side.
func (n *twins) bothConnect(t *testing.T) {
	ends := []struct {
		pod  *exec.Cmd
		port int
		to   string
	}{{n.worker1.pod, 9101, "120.2.0.21:9102"}, {n.worker2.pod, 9102, "120.1.0.21:9101"}}
	for _, e := range ends {
		// The first segments are lost, and both are sent again.
		if out, err := within(e.pod, `nft add table ip lost
			nft add chain ip lost pre '{ type filter hook prerouting priority 0; }'
			nft add rule ip lost pre tcp dport { 9101, 9102 } counter drop comment lost`).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	type end struct {
		c   net.Conn
		err error
	}
	opened := make(chan end, len(ends))
	for _, e := range ends {
		go func() {
			var got end
			inNetworkOf(t, e.pod, func() error {
				d := net.Dialer{LocalAddr: &net.TCPAddr{Port: e.port}, Timeout: 10 * time.Second}
				got.c, got.err = d.DialContext(context.WithoutCancel(t.Context()), "tcp4", e.to)
				return nil
			})
			opened <- got
		}()
	}
	for _, e := range ends {
		eventually(t, 5*time.Second, "a first segment is lost", func() bool {
			return counted(t, within(e.pod, "nft list table ip lost"), "lost") > 0
		})
	}
	for _, e := range ends {
		if out, err := within(e.pod, "nft delete table ip lost").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	var conns []net.Conn
	for range ends {
		got := <-opened
		if got.err != nil {
			t.Fatal(got.err)
		}
		t.Cleanup(func() { _ = got.c.Close() })
		conns = append(conns, got.c)
	}
	for i, c := range conns {
		if _, err := fmt.Fprint(c, "hello"); err != nil {
			t.Fatal(err)
		}
		other := conns[1-i]
		_ = other.SetDeadline(time.Now().Add(patience))
		buffer := make([]byte, 5)
		if _, err := io.ReadFull(other, buffer); err != nil || string(buffer) != "hello" {
			t.Errorf("%s hears %q, %v", other.LocalAddr(), buffer, err)
		}
	}
}

// podsComeAndGo shows that a change of one pod leaves the connections of others and the rules alone.
func (n *twins) podsComeAndGo(t *testing.T) {
	other, err := dialFrom(t, n.worker1.pod, "tcp4", "120.2.0.20:8080")
	if err != nil {
		t.Fatal(err)
	}
	rules := func() string {
		return n.gw2.run(t, "nft -a list chain ip sealane services; nft -a list chain ip sealane guard")
	}
	before := rules()
	all := n.pods["c2"]
	n.pods["c2"] = []v1alpha1.GlobalPod{all[0], {Name: "db-1", GlobalIP: all[1].GlobalIP}}
	n.tellTwins(t, v1alpha1.MemberActive, []string{"10.7.0.10", "10.7.1.10"})
	eventually(t, 5*time.Second, "a pod that went is unreachable", func() bool {
		_, _, err := ask(t, n.worker1.pod, "tcp4", "120.2.0.21:8080")
		return errors.Is(err, syscall.EHOSTUNREACH)
	})
	t.Log("it comes back elsewhere")
	n.pods["c2"] = slices.Clone(all)
	n.pods["c2"][1].IP = "10.7.0.10"
	n.tellTwins(t, v1alpha1.MemberActive, []string{"10.7.0.10", "10.7.1.10"})
	eventually(t, 5*time.Second, "it answers where it is now", func() bool {
		server, _, err := ask(t, n.worker1.pod, "tcp4", "120.2.0.21:8080")
		return err == nil && server == "gw2"
	})
	if after := rules(); after != before {
		t.Errorf("rules that have not changed were written anew:\n%s\n%s", before, after)
	}
	if _, err := other.Write([]byte("still there?")); err != nil {
		t.Error(err)
	}
	buffer := make([]byte, 64)
	if k, err := other.Read(buffer); err != nil || !strings.Contains(string(buffer[:k]), "gw2") {
		t.Errorf("another pod's connection is lost: %q, %v", buffer[:k], err)
	}
}
