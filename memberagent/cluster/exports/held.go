// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/external"
	"github.com/sealane-io/sealane/memberagent/cluster/discovery"
	"github.com/sealane-io/sealane/memberagent/cluster/nodenetworks"
)

// Routes are where gateways send what is for pods. The zero value knows nothing, and holds back nobody.
type Routes struct {
	located nodenetworks.Located
	known   bool
	// full are the nodes whose NodeNetwork has no room for all that their pods have; hosts are all nodes' addresses.
	full  map[string]bool
	hosts map[netip.Addr]bool
	// outside are the hosts outside all clusters that may be exported.
	outside external.Hosts
}

// RoutesTo pods by the cluster's nodes, its NodeNetworks, and the networks of its pods that other clusters route to it;
// and to the hosts outside that its Peering allows.
func RoutesTo(nodes []corev1.Node, networks []v1alpha1.NodeNetwork, peering *v1alpha1.PeeringSpec,
	apiServers []netip.Addr) Routes {
	accepted := peering.Networks.PodCIDRs
	r := Routes{known: len(accepted) > 0, full: map[string]bool{}, hosts: map[netip.Addr]bool{}}
	beyond := make(map[string]v1alpha1.NodeNetworkSpec, len(networks))
	for i := range networks {
		n := &networks[i]
		beyond[n.Name], r.full[n.Name] = n.Spec, n.Spec.LeftOut > 0
	}
	for _, p := range discovery.Prefixes(discovery.NodeCIDRs(nodes)) {
		r.hosts[p.Addr()] = true
	}
	r.located = nodenetworks.Locate(nodes, beyond, discovery.Prefixes(accepted))
	r.outside, _ = external.For(peering, nodes, apiServers) // gateways tell what is wrong with the ranges
	return r
}

// holds says whether an endpoint is a pod in the cluster's networks that gateways do not send to the pod's node. Of
// other addresses, as those of nodes and of hosts outside, the broker decides.
func (r Routes) holds(e *discoveryv1.Endpoint) bool {
	if !r.known || e.TargetRef == nil || e.TargetRef.Kind != "Pod" || e.NodeName == nil || len(e.Addresses) == 0 {
		return false
	}
	ip, err := netip.ParseAddr(e.Addresses[0])
	if err != nil {
		return false
	}
	ip = ip.Unmap()
	return r.located.Of(ip) && !r.hosts[ip] && !r.located.On(*e.NodeName, ip)
}

// routed returns the slices without the pods that are held back, and why those are that will not be routed to soon: an
// address that the cluster agent is about to write down is nothing to speak of.
func (r Routes) routed(endpoints []discoveryv1.EndpointSlice) (kept []discoveryv1.EndpointSlice, remarks []string) {
	n, on := 0, map[string]bool{}
	kept = slices.Clone(endpoints)
	for i := range kept {
		var list []discoveryv1.Endpoint
		for j := range kept[i].Endpoints {
			e := &kept[i].Endpoints[j]
			switch {
			case !r.holds(e):
				list = append(list, *e)
			case r.full[*e.NodeName]:
				n++
				on[*e.NodeName] = true
			}
		}
		if len(list) < len(kept[i].Endpoints) {
			kept[i].Endpoints = list
		}
	}
	if n > 0 {
		remarks = append(remarks, fmt.Sprintf("%s held back, which gateways do not reach: there is no room for more than %d "+
			"networks of the node %s", nodenetworks.Count(n), v1alpha1.MaxNodePodCIDRs,
			clip.List(slices.Sorted(maps.Keys(on)), few)))
	}
	return kept, remarks
}

// refused says which hosts outside the cluster a headless Service names that may not be exported. What is said to be a
// pod is none.
func (r Routes) refused(endpoints []discoveryv1.EndpointSlice) (remarks []string) {
	why := map[netip.Addr]error{}
	for i := range endpoints {
		for _, e := range endpoints[i].Endpoints {
			if !r.known || len(e.Addresses) == 0 || e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
				continue
			}
			if ip, err := netip.ParseAddr(e.Addresses[0]); err == nil && ip.Is4() && r.outside.Outside(ip) {
				if err := r.outside.Check(ip); err != nil {
					why[ip] = err
				}
			}
		}
	}
	sorted := slices.SortedFunc(maps.Keys(why), netip.Addr.Compare)
	for i, ip := range sorted {
		if left := len(sorted) - i; i == few && left > 1 {
			return append(remarks, fmt.Sprintf("nor are %d more hosts outside the cluster exported", left))
		}
		remarks = append(remarks, "not exported: "+why[ip].Error())
	}
	return remarks
}

// few nodes, or hosts, are named.
const few = 2
