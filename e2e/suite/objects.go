// SPDX-License-Identifier: Apache-2.0

package suite

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Named is the metadata of an object with a name.
func Named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// Port is a TCP port of a Service, whose target is 8080, where the server pods listen.
func Port(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: number, TargetPort: intstr.FromInt32(8080)}
}

// Service is the Service web: http on port 80, without a selector.
func Service(edits ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: Named("web"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{Port("http", 80)}}}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

// Headless makes a Service headless and IPv4 only: without a selector the API server would give it both families.
func Headless(s *corev1.Service) {
	single := corev1.IPFamilyPolicySingleStack
	s.Spec.ClusterIP, s.Spec.IPFamilyPolicy = corev1.ClusterIPNone, &single
}

// Ports replaces the ports of a Service.
func Ports(list ...corev1.ServicePort) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports = list }
}

// EndpointSlice is the EndpointSlice of a Service without a selector.
func EndpointSlice(of *corev1.Service, list ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{ObjectMeta: Named(of.Name), AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: list}
	out.Labels = map[string]string{discoveryv1.LabelServiceName: of.Name}
	for _, p := range of.Spec.Ports {
		number := int32(8080)
		out.Ports = append(out.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &number})
	}
	return out
}
