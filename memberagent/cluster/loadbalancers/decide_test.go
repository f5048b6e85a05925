// SPDX-License-Identifier: Apache-2.0

package loadbalancers

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestDecide: what a node says of itself makes at most one EndpointSlice of each family.
func TestDecide(t *testing.T) {
	service := func(ports ...int32) *corev1.Service {
		s := &corev1.Service{}
		for _, p := range ports {
			s.Spec.Ports = append(s.Spec.Ports,
				corev1.ServicePort{Name: fmt.Sprint("p", p), Protocol: corev1.ProtocolUDP, Port: p})
		}
		return s
	}
	overTCP := service(4503)
	overTCP.Spec.Ports[0].Protocol = corev1.ProtocolTCP
	for name, c := range map[string]struct {
		sources   string
		addresses []string
		port      int32
		services  map[string]*corev1.Service
		slices    []string
		problems  int
	}{
		"two load balancers, both families": {"lb:a lb:b",
			[]string{"192.0.2.1", "2001:db8::1", "192.0.2.9", "nonsense"}, 4500,
			map[string]*corev1.Service{"a": service(4503), "b": service(4503, 4519, 4500)},
			[]string{"sl-gateway-a-3-ipv4", "sl-gateway-a-3-ipv6", "sl-gateway-b-3-ipv4", "sl-gateway-b-3-ipv6"}, 0},
		"one that is wrong does not stop another": {"lb:none,lb:a", []string{"192.0.2.1"}, 4500,
			map[string]*corev1.Service{"a": service(4503)}, []string{"sl-gateway-a-3-ipv4"}, 1},
		"a port of the next key alone": {"lb:a", []string{"192.0.2.1"}, 4500,
			map[string]*corev1.Service{"a": service(4519)}, nil, 1},
		"a port of TCP":    {"lb:a", []string{"192.0.2.1"}, 4500, map[string]*corev1.Service{"a": overTCP}, nil, 1},
		"no cables":        {"lb:a", []string{"192.0.2.1"}, 0, map[string]*corev1.Service{"a": service(4503)}, nil, 0},
		"no name":          {"lb:", []string{"192.0.2.1"}, 4500, nil, nil, 0},
		"no load balancer": {"ipv4:192.0.2.1", []string{"192.0.2.1"}, 4500, nil, nil, 0},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n",
			Annotations: map[string]string{v1alpha1.AnnotationPublicIP: c.sources}}}
		for _, a := range c.addresses {
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		g := v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: v1alpha1.GatewaySpec{Slot: 3}}
		gone := v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}
		got := decide(input{port: c.port, gateways: []v1alpha1.Gateway{g, gone}, nodes: map[string]*corev1.Node{"n": node},
			services: c.services})
		if names := slices.Sorted(maps.Keys(got.slices)); !slices.Equal(names, c.slices) || len(got.problems) != c.problems {
			t.Errorf("%s: expected %v and %d problems, found %v and %v", name, c.slices, c.problems, names, got.problems)
		}
		for _, s := range got.slices {
			if !owns(s) || len(s.Endpoints) != 1 || len(s.Endpoints[0].Addresses) != 1 {
				t.Errorf("%s: %+v", name, s)
			}
		}
	}
}
