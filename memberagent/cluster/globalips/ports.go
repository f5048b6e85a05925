// SPDX-License-Identifier: Apache-2.0

package globalips

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/exports"
)

// Limits of the CRD: there is room for as many backends of each family.
const (
	maxPorts    = 100
	maxBackends = 1000
)

// Ports returns a Service's ports with the ready backends of each, sorted by protocol and port. Of very many backends
// of one family the first by address are kept.
func Ports(service *corev1.Service, endpoints []discoveryv1.EndpointSlice) []v1alpha1.GlobalPort {
	groups := exports.Backends(endpoints)
	var out []v1alpha1.GlobalPort
	for _, p := range service.Spec.Ports {
		port := v1alpha1.GlobalPort{Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), Port: p.Port}
		var backends []netip.AddrPort
		for _, g := range groups {
			at := slices.IndexFunc(g.Ports, func(b v1alpha1.BackendPort) bool {
				return b.Name == p.Name && b.Protocol == port.Protocol
			})
			if at < 0 {
				continue
			}
			for _, b := range g.Addresses {
				if ip, err := netip.ParseAddr(b.IP); err == nil && b.Ready {
					backends = append(backends, netip.AddrPortFrom(ip, uint16(g.Ports[at].Port)))
				}
			}
		}
		slices.SortFunc(backends, netip.AddrPort.Compare)
		backends = slices.Compact(backends)
		count := map[bool]int{}
		for _, b := range backends {
			if count[b.Addr().Is4()]++; count[b.Addr().Is4()] > maxBackends {
				continue
			}
			port.Backends = append(port.Backends, v1alpha1.GlobalBackend{IP: b.Addr().String(), Port: int32(b.Port())})
		}
		out = append(out, port)
	}
	slices.SortFunc(out, func(a, b v1alpha1.GlobalPort) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return out[:min(len(out), maxPorts)]
}
