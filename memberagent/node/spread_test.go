// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestFlowsAreSpread: which flows between two pods take both gateways of a cluster, by what the worker hashes, and that
// gateways say by what they do.
func TestFlowsAreSpread(t *testing.T) {
	t.Parallel()
	const flows, port = 64, 7400
	n := highlyAvailable(t)
	for _, m := range []*machine{n.gw1, n.gw4} {
		m.run(t, fmt.Sprintf(`for f in ip ip6; do
			nft add table $f test; nft add chain $f test pass '{ type filter hook forward priority 300; }'
			nft add rule $f test pass iifname sl-vx udp dport %d counter comment $f-passed
		done`, port))
	}
	passed := func(m *machine, family string) int {
		return counted(t, m.command("nft list table "+family+" test"), family+"-passed")
	}
	// send a datagram of each of many flows, and return how many of them each gateway passed on.
	send := func(family, network, address string) (first, second int) {
		t.Helper()
		first, second = passed(n.gw1, family), passed(n.gw4, family)
		inNetworkOf(t, n.worker1.pod, func() error {
			for range flows {
				c, err := (&net.Dialer{}).DialContext(t.Context(), network, net.JoinHostPort(address, fmt.Sprint(port)))
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
		a, b := first, second
		eventually(t, 10*time.Second, "all datagrams have passed", func() bool {
			first, second = passed(n.gw1, family)-a, passed(n.gw4, family)-b
			return first+second >= flows
		})
		return first, second
	}
	says := func(m *machine, want v1alpha1.FlowHash) bool {
		var s v1alpha1.GatewayStatus
		return m.read("status.json", &s) == nil && s.FlowHash == want
	}
	for _, c := range []struct {
		policy          int
		says            v1alpha1.FlowHash
		spread, spread6 bool
	}{
		{0, v1alpha1.FlowHashAddresses, false, true}, // IPv6 by flow labels, which Linux gives each flow
		{1, v1alpha1.FlowHashPorts, true, true},
	} {
		for _, m := range n.all() {
			m.run(t, fmt.Sprintf("echo %[1]d > /proc/sys/net/ipv4/fib_multipath_hash_policy; "+
				"echo %[1]d > /proc/sys/net/ipv6/fib_multipath_hash_policy", c.policy))
		}
		for _, f := range []struct {
			family, network, to string
			spread              bool
		}{{"ip", "udp4", n.worker2.pods + ".10", c.spread}, {"ip6", "udp6", n.worker2.pods6 + "::10", c.spread6}} {
			first, second := send(f.family, f.network, f.to)
			t.Logf("policy %d, %s: %d and %d of %d flows", c.policy, f.network, first, second, flows)
			if spread := min(first, second) > flows/8; spread != f.spread || !spread && min(first, second) > 0 {
				t.Errorf("policy %d, %s: expected flows to be spread: %t; found %d and %d", c.policy, f.network, f.spread, first,
					second)
			}
		}
		for _, m := range []*machine{n.gw1, n.gw2, n.gw3, n.gw4} {
			eventually(t, 20*time.Second, fmt.Sprintf("%s says %s", m.name, c.says), func() bool { return says(m, c.says) })
		}
	}
}
