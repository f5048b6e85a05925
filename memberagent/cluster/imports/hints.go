// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// hint writes the topology hints that a Service's trafficDistribution asks for, which for a Service without
// selector nobody else does. kube-proxy heeds hints of one kind only if every ready endpoint of a port has
// them, so either all that are ready get them or none does. An endpoint of another cluster has a zone, which
// may be the client's as well, but never a node of this cluster.
func hint(groups []group, distribution *string, nodeHints bool) {
	if distribution == nil {
		return
	}
	byNode := false
	switch *distribution {
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone:
	case corev1.ServiceTrafficDistributionPreferSameNode:
		byNode = nodeHints && everyReady(groups, func(e *discoveryv1.Endpoint) bool { return e.NodeName != nil })
	default:
		return
	}
	byZone := everyReady(groups, func(e *discoveryv1.Endpoint) bool { return e.Zone != nil })
	if !byZone && !byNode {
		return
	}
	for i := range groups {
		for j := range groups[i].endpoints {
			e := &groups[i].endpoints[j]
			if !*e.Conditions.Ready {
				continue
			}
			e.Hints = &discoveryv1.EndpointHints{}
			if byZone {
				e.Hints.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
			}
			if byNode {
				e.Hints.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
			}
		}
	}
}

func everyReady(groups []group, has func(*discoveryv1.Endpoint) bool) bool {
	return !slices.ContainsFunc(groups, func(g group) bool {
		return slices.ContainsFunc(g.endpoints, func(e discoveryv1.Endpoint) bool { return *e.Conditions.Ready && !has(&e) })
	})
}
