// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestHostsOutside: a headless Service without selector exports hosts outside the cluster where the Peering allows
// them, each by an address of the block, and no others: whoever wants to is told which field the admin has to set.
func TestHostsOutside(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	peering := m.peering(1)
	change(m, peering, func(p *v1alpha1.Peering) { p.Spec.Networks.PodCIDRs = []string{"10.7.0.0/16"} })
	m.node("node-b", "10.7.0.0/24", "172.31.1.11")
	const apiServer = "172.31.1.13"
	m.create(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes",
		Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: endpointsOf(apiServer)})
	m.create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "db"}, Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "sql", Port: 5432}}}})
	name, sql, port := "vm", "sql", int32(5432)
	hosts := endpointsOf("172.31.1.50", "172.31.1.51", "172.31.1.11", "100.100.100.200", apiServer)
	hosts[0].Hostname = &name
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "db-x",
		Labels: map[string]string{discoveryv1.LabelServiceName: "db"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: hosts[:2], Ports: []discoveryv1.EndpointPort{{Name: &sql, Port: &port}}}
	m.create(slice)
	m.export("sample", "db")

	m.reported("without a network of hosts, nor a block", nil,
		`172.31.1.50 is outside the cluster, and not in spec.clusters[].externalCIDRs of the ClusterSet for "c1"`)
	change(m, peering, func(p *v1alpha1.Peering) { p.Spec.ExternalCIDRs = []string{"172.31.1.50/32"} })
	m.reported("without a block", nil, "172.31.1.50 is outside the cluster, and exported by a global address alone")
	change(m, peering, func(p *v1alpha1.Peering) { p.Spec.GlobalCIDR = "120.1.0.0/24" })
	m.reported("one of two", []string{"172.31.1.50"}, "172.31.1.51 is outside the cluster, and not in")
	m.globalIP("db", v1alpha1.ReasonHostRefused, hostsOf("172.31.1.50"))
	change(m, slice, func(s *discoveryv1.EndpointSlice) { s.Endpoints = hosts })
	change(m, peering, func(p *v1alpha1.Peering) {
		p.Spec.ExternalCIDRs = []string{"172.31.1.0/24", "100.100.100.200/32"}
	})
	m.reported("both", []string{"172.31.1.50", "172.31.1.51"},
		apiServer+" is an address of the cluster's API server")
	change(m, slice, func(s *discoveryv1.EndpointSlice) { s.Endpoints = hosts[:2] })
	m.globalIP("db", v1alpha1.ReasonAllocated, hostsOf("172.31.1.50 172.31.1.51"))
	m.reported("nothing to say", []string{"172.31.1.50", "172.31.1.51"}, "")

	t.Log("the admin takes it back")
	change(m, peering, func(p *v1alpha1.Peering) { p.Spec.ExternalCIDRs = nil })
	m.reported("none", nil, "not exported: 172.31.1.50")
	m.globalIP("db", v1alpha1.ReasonHostRefused, hostsOf(""))
}

func hostsOf(want string) func(v1alpha1.GlobalIngressIPStatus) error {
	return func(s v1alpha1.GlobalIngressIPStatus) error {
		var got []string
		for _, p := range s.Pods {
			if p.ReleasedAt == nil {
				got = append(got, p.IP)
			}
		}
		return expect("hosts", strings.Join(got, " "), want)
	}
}

// reported waits until the only Bundle tells of global addresses of these endpoints of the only export, and a remark
// has a text.
func (m *member) reported(what string, withGlobal []string, remark string) {
	m.t.Helper()
	m.eventually("reported: "+what, func(ctx context.Context) error {
		b := &v1alpha1.Bundle{}
		if err := m.Get(ctx, types.NamespacedName{Name: v1alpha1.BundleName(0)}, b); err != nil {
			return err
		}
		if len(b.Status.Exports) != 1 {
			return errors.New("no export")
		}
		e := b.Status.Exports[0]
		var got []string
		for _, g := range e.Backends {
			for _, a := range g.Addresses {
				if a.GlobalIP != "" {
					got = append(got, a.IP)
				}
			}
		}
		text := strings.Join(e.Remarks, "\n")
		if (remark == "") != (text == "") {
			return fmt.Errorf("remarks %q", text)
		}
		return errors.Join(expect("with a global address", fmt.Sprint(got), fmt.Sprint(withGlobal)), contains(text, remark))
	})
}
