// SPDX-License-Identifier: Apache-2.0

package loadbalancers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

func service(ports ...int32) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports,
			corev1.ServicePort{Name: fmt.Sprint("p", p), Protocol: corev1.ProtocolUDP, Port: p})
	}
	return s
}

func node(name, sources string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Annotations: map[string]string{v1alpha1.AnnotationPublicIP: sources}}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func gateway(name string, slot int32) v1alpha1.Gateway {
	return v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.GatewaySpec{Slot: slot}}
}

// TestDecide: what a node says of itself makes at most one EndpointSlice of each family.
func TestDecide(t *testing.T) {
	overTCP := service(4500)
	overTCP.Spec.Ports[0].Protocol = corev1.ProtocolTCP
	waits, plain := service(4500), service(4500)
	waits.Status.LoadBalancer.Ingress, plain.Spec.Type = nil, ""
	one, both := []string{"192.0.2.1"}, []string{"192.0.2.1", "2001:db8::1", "192.0.2.9", "nonsense"}
	for name, c := range map[string]struct {
		sources   string
		addresses []string
		port      int32
		dialled   []int32
		services  map[string]*corev1.Service
		slices    []string // and their ports
		problem   string
	}{
		"two load balancers, both families": {"lb:a lb:b", both, 4500, []int32{4500},
			map[string]*corev1.Service{"a": service(4500), "b": service(4500, 4516, 4534, 4501, 9000)},
			[]string{"a-3-ipv4 4500", "a-3-ipv6 4500", "b-3-ipv4 4500 4516 4534 4501", "b-3-ipv6 4500 4516 4534 4501"}, ""},
		"one that is wrong does not stop another": {"lb:none,lb:a,lb:a", one, 4500, nil,
			map[string]*corev1.Service{"a": service(4500)}, []string{"a-3-ipv4 4500"}, "Service sealane-system/none"},
		"a port that is dialled is missing": {"lb:a", one, 4500, []int32{4500, 4501, 4534},
			map[string]*corev1.Service{"a": service(4500)}, []string{"a-3-ipv4 4500"}, "UDP port 4501, 4534"},
		"none of cables": {"lb:a", one, 4500, nil,
			map[string]*corev1.Service{"a": service(4499, 4532)}, nil, "UDP port 4500"},
		"a port of TCP": {"lb:a", one, 4500, nil, map[string]*corev1.Service{"a": overTCP}, nil, "UDP port 4500"},
		"without an address": {"lb:a", one, 4500, nil, map[string]*corev1.Service{"a": waits},
			[]string{"a-3-ipv4 4500"}, "an address in the status"},
		"of another type":  {"lb:a", one, 4500, nil, map[string]*corev1.Service{"a": plain}, nil, "found ClusterIP"},
		"no cables":        {"lb:a", one, 0, nil, map[string]*corev1.Service{"a": service(4500)}, nil, ""},
		"no name":          {"lb:", one, 4500, nil, nil, nil, ""},
		"no load balancer": {"ipv4:192.0.2.1", one, 4500, nil, nil, nil, ""},
	} {
		got := decide(input{port: c.port, dialled: c.dialled, services: c.services,
			gateways: []v1alpha1.Gateway{gateway("n", 3), gateway("gone", 0)},
			nodes:    map[string]*corev1.Node{"n": node("n", c.sources, c.addresses...)}})
		var have []string
		for _, name := range slices.Sorted(maps.Keys(got.slices)) {
			s := got.slices[name]
			if !owns(s) || len(s.Endpoints) != 1 || len(s.Endpoints[0].Addresses) != 1 {
				t.Errorf("%s: %+v", name, s)
			}
			text := strings.TrimPrefix(name, prefix)
			for _, p := range s.Ports {
				text += fmt.Sprint(" ", *p.Port)
			}
			have = append(have, text)
		}
		if !slices.Equal(have, c.slices) {
			t.Errorf("%s: expected %q, found %q", name, c.slices, have)
		}
		if p := got.problems["n"]; (p == "") != (c.problem == "") || !strings.Contains(p, c.problem) {
			t.Errorf("%s: expected a problem with %q, found %q", name, c.problem, p)
		}
	}
}

// TestWhoIsDialledIsReached: at the addresses of load balancers, and the ports at which the plans of other clusters'
// gateways dial, each reaches the gateway that it means. One Service for two gateways leads to the first.
func TestWhoIsDialledIsReached(t *testing.T) {
	const shared = "203.0.113.9"
	for name, c := range map[string]struct {
		sources  [2]string // of gw0 and gw5
		at       [2]string // where that is
		reaches  []string  // whom r0 and r2 reach
		problems []string
	}{
		"a Service for each": {[2]string{"lb:a", "lb:b"}, [2]string{"203.0.113.1", "203.0.113.2"},
			[]string{"r0 gw0 4500", "r0 gw5 4500", "r2 gw0 4502", "r2 gw5 4502"}, nil},
		"one for both": {[2]string{"lb:a", "lb:a"}, [2]string{shared, shared},
			[]string{"r0 gw0 4500", "r2 gw0 4502"}, []string{"gw5"}},
	} {
		own := []v1alpha1.Gateway{gateway("gw5", 5), gateway("gw0", 0)}
		in := input{port: 4500, gateways: own, nodes: map[string]*corev1.Node{}, services: map[string]*corev1.Service{
			"a": service(4500, 4502), "b": service(4500, 4502)}}
		var endpoints []v1alpha1.Endpoint
		leads := map[string]string{} // gateways, by address and port
		for i, g := range []v1alpha1.Gateway{own[1], own[0]} {
			in.nodes[g.Name] = node(g.Name, c.sources[i], fmt.Sprint("192.0.2.", i))
			endpoints = append(endpoints, v1alpha1.Endpoint{Gateway: g.Name, Slot: g.Spec.Slot, MTU: 1420,
				PublicKey: topology.Key{byte(1 + i)}.String(),
				Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressLoadBalancer, IP: c.at[i]}}})
		}
		remote := []v1alpha1.Gateway{gateway("r0", 0), gateway("r2", 2)}
		var published []v1alpha1.Endpoint
		var nodes []corev1.Node
		for i := range remote {
			remote[i].Status.Endpoint = &v1alpha1.Endpoint{Gateway: remote[i].Name, Slot: remote[i].Spec.Slot, MTU: 1420,
				PublicKey: topology.Key{byte(8 + i)}.String()}
			published = append(published, *remote[i].Status.Endpoint)
			nodes = append(nodes, *node(remote[i].Name, "", fmt.Sprint("172.31.1.", i)))
		}
		in.dialled = dialled(&v1alpha1.PeeringSpec{Cable: v1alpha1.CableSpec{Port: 4500},
			RemoteClusters: []v1alpha1.RemoteCluster{{Name: "c2", Endpoints: published}}})
		decided := decide(in)
		for _, s := range decided.slices {
			for i, g := range []string{"gw0", "gw5"} {
				if in.nodes[g].Annotations[v1alpha1.AnnotationPublicIP] != "lb:"+s.Labels["kubernetes.io/service-name"] {
					continue
				}
				for _, p := range s.Ports {
					leads[fmt.Sprintf("%s:%d", c.at[i], *p.Port)] = *s.Endpoints[0].NodeName
				}
			}
		}
		top := topology.Build(topology.Input{
			Peering: &v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{ClusterID: "c2",
				Networks: v1alpha1.Networks{PodCIDRs: []string{"10.8.0.0/16"}},
				RemoteClusters: []v1alpha1.RemoteCluster{{Name: "c1", Endpoints: endpoints,
					Networks: v1alpha1.Networks{PodCIDRs: []string{"10.9.0.0/16"}}}}}},
			Gateways: remote, Nodes: nodes})
		var reaches []string
		for i, r := range remote {
			p := plan.For(top, plan.NodeFacts{Name: r.Name, ID: plan.PeerID([]byte{byte(8 + i), 31: 0}), IPv6: true})
			for _, tunnel := range p.Tunnels {
				for _, peer := range tunnel.Peers {
					for _, at := range peer.Candidates {
						if leads[at.String()] == peer.Node {
							reaches = append(reaches, fmt.Sprint(r.Name, " ", peer.Node, " ", at.Port()))
						}
					}
				}
			}
		}
		slices.Sort(reaches)
		if !slices.Equal(reaches, c.reaches) {
			t.Errorf("%s: expected %q, found %q; the load balancers lead %v", name, c.reaches, reaches, leads)
		}
		if got := slices.Sorted(maps.Keys(decided.problems)); !slices.Equal(got, c.problems) {
			t.Errorf("%s: expected problems of %v, found %v", name, c.problems, decided.problems)
		}
	}
}
