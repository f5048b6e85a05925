// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sealane-io/sealane/dataplane/kernel"
)

func TestProtected(t *testing.T) {
	addr := netip.MustParseAddr
	local := func(link, network string, dummy bool) kernel.LocalAddress {
		p := netip.MustParsePrefix(network)
		return kernel.LocalAddress{Addr: p.Addr(), Network: p.Masked(), Link: link, Dummy: dummy}
	}
	s := surroundings{
		apiServers:      []netip.Addr{addr("203.0.113.5"), addr("2001:db8::5")},
		defaultGateways: []netip.Addr{addr("172.31.1.254"), addr("fe80::1%eth0")},
		resolvers: resolvers("# nameserver 192.0.2.1\nnameserver 192.0.2.53\nnameserver " +
			"127.0.0.53\nnameserver\noptions x\n"),
		addresses: []kernel.LocalAddress{
			local("lo", "127.0.0.1/8", false), local("eth0", "172.31.1.7/24", false), local("eth0", "fe80::7/64", false),
			local("kube-ipvs0", "10.9.0.1/32", true), local("ppp0", "0.0.0.0/0", false),
		},
	}
	var got []string
	for _, p := range s.protected() {
		got = append(got, p.Prefix.String()+" "+p.Reason+" "+p.What)
	}
	want := []string{
		"203.0.113.5/32 CoversAPIServer an API server",
		"2001:db8::5/128 CoversAPIServer an API server",
		"172.31.1.254/32 CoversDefaultGateway the default gateway",
		"fe80::1/128 CoversDefaultGateway the default gateway",
		"192.0.2.53/32 CoversResolver a name server",
		"172.31.1.0/24 OverlapsConnectedNetwork the network of link eth0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func TestDialled(t *testing.T) {
	for host, want := range map[string]string{
		"https://10.96.0.1:443": "10.96.0.1", "https://[2001:db8::1]:6443": "2001:db8::1",
		"https://api.example.com": "invalid IP", "10.96.0.1:443": "invalid IP", "": "invalid IP",
	} {
		if got := dialled(host); got.String() != want {
			t.Errorf("%q: %s, want %s", host, got, want)
		}
	}
}
