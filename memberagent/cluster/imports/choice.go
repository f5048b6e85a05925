// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/exports"
)

// group is a set of endpoints of one cluster and family that share one list of ports: what the
// EndpointSlices of the group hold between them.
type group struct {
	cluster   string
	family    discoveryv1.AddressType
	ports     []v1alpha1.BackendPort
	endpoints []discoveryv1.Endpoint // sorted by address
}

// contribution is one cluster's contribution to an import, validated.
type contribution struct {
	cluster  string
	local    bool
	ports    []string // of the merged service, that the cluster serves
	backends []v1alpha1.Backends
}

// groups returns the endpoints that an import should have in this cluster. For a ClusterSetIP the choice is
// made port by port: this cluster if its export exposes the port and has a ready backend, otherwise every
// connected cluster that does. A headless import lists every connected cluster.
func groups(in *Input) []group {
	var all []contribution
	for i := range in.Import.Clusters {
		c := &in.Import.Clusters[i]
		if c.Cluster == in.ClusterID {
			all = append(all, localContribution(in, c))
		} else if in.Connected(c.Cluster) {
			all = append(all, contribution{cluster: c.Cluster, ports: c.Ports, backends: c.Backends})
		}
	}
	var out []group
	for i := range all {
		s := &all[i]
		var ports []string
		for _, p := range s.ports {
			if in.Import.Settings.Type == v1alpha1.Headless || chosen(all, s, p) {
				ports = append(ports, p)
			}
		}
		if len(ports) > 0 || len(in.Import.Settings.Ports) == 0 {
			out = append(out, s.groups(in, ports)...)
		}
	}
	return out
}

// chosen says whether a cluster answers for a port.
func chosen(all []contribution, s *contribution, port string) bool {
	if !s.answers(port) {
		return false
	}
	return s.local || !slices.ContainsFunc(all, func(o contribution) bool { return o.local && o.answers(port) })
}

// answers says whether the cluster exposes the port and has a ready backend for it.
func (s *contribution) answers(port string) bool {
	return slices.Contains(s.ports, port) && slices.ContainsFunc(s.backends, func(g v1alpha1.Backends) bool {
		return slices.ContainsFunc(g.Ports, func(p v1alpha1.BackendPort) bool { return p.Name == port }) &&
			slices.ContainsFunc(g.Addresses, func(b v1alpha1.Backend) bool { return b.Ready })
	})
}

// groups of one cluster for the ports chosen. How many pods stand for a cluster, or whether its ClusterIP
// does, is the broker's decision.
func (s *contribution) groups(in *Input, ports []string) []group {
	var out []group
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		out = append(out, s.pods(family, ports, len(in.Import.Settings.Ports) == 0)...)
	}
	return out
}

func (s *contribution) pods(family discoveryv1.AddressType, ports []string, portless bool) []group {
	var out []group
	for _, b := range s.backends {
		g := group{cluster: s.cluster, family: family}
		for _, p := range b.Ports {
			if slices.Contains(ports, p.Name) {
				g.ports = append(g.ports, p)
			}
		}
		if len(g.ports) == 0 && !portless {
			continue
		}
		for _, a := range b.Addresses {
			if e, ok := s.endpoint(a, family); ok {
				g.endpoints = append(g.endpoints, e)
			}
		}
		if len(g.endpoints) > 0 {
			out = merge(out, g)
		}
	}
	return out
}

// merge adds a group to those with other ports; groups that differed only in ports that were not chosen
// become one.
func merge(all []group, g group) []group {
	for i := range all {
		if slices.Equal(all[i].ports, g.ports) {
			all[i].endpoints = append(all[i].endpoints, g.endpoints...)
			slices.SortFunc(all[i].endpoints, byAddress)
			all[i].endpoints = slices.CompactFunc(all[i].endpoints, func(a, b discoveryv1.Endpoint) bool { return a.Addresses[0] == b.Addresses[0] })
			return all
		}
	}
	slices.SortFunc(g.endpoints, byAddress)
	g.endpoints = slices.CompactFunc(g.endpoints, func(a, b discoveryv1.Endpoint) bool { return a.Addresses[0] == b.Addresses[0] })
	return append(all, g)
}

// endpoint turns a ready backend into an endpoint. Addresses that no EndpointSlice may hold are left out one
// by one: the API server would refuse the whole slice. The node is named for local endpoints only.
func (s *contribution) endpoint(b v1alpha1.Backend, family discoveryv1.AddressType) (discoveryv1.Endpoint, bool) {
	addr, ok := parse(b.IP)
	if !ok || !b.Ready || familyOf(addr) != family {
		return discoveryv1.Endpoint{}, false
	}
	e := discoveryv1.Endpoint{Addresses: []string{addr.String()}, Conditions: ready()}
	if b.Hostname != "" {
		e.Hostname = &b.Hostname
	}
	if b.Zone != "" {
		e.Zone = &b.Zone
	}
	if s.local && b.Node != "" {
		e.NodeName = &b.Node
	}
	return e, true
}

func ready() discoveryv1.EndpointConditions {
	yes, no := true, false
	return discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no}
}

// localContribution reads this cluster's own EndpointSlices. A local port takes the name that the merge gave it:
// its own or, where that was generated, the name of the merged port with its protocol and number.
func localContribution(in *Input, c *v1alpha1.ImportCluster) contribution {
	s := contribution{cluster: c.Cluster, local: true, ports: c.Ports}
	if in.LocalService == nil {
		return s
	}
	names := map[string]string{}
	for _, p := range in.LocalService.Spec.Ports {
		if merged, ok := mergedPort(in.Import.Settings.Ports, p); ok {
			names[p.Name] = merged
		}
	}
	s.backends = exports.Backends(in.LocalSlices)
	for i := range s.backends {
		var ports []v1alpha1.BackendPort
		for _, p := range s.backends[i].Ports {
			if name, ok := names[p.Name]; ok {
				p.Name = name
				ports = append(ports, p)
			}
		}
		s.backends[i].Ports = ports
	}
	return s
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

func familyOf(a netip.Addr) discoveryv1.AddressType {
	if a.Is4() {
		return discoveryv1.AddressTypeIPv4
	}
	return discoveryv1.AddressTypeIPv6
}

func byAddress(a, b discoveryv1.Endpoint) int {
	x, _ := netip.ParseAddr(a.Addresses[0])
	y, _ := netip.ParseAddr(b.Addresses[0])
	return x.Compare(y)
}
