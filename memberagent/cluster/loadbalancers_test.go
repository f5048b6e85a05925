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

// TestALoadBalancerLeadsToGateways: with the rights that the agent is installed with, one Service leads to both
// gateways, by the port of each, follows them, and is left as it was when the cluster leaves.
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
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationPublicIP, "lb:gateways,ipv4:203.0.113.1")
		})
	}
	m.start(m.config)
	m.toldOf("node-a", loadbalancers.EventNotBalanced, "expected Service sealane-system/gateways")
	udp := func(name string, port int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Protocol: corev1.ProtocolUDP, Port: port}
	}
	balancer := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "gateways"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{udp("first", 4500)}}}
	m.create(balancer)
	m.leads("gateways", "192.0.2.1 first=4500")
	m.toldOf("node-b", loadbalancers.EventNotBalanced, "expected UDP port 4501")
	change(m, balancer, func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, udp("second", 4501), udp("first-next", 4516), udp("second-next", 4517))
	})
	both := []string{"192.0.2.1 first=4500,first-next=4516", "192.0.2.2 second=4501,second-next=4517"}
	m.leads("gateways", both...)
	m.toldOf("node-b", loadbalancers.EventBalanced, "lead to the gateway")

	var list discoveryv1.EndpointSliceList
	if err := m.List(t.Context(), &list, client.MatchingLabels{discoveryv1.LabelServiceName: "gateways"}); err != nil {
		t.Fatal(err)
	}
	if err := m.Delete(t.Context(), &list.Items[0]); err != nil {
		t.Fatal(err)
	}
	change(m, &list.Items[1], func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"192.0.2.66"} })
	m.leads("gateways", both...)

	change(m, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}}, func(n *corev1.Node) {
		n.Annotations[v1alpha1.AnnotationPublicIP] = "ipv4:203.0.113.1"
	})
	m.leads("gateways", both[0])
	change(m, balancer, func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "other"} })
	m.leads("gateways")
	m.toldOf("node-a", loadbalancers.EventNotBalanced, "without a selector")
	change(m, balancer, func(s *corev1.Service) { s.Spec.Selector = nil })
	m.leads("gateways", both[0])
	change(m, p, func(p *v1alpha1.Peering) { p.Spec.Phase = v1alpha1.MemberLeaving })
	m.leads("gateways")
	if err := m.Get(t.Context(), client.ObjectKeyFromObject(balancer), balancer); err != nil {
		t.Errorf("the Service is the administrator's: %v", err)
	}
}
