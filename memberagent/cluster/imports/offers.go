// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/exports"
)

// offer is what one connected cluster has behind an import in one address family, validated.
type offer struct {
	cluster string
	local   bool
	// ports of the merged service that the cluster serves, by name.
	ports []string
	// clusterIP of the service in that cluster; invalid if it has none.
	clusterIP netip.Addr
	// standsFor is how many ready backends there are behind a ClusterIP among the backends; 1 if unknown.
	standsFor int
	pools     []pool
}

// pool is a set of backends that listen on the same ports.
type pool struct {
	ports    []v1alpha1.BackendPort
	backends []backend
}

// backend is one address that is ready or at least still serves.
type backend struct {
	v1alpha1.Backend
	address netip.Addr
	// listed are the ports for which the choice fell on it.
	listed []v1alpha1.BackendPort
}

// offers returns what every connected cluster has in one family, in the order of the import's clusters.
func offers(in *Input, family corev1.IPFamily) []offer {
	var out []offer
	for i := range in.Import.Clusters {
		c := &in.Import.Clusters[i]
		o := offer{cluster: c.Cluster, local: c.Cluster == in.ClusterID, ports: c.Ports, standsFor: 1}
		clusterIPs, backends := c.ClusterIPs, c.Backends
		switch {
		case o.local && in.LocalService == nil:
			continue
		case o.local:
			clusterIPs, backends = in.LocalService.Spec.ClusterIPs, localBackends(in)
		case !in.Connected(c.Cluster):
			continue
		case c.ReadyBackends != nil:
			o.standsFor = max(int(*c.ReadyBackends), 1)
		}
		for _, text := range clusterIPs {
			if ip, ok := parse(text); ok && familyOf(ip) == family {
				o.clusterIP = ip
				break
			}
		}
		for _, b := range backends {
			if p := newPool(b, family); len(p.backends) > 0 {
				o.pools = append(o.pools, p)
			}
		}
		out = append(out, o)
	}
	return out
}

// newPool leaves out, one by one, addresses that no EndpointSlice may hold and those of no use to anybody: the
// API server would refuse the whole slice. Of two ports of one name the first counts.
func newPool(b v1alpha1.Backends, family corev1.IPFamily) pool {
	var out pool
	for _, p := range b.Ports {
		if validPort(p.Name, p.Protocol, p.Port) &&
			!slices.ContainsFunc(out.ports, func(q v1alpha1.BackendPort) bool { return q.Name == p.Name }) {
			out.ports = append(out.ports, p)
		}
	}
	for _, a := range b.Addresses {
		address, ok := parse(a.IP)
		if !ok || familyOf(address) != family || (!a.Ready && !a.Serving) {
			continue
		}
		if a.Hostname != "" && len(validation.IsDNS1123Label(a.Hostname)) > 0 {
			a.Hostname = ""
		}
		if a.Zone != "" && len(validation.IsValidLabelValue(a.Zone)) > 0 {
			a.Zone = ""
		}
		out.backends = append(out.backends, backend{Backend: a, address: address})
	}
	return out
}

// localBackends reads this cluster's own EndpointSlices. A local port takes the name that the merge gave it: its
// own or, where that was generated, the name of the merged port with its protocol and number.
func localBackends(in *Input) []v1alpha1.Backends {
	names := map[string]string{}
	for _, p := range in.LocalService.Spec.Ports {
		if merged, ok := mergedPort(in.Import.Settings.Ports, p); ok {
			names[p.Name] = merged
		}
	}
	out := exports.Backends(in.LocalSlices)
	for i := range out {
		var ports []v1alpha1.BackendPort
		for _, p := range out[i].Ports {
			if name, ok := names[p.Name]; ok {
				p.Name = name
				ports = append(ports, p)
			}
		}
		out[i].Ports = ports
	}
	return out
}

func mergedPort(merged []v1alpha1.ServicePort, p corev1.ServicePort) (string, bool) {
	protocol := cmp.Or(p.Protocol, corev1.ProtocolTCP)
	for _, m := range merged {
		if m.Name == p.Name && m.Protocol == protocol && m.Port == p.Port {
			return m.Name, true
		}
	}
	for _, m := range merged {
		if m.Protocol == protocol && m.Port == p.Port {
			return m.Name, true
		}
	}
	return "", false
}

func (p *pool) has(port string) bool {
	return slices.ContainsFunc(p.ports, func(b v1alpha1.BackendPort) bool { return b.Name == port })
}

// count returns how many different addresses the cluster has for a port that it exposes: ready ones, or with
// serving any. A ClusterIP counts with the backends that it stands for.
func (o *offer) count(port string, serving bool) int {
	if !slices.Contains(o.ports, port) {
		return 0
	}
	found := map[netip.Addr]bool{}
	for i := range o.pools {
		if !o.pools[i].has(port) {
			continue
		}
		for _, b := range o.pools[i].backends {
			if b.Ready || serving {
				found[b.address] = true
			}
		}
	}
	if found[o.clusterIP] {
		return len(found) - 1 + o.standsFor
	}
	return len(found)
}

// stands says whether a ClusterIP is among the cluster's backends.
func (o *offer) stands() bool {
	return slices.ContainsFunc(o.pools, func(p pool) bool {
		return slices.ContainsFunc(p.backends, func(b backend) bool { return b.address == o.clusterIP })
	})
}

// parse accepts what the API server accepts in an EndpointSlice.
func parse(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, false
	}
	a = a.Unmap()
	bad := a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast()
	return a, !bad
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

func addressType(f corev1.IPFamily) discoveryv1.AddressType { return discoveryv1.AddressType(f) }
