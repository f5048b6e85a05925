// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// seeing is a gateway of a slot with a tunnel to that of c2, at an address and port.
func seeing(slot int32, address string) v1alpha1.Gateway {
	c := tunnel(true, 20*time.Millisecond, 0, 0, 0)
	c.Gateway, c.Link, c.Address = "far", "sl-c0", address
	g := measuring(fmt.Sprintf("gw%d", slot), c)
	g.Spec.Slot = slot
	return g
}

// natInput is of a cluster whose peer c2 publishes two addresses.
func natInput(gateways ...v1alpha1.Gateway) Input {
	in := peeringInput(gateways...)
	in.Peering.Spec.Cable.Port = 4500
	in.Peering.Spec.RemoteClusters = []v1alpha1.RemoteCluster{{Name: "c2", Endpoints: []v1alpha1.Endpoint{{Gateway: "far",
		Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPrivate, IP: "10.0.0.5"},
			{Type: v1alpha1.AddressPublic, IP: "192.0.2.5"}},
		// That others see it there, too, does not end what is reported here.
		Observed: []v1alpha1.ObservedAddress{{IP: "203.0.113.7"}}}}}}
	return in
}

func TestObserved(t *testing.T) {
	type list = []v1alpha1.Gateway
	down, next := seeing(0, "203.0.113.7:4500"), seeing(0, "203.0.113.7:4516")
	down.Status.Connections[0].Status = v1alpha1.ConnectionError
	next.Status.Connections[0].Link = "sl-c16"
	relayed := seeing(0, "203.0.113.7:4500")
	relayed.Status.Connections[0].Through = "c9"
	seen := func(ip string, port int32) []v1alpha1.ObservedGateway {
		return []v1alpha1.ObservedGateway{{Gateway: "far", ObservedAddress: v1alpha1.ObservedAddress{IP: ip, Port: port}}}
	}
	before := seen("203.0.113.9", 1)
	for name, c := range map[string]struct {
		gateways []v1alpha1.Gateway
		last     []v1alpha1.ObservedGateway
		want     string
	}{
		"its own address":                    {list{seeing(0, "10.0.0.5:4500")}, nil, "[]"},
		"its public one":                     {list{seeing(0, "192.0.2.5:4500")}, nil, "[]"},
		"its public one, at another port":    {list{seeing(0, "192.0.2.5:999")}, nil, "[{far {192.0.2.5 999}}]"},
		"behind NAT":                         {list{seeing(0, "203.0.113.7:4500")}, nil, "[{far {203.0.113.7 0}}]"},
		"from another slot":                  {list{seeing(1, "203.0.113.7:4501")}, nil, "[{far {203.0.113.7 0}}]"},
		"at a port that no other slot knows": {list{seeing(1, "203.0.113.7:999")}, nil, "[{far {203.0.113.7 0}}]"},
		"the lowest slot counts": {list{seeing(1, "203.0.113.8:4501"), seeing(0, "203.0.113.7:999")}, nil,
			"[{far {203.0.113.7 999}}]"},
		"IPv6":                           {list{seeing(0, "[2001:db8::7]:4500")}, nil, "[{far {2001:db8::7 0}}]"},
		"not connected":                  {list{down}, nil, "[]"},
		"not connected, and seen before": {list{down}, before, "[{far {203.0.113.9 1}}]"},
		"seen elsewhere":                 {list{seeing(0, "203.0.113.7:4500")}, before, "[{far {203.0.113.7 0}}]"},
		"seen where it was by one": {list{seeing(0, "203.0.113.7:4500"), seeing(1, "203.0.113.9:999")},
			seen("203.0.113.9", 0), "[{far {203.0.113.9 0}}]"},
		"by the cable of a next key": {list{next}, nil, "[]"},
		"through a relay":            {list{relayed}, nil, "[]"},
		"passed on by an own node":   {list{seeing(0, "10.7.7.7:4500")}, nil, "[]"},
		"nonsense":                   {list{seeing(0, "127.0.0.1:4500")}, nil, "[]"},
	} {
		in := natInput(c.gateways...)
		in.Found.NodeCIDRs = []string{"10.7.7.6/32", "10.7.7.7/32"}
		in.Peering.Status.Connections = []v1alpha1.MemberConnection{{Cluster: "c2", Observed: c.last}}
		if got := fmt.Sprint(PeeringStatus(in).Connections[0].Observed); got != c.want {
			t.Errorf("%s: expected %s, found %s", name, c.want, got)
		}
	}
}

// TestAPortThatChangesCostsFewWrites: a NAT that gives another port, or another address, every half minute.
func TestAPortThatChangesCostsFewWrites(t *testing.T) {
	random := rand.New(rand.NewPCG(61, 1))
	writes := func(address func() string) (n int) {
		in := natInput(seeing(0, address()))
		in.Peering.Status = PeeringStatus(in)
		last := in.Now
		for at := time.Duration(0); at < 24*time.Hour; at += 30 * time.Second {
			in.Now = now.Add(at)
			in.Gateways = []v1alpha1.Gateway{reportedAgo(seeing(0, address()), -at)}
			next := PeeringStatus(in)
			if equality.Semantic.DeepEqual(in.Peering.Status, next) || in.Now.Sub(last) < paceOf(in.Peering.Status, next) {
				continue
			}
			in.Peering.Status, last = next, in.Now
			n++
		}
		return n
	}
	ports := writes(func() string { return fmt.Sprintf("203.0.113.7:%d", 40000+random.IntN(1000)) })
	addresses := writes(func() string { return fmt.Sprintf("203.0.113.%d:4500", 1+random.IntN(250)) })
	t.Logf("%d writes a day of ports, %d of addresses", ports, addresses)
	if ports == 0 || ports > 144 || addresses == 0 || addresses > 1440 {
		t.Errorf("expected at most 144 writes a day of ports and 1440 of addresses, found %d and %d", ports, addresses)
	}
}
