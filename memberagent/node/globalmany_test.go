// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"net"
	"testing"
	"time"
)

// manyFlows: 24,000 flows at once from one pod to one port of a service, which share an address of the cluster. Nearly
// all arrive, each is one entry of connection tracking on each gateway, and others are served meanwhile.
func (n *twins) manyFlows(t *testing.T) {
	const flows, firstPort = 24000, 30000
	old, err := dialFrom(t, n.worker1.pod, "tcp4", serviceOfTwin2+":80")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Read(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	servers := []*machine{n.gw2, n.worker2}
	for _, m := range servers {
		m.run(t, `nft add table ip many; nft add chain ip many pass '{ type filter hook forward priority 300; }'
			nft add rule ip many pass oifname cni0 udp dport 8080 counter comment arrived`)
		defer m.run(t, "nft delete table ip many")
	}
	arrived := func() (sum int) {
		for _, m := range servers {
			sum += counted(t, m.command("nft list table ip many"), "arrived")
		}
		return sum
	}
	const together = 400 // fit the queues on the way
	for sent := 0; sent < flows; sent += together {
		inNetworkOf(t, n.worker1.pod, func() error {
			to := &net.UDPAddr{IP: net.ParseIP(serviceOfTwin2), Port: 80}
			for i := range together {
				c, err := net.DialUDP("udp4", &net.UDPAddr{Port: firstPort + sent + i}, to)
				if err != nil {
					return err
				}
				_, err = c.Write([]byte("hello"))
				_ = c.Close()
				if err != nil {
					return err
				}
			}
			return nil
		})
		eventually(t, 20*time.Second, "most flows arrive", func() bool { return arrived() > (sent+together)*9/10 })
	}
	for _, m := range []*machine{n.gw1, n.gw2} {
		if tracked := m.tracks(t); tracked < flows*8/10 || tracked > flows*11/10 {
			t.Errorf("%s tracks %d connections of %d flows", m.name, tracked, flows)
		}
	}
	for i := range 20 {
		_, client, err := ask(t, n.worker1.pod, "tcp4", serviceOfTwin2+":80")
		if err != nil || !sends["c1"].Contains(client) {
			t.Errorf("connection %d beside them: seen as %s, %v", i, client, err)
		}
	}
	if err := asks(old); err != nil {
		t.Errorf("a connection from before: %v", err)
	}
	t.Logf("of %d flows %d arrived", flows, arrived())
}
