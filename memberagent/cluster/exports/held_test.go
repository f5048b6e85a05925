// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestPodsThatGatewaysDoNotReachAreHeldBack: of the cluster's networks, and not where gateways send to. Of other
// addresses the broker decides.
func TestPodsThatGatewaysDoNotReachAreHeldBack(t *testing.T) {
	node := func(name, address string, podCIDRs ...string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: podCIDRs},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}}
	}
	nodes := []corev1.Node{node("n1", "10.6.0.1", "10.8.1.0/24"), node("n2", "10.6.0.2", "10.8.2.0/24"),
		node("n3", "10.6.0.3")}
	networks := []v1alpha1.NodeNetwork{
		{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Spec: v1alpha1.NodeNetworkSpec{PodCIDRs: []string{"10.8.1.7/32"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "n3"}, Spec: v1alpha1.NodeNetworkSpec{PodCIDRs: []string{"10.6.0.16/28"},
			LeftOut: 3}},
		{ObjectMeta: metav1.ObjectMeta{Name: "gone"}, Spec: v1alpha1.NodeNetworkSpec{PodCIDRs: []string{"10.8.9.9/32"}}},
	}
	accepted := []string{"10.8.0.0/16", "10.6.0.0/24"}
	const noRoom = "held back, which gateways do not reach: there is no room for more than 4096 networks of the node n3"
	for name, c := range map[string]struct {
		endpoints string // kind:address@node
		accepted  []string
		want      string // the addresses that are left, and the remark
	}{
		"where nodes say":                  {"Pod:10.8.1.1@n1 Pod:10.8.2.1@n2", accepted, "10.8.1.1 10.8.2.1"},
		"where it is written down":         {"Pod:10.8.1.7@n2 Pod:10.6.0.17@n3", accepted, "10.6.0.17 10.8.1.7"},
		"not written down yet":             {"Pod:10.8.1.9@n2 Pod:10.8.77.1@n1 Pod:10.8.2.1@n2", accepted, "10.8.2.1"},
		"still another's":                  {"Pod:10.8.1.7@n1", accepted, ""},
		"its node is gone":                 {"Pod:10.8.9.9@gone", accepted, ""},
		"no room":                          {"Pod:10.6.0.40@n3 Pod:10.6.0.17@n3", accepted, "10.6.0.17; 1 pod " + noRoom},
		"no room for two":                  {"Pod:10.6.0.40@n3 Pod:10.6.0.41@n3", accepted, "; 2 pods " + noRoom},
		"of the host network":              {"Pod:10.6.0.2@n2", accepted, "10.6.0.2"},
		"outside":                          {"Pod:192.0.2.1@n1", accepted, "192.0.2.1"},
		"made by hand":                     {"VirtualMachine:10.8.77.1@n1 :10.8.77.2@n1", accepted, "10.8.77.1 10.8.77.2"},
		"of a node that is not told":       {"Pod:10.8.77.1@", accepted, "10.8.77.1"},
		"before the cluster is accepted":   {"Pod:10.8.77.1@n1", nil, "10.8.77.1"},
		"all families of another notation": {"Pod:::ffff:10.8.1.1@n1 Pod:::ffff:10.8.2.1@n1", accepted, "10.8.1.1"},
		"of the cluster by nobody's leave": {"Pod:10.8.1.1@n1 Pod:fd00::1@n1", accepted, "10.8.1.1 fd00::1"},
		"several kinds of them":            {"Pod:10.8.7.1@n1 :10.8.7.2@n1 Pod:10.8.1.1@n1", accepted, "10.8.1.1 10.8.7.2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := slice(80, true)
			for text := range strings.FieldsSeq(c.endpoints) {
				kind, rest, _ := strings.Cut(text, ":")
				address, on, _ := strings.Cut(rest, "@")
				e := discoveryv1.Endpoint{Addresses: []string{address}}
				if kind != "" {
					e.TargetRef = &corev1.ObjectReference{Kind: kind, Name: "p"}
				}
				if on != "" {
					e.NodeName = &on
				}
				s.Endpoints = append(s.Endpoints, e)
			}
			before := s.DeepCopy()
			e := Describe(&mcs.ServiceExport{}, &corev1.Service{}, []discoveryv1.EndpointSlice{s},
				RoutesTo(nodes, networks, peeringWith(c.accepted), nil), nil)
			var got []string
			for _, g := range e.Backends {
				for _, b := range g.Addresses {
					got = append(got, b.IP)
				}
			}
			text := strings.Join(append([]string{strings.Join(got, " ")}, e.Remarks...), "; ")
			if text != c.want {
				t.Errorf("got %q, want %q", text, c.want)
			}
			if !reflect.DeepEqual(s.Endpoints, before.Endpoints) {
				t.Error("the cached slice was changed")
			}
		})
	}
}

func peeringWith(podCIDRs []string) *v1alpha1.PeeringSpec {
	return &v1alpha1.PeeringSpec{Networks: v1alpha1.Networks{PodCIDRs: podCIDRs}}
}
