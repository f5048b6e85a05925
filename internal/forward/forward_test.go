// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestAdvice(t *testing.T) {
	gateway := func(cluster string, port int32, seen string, addresses ...string) Gateway {
		g := Gateway{Cluster: cluster, Port: port}
		for _, a := range addresses {
			kind, ip, found := strings.Cut(a, "/")
			if !found {
				kind, ip = string(v1alpha1.AddressPrivate), a
			}
			g.Addresses = append(g.Addresses, v1alpha1.EndpointAddress{Type: v1alpha1.AddressType(kind), IP: ip})
		}
		if seen != "" {
			g.Observed = []v1alpha1.ObservedAddress{{IP: seen}}
		}
		return g
	}
	near := func(seen string, addresses ...string) Gateway { return gateway("c1", 4501, seen, addresses...) }
	far := func(seen string, addresses ...string) Gateway { return gateway("c2", 4500, seen, addresses...) }
	const end = ": forward UDP 4501 to 10.0.0.5 at c1, or UDP 4500 to 10.0.0.5 at c2, and annotate that node with " +
		"gateway.sealane.io/public-ip=ipv4:ADDRESS, which is the router's"
	const neither = "neither gateway publishes an address that is reached from outside its own network" + end
	for name, c := range map[string]struct {
		a, b Gateway
		want string
	}{
		"both seen behind NAT": {near("203.0.113.1", "10.0.0.5"), far("203.0.113.2", "10.0.0.5"),
			"both gateways are behind NAT, which drops what it does not expect" + end +
				", 203.0.113.1 at c1, 203.0.113.2 at c2"},
		"one seen": {near("203.0.113.1", "10.0.0.5"), far("", "10.0.0.5"),
			"the gateway of c1 is behind NAT, and that of c2 publishes private addresses alone" + end + ", 203.0.113.1 at c1"},
		"the other seen": {near("", "10.0.0.5"), far("203.0.113.2", "10.0.0.5"),
			"the gateway of c2 is behind NAT, and that of c1 publishes private addresses alone" + end + ", 203.0.113.2 at c2"},
		"none seen, of both families": {near("", "10.0.0.5", "fd00::5"), far("", "10.0.0.5"),
			neither},
		"behind the NAT of a carrier": {near("", "100.64.0.5"), far("", "10.0.0.5"),
			strings.Replace(neither, "10.0.0.5 at c1", "100.64.0.5 at c1", 1)},
		"one is annotated":      {near("", "10.0.0.5", "Public/192.0.2.1"), far("", "10.0.0.5"), ""},
		"one has a balancer":    {near("", "10.0.0.5"), far("", "LoadBalancer/10.0.0.9"), ""},
		"a node that is public": {near("", "192.0.2.1"), far("", "10.0.0.5"), ""},
		"no address":            {near(""), far("", "10.0.0.5"), ""},
		"no IP":                 {near("", "router"), far("", "10.0.0.5"), ""},
	} {
		if got := Advice(c.a, c.b); got != c.want {
			t.Errorf("%s: expected\n%q, found\n%q", name, c.want, got)
		}
	}
}
