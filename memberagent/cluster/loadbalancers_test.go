// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/memberagent/cluster/loadbalancers"
)

// leads waits until a load balancer's EndpointSlices are these: "address port=number,...", sorted.
func (m *member) leads(service string, want ...string) {
	m.t.Helper()
	m.eventually("the EndpointSlices of "+service, func(ctx context.Context) error {
		var list discoveryv1.EndpointSliceList
		err := m.List(ctx, &list, client.InNamespace(v1alpha1.Namespace),
			client.MatchingLabels{discoveryv1.LabelServiceName: service})
		var got []string
		for _, s := range list.Items {
			var ports []string
			for _, p := range s.Ports {
				ports = append(ports, fmt.Sprintf("%s=%d", *p.Name, *p.Port))
			}
			got = append(got, s.Endpoints[0].Addresses[0]+" "+strings.Join(ports, ","))
		}
		slices.Sort(got)
		return errors.Join(err, expect("slices", strings.Join(got, "; "), strings.Join(want, "; ")))
	})
}

// toldOf waits for an Event on a Gateway.
func (m *member) toldOf(gateway, reason, message string) {
	m.t.Helper()
	m.eventually(reason, func(ctx context.Context) error {
		var list corev1.EventList
		if err := m.List(ctx, &list); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == "Gateway" && e.InvolvedObject.Name == gateway && e.Reason == reason &&
				strings.Contains(e.Message, message) {
				return nil
			}
		}
		return fmt.Errorf("no event %s on %s with %q", reason, gateway, message)
	})
}

// TestALoadBalancerLeadsToGateways: with the rights that the agent is installed with, a Service leads to each gateway,
// by the ports at which others dial, follows it, and is left as it was when the cluster leaves.
func TestALoadBalancerLeadsToGateways(t *testing.T) {
	m := newMember(t)
	m.node("node-b", "10.8.1.0/24", "192.0.2.2")
	p := m.peering(1)
	pod := m.nodeAgent()
	for _, name := range []string{"node-a", "node-b"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		m.kubelet(name, corev1.ConditionTrue)
		m.programs(pod, name)
		change(m, n, func(n *corev1.Node) {
			metav1.SetMetaDataLabel(&n.ObjectMeta, v1alpha1.LabelGateway, "true")
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationPublicIP, "lb:first,ipv4:203.0.113.1")
		})
	}
	m.start(m.config)
	m.toldOf("node-a", loadbalancers.EventNotBalanced, "expected Service sealane-system/first")
	udp := func(name string, port int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Protocol: corev1.ProtocolUDP, Port: port}
	}
	balancer := func(name string, ports ...corev1.ServicePort) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: name},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: ports}}
		m.create(s)
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}
		if err := m.Status().Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := balancer("first", udp("zero", 4500))
	m.leads("first", "192.0.2.1 zero=4500")
	m.toldOf("node-b", loadbalancers.EventNotBalanced, "leads to gateway node-a")
	change(m, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}}, func(n *corev1.Node) {
		n.Annotations[v1alpha1.AnnotationPublicIP] = "lb:second"
	})
	balancer("second", udp("zero", 4500), udp("one", 4501), udp("zero-next", 4516))
	const ofSecond = "192.0.2.2 zero=4500,one=4501,zero-next=4516"
	m.leads("second", ofSecond)
	m.toldOf("node-b", loadbalancers.EventBalanced, "lead to the gateway")

	// Another cluster's second gateway dials at a port of its own.
	change(m, p, func(p *v1alpha1.Peering) {
		p.Spec.RemoteClusters[0].Endpoints = []v1alpha1.Endpoint{
			{Gateway: "r1", Slot: 1, MTU: 1420, PublicKey: topology.Key{7}.String(),
				Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPrivate, IP: "192.0.2.77"}}}}
	})
	m.toldOf("node-a", loadbalancers.EventNotBalanced, "expected UDP port 4501")
	m.leads("first", "192.0.2.1 zero=4500")
	change(m, first, func(s *corev1.Service) { s.Spec.Ports = append(s.Spec.Ports, udp("one", 4501)) })
	const ofFirst = "192.0.2.1 zero=4500,one=4501"
	m.leads("first", ofFirst)
	m.toldOf("node-a", loadbalancers.EventBalanced, "lead to the gateway")

	for _, service := range []string{"first", "second"} {
		var list discoveryv1.EndpointSliceList
		if err := m.List(t.Context(), &list, client.MatchingLabels{discoveryv1.LabelServiceName: service}); err != nil {
			t.Fatal(err)
		}
		if service == "first" {
			if err := m.Delete(t.Context(), &list.Items[0]); err != nil {
				t.Fatal(err)
			}
			continue
		}
		change(m, &list.Items[0], func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"192.0.2.66"} })
	}
	m.leads("first", ofFirst)
	m.leads("second", ofSecond)

	change(m, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}}, func(n *corev1.Node) {
		n.Annotations[v1alpha1.AnnotationPublicIP] = "ipv4:203.0.113.1"
	})
	m.leads("second")
	change(m, first, func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "other"} })
	m.leads("first")
	m.toldOf("node-a", loadbalancers.EventNotBalanced, "without a selector")
	change(m, first, func(s *corev1.Service) { s.Spec.Selector = nil })
	m.leads("first", ofFirst)
	change(m, p, func(p *v1alpha1.Peering) { p.Spec.Phase = v1alpha1.MemberLeaving })
	m.leads("first")
	if err := m.Get(t.Context(), client.ObjectKeyFromObject(first), first); err != nil {
		t.Errorf("the Service is the administrator's: %v", err)
	}
}
