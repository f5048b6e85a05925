// SPDX-License-Identifier: Apache-2.0

// Package exports turns a ServiceExport, its Service and its EndpointSlices into the Export that the broker
// reads, and the broker's verdict into the ServiceExport's conditions.
package exports

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/exportmeta"
)

// backendCap is the number of ready backends of one family above which the broker has importers use the
// exporting cluster's ClusterIP instead of the pods. One more than that is reported, so that it can tell.
const backendCap = 100

// Describe returns the export as the broker should see it. The Service is Exportable; last is the export as it was
// reported last, nil where it was not. Pods that gateways do not send to are held back. Hosts outside the cluster stay:
// those that may not be exported have no global address, and the broker leaves them out.
func Describe(export *mcs.ServiceExport, service *corev1.Service, endpoints []discoveryv1.EndpointSlice, routes Routes,
	last *v1alpha1.Export) v1alpha1.Export {
	options := read(export)
	endpoints, held := routes.routed(endpoints)
	out := v1alpha1.Export{
		Namespace:  export.Namespace,
		Name:       export.Name,
		CreatedAt:  export.CreationTimestamp,
		Settings:   settings(service),
		Mode:       options.mode,
		Scope:      options.importScope(last),
		ClusterIPs: clusterIPs(service),
		Backends:   Backends(endpoints),
	}
	out.Settings.Labels, out.Settings.Annotations = options.labels, options.annotations
	var refused []string
	if out.Settings.Type == v1alpha1.Headless {
		refused = routes.refused(endpoints)
	}
	out.Remarks = exportmeta.Remarks(slices.Concat(options.malformed, ignored(endpoints), held, refused))
	if out.Settings.Type == v1alpha1.ClusterSetIP {
		out.Backends = capped(out.Backends)
	}
	return out
}

func settings(s *corev1.Service) v1alpha1.ServiceSettings {
	out := v1alpha1.ServiceSettings{
		Type:                  v1alpha1.ClusterSetIP,
		Ports:                 make([]v1alpha1.ServicePort, 0, len(s.Spec.Ports)),
		SessionAffinity:       cmp.Or(s.Spec.SessionAffinity, corev1.ServiceAffinityNone),
		SessionAffinityConfig: s.Spec.SessionAffinityConfig,
		InternalTrafficPolicy: s.Spec.InternalTrafficPolicy,
		TrafficDistribution:   s.Spec.TrafficDistribution,
		IPFamilies:            slices.Clone(s.Spec.IPFamilies),
	}
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		out.Type = v1alpha1.Headless
	}
	if out.IPFamilies == nil {
		out.IPFamilies = []corev1.IPFamily{}
	}
	for _, p := range s.Spec.Ports {
		out.Ports = append(out.Ports, v1alpha1.ServicePort{
			Name: p.Name, Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), Port: p.Port, AppProtocol: p.AppProtocol,
		})
	}
	return out
}

func clusterIPs(s *corev1.Service) []string {
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	return s.Spec.ClusterIPs
}

// Backends groups the addresses behind a Service by identical port lists. The result depends on what the
// slices say, not on how the addresses are spread over them. Addresses that neither are ready nor still
// serve are of no use to anybody and are left out: a pod that starts is one change, not two.
func Backends(endpoints []discoveryv1.EndpointSlice) []v1alpha1.Backends {
	var groups []v1alpha1.Backends
	for i := range endpoints {
		slice := &endpoints[i]
		addresses := addresses(slice)
		if len(addresses) == 0 {
			continue
		}
		ports := ports(slice)
		at := slices.IndexFunc(groups, func(g v1alpha1.Backends) bool { return slices.Equal(g.Ports, ports) })
		if at < 0 {
			groups = append(groups, v1alpha1.Backends{Ports: ports})
			at = len(groups) - 1
		}
		groups[at].Addresses = append(groups[at].Addresses, addresses...)
	}
	for i := range groups {
		slices.SortFunc(groups[i].Addresses, compareBackends)
		groups[i].Addresses = slices.CompactFunc(groups[i].Addresses,
			func(a, b v1alpha1.Backend) bool { return a.IP == b.IP })
	}
	slices.SortFunc(groups, func(a, b v1alpha1.Backends) int { return slices.CompareFunc(a.Ports, b.Ports, comparePorts) })
	return groups
}

// ignored says which EndpointSlices of the Service are not exported, and why.
func ignored(endpoints []discoveryv1.EndpointSlice) (out []string) {
	for i := range endpoints {
		if s := &endpoints[i]; s.AddressType == discoveryv1.AddressTypeFQDN && len(s.Endpoints) > 0 {
			out = append(out, fmt.Sprintf("the EndpointSlice %s is ignored: it has names, and only addresses are exported; "+
				"write one of the address type IPv4 or IPv6", s.Name))
		}
	}
	slices.Sort(out)
	return out
}

// ports of a slice. A port without a number means "all ports" and cannot be exported.
func ports(slice *discoveryv1.EndpointSlice) []v1alpha1.BackendPort {
	out := make([]v1alpha1.BackendPort, 0, len(slice.Ports))
	for _, p := range slice.Ports {
		if p.Port == nil {
			continue
		}
		out = append(out, v1alpha1.BackendPort{
			Name: value(p.Name), Protocol: cmp.Or(value(p.Protocol), corev1.ProtocolTCP), Port: *p.Port,
		})
	}
	slices.SortFunc(out, comparePorts)
	return out
}

func addresses(slice *discoveryv1.EndpointSlice) []v1alpha1.Backend {
	if slice.AddressType == discoveryv1.AddressTypeFQDN {
		return nil
	}
	var out []v1alpha1.Backend
	for _, e := range slice.Endpoints {
		// Only the first address counts, as for kube-proxy.
		if len(e.Addresses) == 0 {
			continue
		}
		ip, err := netip.ParseAddr(e.Addresses[0])
		if err != nil {
			continue
		}
		b := v1alpha1.Backend{
			IP:          ip.Unmap().String(),
			Hostname:    value(e.Hostname),
			Zone:        value(e.Zone),
			Node:        value(e.NodeName),
			Ready:       e.Conditions.Ready == nil || *e.Conditions.Ready,
			Terminating: value(e.Conditions.Terminating),
		}
		b.Serving = b.Ready
		if e.Conditions.Serving != nil {
			b.Serving = *e.Conditions.Serving
		}
		if b.Ready || b.Serving {
			out = append(out, b)
		}
	}
	return out
}

// capped keeps at most backendCap+1 addresses of each family, the ready ones first.
func capped(groups []v1alpha1.Backends) []v1alpha1.Backends {
	left := map[bool]int{true: backendCap + 1, false: backendCap + 1}
	out := make([]v1alpha1.Backends, len(groups))
	for i, g := range groups {
		out[i] = v1alpha1.Backends{Ports: g.Ports, Addresses: make([]v1alpha1.Backend, 0, len(g.Addresses))}
	}
	for _, ready := range []bool{true, false} {
		for i, g := range groups {
			for _, b := range g.Addresses {
				is4 := is4(b.IP)
				if b.Ready != ready || left[is4] == 0 {
					continue
				}
				left[is4]--
				out[i].Addresses = append(out[i].Addresses, b)
			}
		}
	}
	for i := range out {
		slices.SortFunc(out[i].Addresses, compareBackends)
	}
	return slices.DeleteFunc(out, func(g v1alpha1.Backends) bool { return len(g.Addresses) == 0 })
}

func is4(ip string) bool {
	a, err := netip.ParseAddr(ip)
	return err == nil && a.Is4()
}

// compareBackends orders by address; of two with one address, the ready one comes first.
func compareBackends(a, b v1alpha1.Backend) int {
	x, _ := netip.ParseAddr(a.IP)
	y, _ := netip.ParseAddr(b.IP)
	if c := x.Compare(y); c != 0 {
		return c
	}
	if a.Ready != b.Ready {
		if a.Ready {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.Hostname, b.Hostname), cmp.Compare(a.Node, b.Node))
}

func comparePorts(a, b v1alpha1.BackendPort) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
