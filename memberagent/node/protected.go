// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"os"
	"strings"

	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// resolvConf is resolv.conf(5) of the agent, which is the node's: see dnsPolicy in its manifest.
const resolvConf = "/etc/resolv.conf"

// surroundings are what a node reaches without other clusters.
type surroundings struct {
	apiServers, defaultGateways, resolvers []netip.Addr
	addresses                              []kernel.LocalAddress
}

// protected returns what no other cluster's networks may overlap on this node, whatever the broker accepted:
// routed there, the node would lose its API server, its way out, or its neighbours. The addresses of dummy links
// are no networks: kube-proxy keeps there what anybody writes into a Service.
func (s surroundings) protected() []topology.Protected {
	var out []topology.Protected
	hosts := func(addrs []netip.Addr, reason, what string) {
		for _, a := range addrs {
			if a = a.Unmap().WithZone(""); !a.IsLoopback() && a.IsValid() {
				out = append(out, topology.Protected{Prefix: netip.PrefixFrom(a, a.BitLen()), Reason: reason, What: what})
			}
		}
	}
	hosts(s.apiServers, topology.ReasonCoversAPIServer, "an API server")
	hosts(s.defaultGateways, topology.ReasonCoversGateway, "the default gateway")
	hosts(s.resolvers, topology.ReasonCoversResolver, "a name server")
	for _, a := range s.addresses {
		if a.Network.IsValid() && a.Network.Bits() > 0 && !a.Dummy && !a.Addr.IsLoopback() && !a.Addr.IsLinkLocalUnicast() {
			out = append(out, topology.Protected{
				Prefix: a.Network, Reason: topology.ReasonOverlapsLink, What: "the network of link " + a.Link,
			})
		}
	}
	return out
}

// resolvers returns the name servers in a resolv.conf(5).
func resolvers(text string) []netip.Addr {
	var out []netip.Addr
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			if a, err := netip.ParseAddr(f[1]); err == nil {
				out = append(out, a)
			}
		}
	}
	return out
}

// surroundings of the node at this moment.
func (a *Agent) surroundings(o Objects, addresses []kernel.LocalAddress) (surroundings, error) {
	gateways, err := a.kernel.DefaultGateways()
	if err != nil {
		return surroundings{}, err
	}
	text, err := os.ReadFile(resolvConf)
	if err != nil && !os.IsNotExist(err) {
		return surroundings{}, err
	}
	return surroundings{o.APIServers, gateways, resolvers(string(text)), addresses}, nil
}
