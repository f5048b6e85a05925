// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"slices"
	"testing"
)

func TestDefaultGateways(t *testing.T) {
	k, _ := open(t)
	run(t,
		`ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up; ip addr add 172.31.1.1/24 dev up0
		ip addr add fd31::1/64 dev up0 nodad
		ip route add 10.0.0.0/8 via 172.31.1.9; ip -6 route add fd10::/16 via fd31::9
		ip route add default via 172.31.1.8 dev up0 table 77`)
	defer run(t, "ip route flush table 77; ip link del up0")
	for _, c := range []struct {
		name, routes string
		want         []string
	}{
		{"none", "true", nil},
		{"connected", "ip route add default via 172.31.1.254; ip -6 route add default via fd31::254",
			[]string{"172.31.1.254", "fd31::254"}},
		{"onlink", `ip route add default via 192.0.2.129 dev up0 onlink
			ip -6 route add default via 2001:db8:1::1 dev up0 onlink`, []string{"192.0.2.129", "2001:db8:1::1"}},
		{"several", `ip route add default nexthop via 172.31.1.254 nexthop via 192.0.2.129 dev up0 onlink
			ip -6 route add default nexthop via fd31::254 nexthop via 2001:db8:1::1 dev up0 onlink`,
			[]string{"172.31.1.254", "192.0.2.129", "2001:db8:1::1", "fd31::254"}},
		{"of several metrics",
			"ip route add default via 172.31.1.254 metric 5; ip route add default via 172.31.1.253 metric 6",
			[]string{"172.31.1.253", "172.31.1.254"}},
		{"IPv4 by IPv6", "ip route add default via inet6 2001:db8:1::1 dev up0 onlink", []string{"2001:db8:1::1"}},
		{"IPv4 by several of IPv6", `ip route add default nexthop via inet6 2001:db8:1::1 dev up0 onlink \
			nexthop via inet6 fd31::254 dev up0`, []string{"2001:db8:1::1", "fd31::254"}},
		{"by a link alone", "ip route add default dev up0", nil},
		{"unreachable", "ip route add unreachable default; ip -6 route add unreachable default", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, c.routes)
			defer run(t, "ip route flush exact default; ip -6 route flush exact default")
			addrs, err := k.DefaultGateways()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range addrs {
				got = append(got, a.String())
			}
			slices.Sort(got)
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("default gateways %s, want %s", got, c.want)
			}
		})
	}
}
