// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// sameProbes returns two keys of which the gateways have the same IPv4 address for probes.
func sameProbes(t *testing.T) (a, b topology.Key) {
	t.Helper()
	seen := map[netip.Addr]topology.Key{}
	for i := range uint64(1 << 20) {
		var key topology.Key
		binary.BigEndian.PutUint64(key[:], i)
		address := plan.ProbeIPv4(plan.PeerID(key[:]))
		if other, ok := seen[address]; ok {
			return other, key
		}
		seen[address] = key
	}
	t.Fatal("no two keys of a million have the same address")
	return a, b
}

// TestProbesOfKernelsWithoutIPv6: of which family probes are between two gateways, by what their kernels have, and that
// none has an address that another has too.
func TestProbesOfKernelsWithoutIPv6(t *testing.T) {
	a, b := sameProbes(t)
	in := meshOf(1, 2, 1)
	in.Peering.Spec.RemoteClusters[0].Nodes = nil
	endpoints := []v1alpha1.Endpoint{
		{Gateway: "x", Slot: 0, PublicKey: a.String()},
		{Gateway: "y", Slot: 1, PublicKey: b.String()},
		{Gateway: "z", Slot: 2, PublicKey: topology.Key{9}.String()},
	}
	probed := func(ipv6 bool, ipv4Only ...int) (out []netip.Addr) {
		in.Peering.Spec.RemoteClusters[0].Endpoints = slices.Clone(endpoints)
		for _, i := range ipv4Only {
			in.Peering.Spec.RemoteClusters[0].Endpoints[i].IPv4Probes = true
		}
		top := topology.Build(in)
		if len(top.Problems) > 0 {
			t.Fatal(top.Problems)
		}
		p := plan.For(top, plan.NodeFacts{Name: "n0", ID: "own", IPv6: ipv6})
		for _, tunnel := range p.Tunnels {
			for _, peer := range tunnel.Peers {
				allowed := slices.Contains(peer.AllowedIPs, netip.PrefixFrom(peer.Probe, peer.Probe.BitLen()))
				routes := 0
				for _, r := range p.Routes {
					if r.Dst.IsSingleIP() && r.Dst.Addr() == peer.Probe && r.NextHops[0].Link == tunnel.Link {
						routes++
					}
				}
				if peer.Probe.IsValid() && (!allowed || routes != 1) {
					t.Errorf("%s is probed at %s: %d routes to it, and it may send from %v", peer.Node, peer.Probe, routes,
						peer.AllowedIPs)
				}
				out = append(out, peer.Probe)
			}
		}
		return out
	}
	id := func(k topology.Key) plan.PeerID { return plan.PeerID(k[:]) }
	z := id(topology.Key{9})
	for _, c := range []struct {
		name      string
		got, want []netip.Addr
	}{
		{"all have IPv6", probed(true), []netip.Addr{plan.ULA(id(a)), plan.ULA(id(b)), plan.ULA(z)}},
		{"this one has none", probed(false), []netip.Addr{{}, {}, plan.ProbeIPv4(z)}},
		{"a remote one has none", probed(true, 1), []netip.Addr{plan.ULA(id(a)), plan.ProbeIPv4(id(b)), plan.ULA(z)}},
		{"two have none, and the same address", probed(true, 0, 1), []netip.Addr{{}, {}, plan.ULA(z)}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: probed at %v, want %v", c.name, c.got, c.want)
		}
	}
}
