// SPDX-License-Identifier: Apache-2.0

// Package loadbalancers leads load balancers to gateways: of a Service without a selector that a gateway's node names,
// it keeps the EndpointSlices. Each gateway needs a Service of its own: the port at which it is dialled tells who
// dials, not who is dialled.
package loadbalancers

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
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
	// port of the cables with gateways of slot 0; 0 while the cluster has none.
	port int32
	// dialled are the ports at which gateways of other clusters dial those of this one.
	dialled  []int32
	gateways []v1alpha1.Gateway
	nodes    map[string]*corev1.Node
	services map[string]*corev1.Service
}

// dialled returns the ports at which the gateways of other clusters dial: each at that of its own slot.
func dialled(spec *v1alpha1.PeeringSpec) []int32 {
	var out []int32
	for _, c := range spec.RemoteClusters {
		for _, e := range c.Endpoints {
			if e.Slot >= 0 && e.Slot <= v1alpha1.MaxSlot {
				out = append(out, spec.Cable.Port+e.Slot)
			}
		}
		if c.Cable == v1alpha1.CableIPsec {
			out = append(out, spec.Cable.Port+netfacts.IPsecOffset)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// decision is what is wanted.
type decision struct {
	slices map[string]*discoveryv1.EndpointSlice
	// problems by gateway, of what its node names.
	problems map[string]string
}

// decide makes an EndpointSlice for each gateway, load balancer and family of the node's addresses. A Service that is
// named for several gateways leads to that of the lowest slot.
func decide(in input) decision {
	out := decision{slices: map[string]*discoveryv1.EndpointSlice{}, problems: map[string]string{}}
	if in.port == 0 {
		return out
	}
	taken := map[string]string{} // gateways, by the Service
	for _, g := range slices.SortedFunc(slices.Values(in.gateways), func(a, b v1alpha1.Gateway) int {
		return cmp.Or(cmp.Compare(a.Spec.Slot, b.Spec.Slot), cmp.Compare(a.Name, b.Name))
	}) {
		node := in.nodes[g.Name]
		if node == nil {
			continue
		}
		var problems []string
		for _, name := range netfacts.LoadBalancers(sources(node)) {
			if other, ok := taken[name]; ok && other != g.Name {
				problems = append(problems, fmt.Sprintf("expected a Service for this gateway alone, found that %s/%s leads to "+
					"gateway %s: make one for each, and name it in the annotation %s of its node", v1alpha1.Namespace, name, other,
					v1alpha1.AnnotationPublicIP))
				continue
			}
			taken[name] = g.Name
			ports, wrong := in.portsOf(name)
			problems = append(problems, wrong...)
			if len(ports) == 0 {
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

// portsOf returns the ports of a Service that are cables': of those with gateways of each slot, by IPsec, and with a
// next key, and what is wrong with it. There may be both: that some are dialled that it has not is no reason to be
// reached by none.
func (in *input) portsOf(name string) (out []discoveryv1.EndpointPort, wrong []string) {
	s := in.services[name]
	name = "Service " + v1alpha1.Namespace + "/" + name
	switch {
	case s == nil || s.DeletionTimestamp != nil:
		return nil, []string{fmt.Sprintf("expected %s, of which the node's annotation %s speaks, found none: make it, "+
			"without a selector", name, v1alpha1.AnnotationPublicIP)}
	case s.Spec.Type != corev1.ServiceTypeLoadBalancer:
		return nil, []string{fmt.Sprintf("expected %s of type LoadBalancer, found %s: change it, or name another in the "+
			"node's annotation %s", name, cmp.Or(s.Spec.Type, corev1.ServiceTypeClusterIP), v1alpha1.AnnotationPublicIP)}
	case len(s.Spec.Selector) > 0:
		return nil, []string{fmt.Sprintf("expected %s without a selector, found one: remove it, so that it leads to a "+
			"gateway alone", name)}
	}
	has := map[int32]bool{}
	for _, p := range s.Spec.Ports {
		if p.Protocol == corev1.ProtocolUDP && in.ofCables(p.Port) {
			out = append(out, discoveryv1.EndpointPort{Name: ptr.To(p.Name), Protocol: ptr.To(p.Protocol),
				Port: ptr.To(p.Port)})
			has[p.Port] = true
		}
	}
	var missing []string
	for _, p := range in.dialled {
		if !has[p] {
			missing = append(missing, strconv.Itoa(int(p)))
		}
	}
	switch {
	case len(missing) > 0:
		wrong = append(wrong, fmt.Sprintf("expected UDP port %s, at which gateways of other clusters dial, among the ports "+
			"of %s, found none: add it, and of WireGuard's those 16 higher, at which they dial while keys are replaced",
			strings.Join(missing, ", "), name))
	case len(out) == 0:
		wrong = append(wrong, fmt.Sprintf("expected UDP port %d, or others of cables, among the ports of %s, found none: "+
			"add as many as the largest other member has gateways", in.port, name))
	}
	if len(s.Status.LoadBalancer.Ingress) == 0 {
		wrong = append(wrong, fmt.Sprintf("expected an address in the status of %s, found none: what makes load balancers "+
			"for this cluster has not answered yet; its Events may say why", name))
	}
	return out, wrong
}

// ofCables says whether a port may be one of cables.
func (in *input) ofCables(port int32) bool {
	return port >= in.port && port < in.port+2*v1alpha1.NextKeySlots || port == in.port+netfacts.IPsecOffset
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
