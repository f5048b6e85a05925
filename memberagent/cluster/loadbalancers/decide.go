// SPDX-License-Identifier: Apache-2.0

// Package loadbalancers leads load balancers to gateways: of a Service without a selector that a gateway's node names,
// it keeps the EndpointSlices. One Service does for all gateways of a cluster, as each has UDP ports of its own.
package loadbalancers

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// prefix of the names of EndpointSlices.
const prefix = "sl-gateway-"

// input is all that decides where load balancers lead.
type input struct {
	// port of the cables of slot 0; 0 while the cluster has none.
	port     int32
	gateways []v1alpha1.Gateway
	nodes    map[string]*corev1.Node
	services map[string]*corev1.Service
}

// decision is what is wanted.
type decision struct {
	slices map[string]*discoveryv1.EndpointSlice
	// problems by gateway, of what its node names.
	problems map[string]string
}

// decide makes an EndpointSlice for each gateway, load balancer and family of the node's addresses.
func decide(in input) decision {
	out := decision{slices: map[string]*discoveryv1.EndpointSlice{}, problems: map[string]string{}}
	if in.port == 0 {
		return out
	}
	for i := range in.gateways {
		g := &in.gateways[i]
		node := in.nodes[g.Name]
		if node == nil {
			continue
		}
		var problems []string
		for _, name := range netfacts.LoadBalancers(sources(node)) {
			ports, err := portsOf(in.services[name], name, in.port+g.Spec.Slot)
			if err != nil {
				problems = append(problems, err.Error())
				continue
			}
			for _, s := range slicesOf(name, g.Spec.Slot, node, ports) {
				out.slices[s.Name] = s
			}
		}
		if len(problems) > 0 {
			out.problems[g.Name] = strings.Join(problems, "; ")
		}
	}
	return out
}

// portsOf returns the ports of a Service that are a gateway's: that of its cables, and that of those with its next key.
func portsOf(s *corev1.Service, name string, port int32) ([]discoveryv1.EndpointPort, error) {
	name = "Service " + v1alpha1.Namespace + "/" + name
	switch {
	case s == nil || s.DeletionTimestamp != nil:
		return nil, fmt.Errorf("expected %s, of which the node's annotation %s speaks, found none: make it, without a "+
			"selector", name, v1alpha1.AnnotationPublicIP)
	case len(s.Spec.Selector) > 0:
		return nil, fmt.Errorf("expected %s without a selector, found one: remove it, so that it leads to gateways "+
			"alone", name)
	}
	var out []discoveryv1.EndpointPort
	first := false
	for _, p := range s.Spec.Ports {
		if p.Protocol == corev1.ProtocolUDP && (p.Port == port || p.Port == port+v1alpha1.NextKeySlots) {
			out = append(out, discoveryv1.EndpointPort{Name: ptr.To(p.Name), Protocol: ptr.To(p.Protocol),
				Port: ptr.To(p.Port)})
			first = first || p.Port == port
		}
	}
	if !first {
		return nil, fmt.Errorf("expected UDP port %d, of this gateway, among the ports of %s, found none: add it, and %d, "+
			"which takes its place while keys are replaced", port, name, port+v1alpha1.NextKeySlots)
	}
	return out, nil
}

// slicesOf a gateway: one for each family of its node's addresses.
func slicesOf(service string, slot int32, node *corev1.Node,
	ports []discoveryv1.EndpointPort) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	had := map[discoveryv1.AddressType]bool{}
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		ip, err := netip.ParseAddr(a.Address)
		if err != nil {
			continue
		}
		family := discoveryv1.AddressTypeIPv4
		if ip.Unmap().Is6() {
			family = discoveryv1.AddressTypeIPv6
		}
		if had[family] {
			continue
		}
		had[family] = true
		out = append(out, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: v1alpha1.Namespace,
				Name:      fmt.Sprintf("%s%s-%d-%s", prefix, service, slot, strings.ToLower(string(family))),
				Labels: map[string]string{discoveryv1.LabelManagedBy: v1alpha1.ManagedBy,
					discoveryv1.LabelServiceName: service},
			},
			AddressType: family,
			Ports:       ports,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{ip.Unmap().String()}, NodeName: ptr.To(node.Name),
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		})
	}
	return out
}

// owns says whether an EndpointSlice is one of this package's.
func owns(s metav1.Object) bool {
	return s.GetNamespace() == v1alpha1.Namespace && strings.HasPrefix(s.GetName(), prefix) &&
		s.GetLabels()[discoveryv1.LabelManagedBy] == v1alpha1.ManagedBy
}
