// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/imports"
)

// imported returns an import with the port http, exported by clusters that each have backends.
func imported(namespace, name string, backends map[string][]string) v1alpha1.Import {
	out := v1alpha1.Import{Namespace: namespace, Name: name, Clusters: []v1alpha1.ImportCluster{},
		Settings: v1alpha1.ServiceSettings{
			Type:            v1alpha1.ClusterSetIP,
			Ports:           []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			SessionAffinity: corev1.ServiceAffinityNone,
			IPFamilies:      []corev1.IPFamily{corev1.IPv4Protocol},
		}}
	for cluster, ips := range backends {
		c := v1alpha1.ImportCluster{Cluster: cluster, CreatedAt: metav1.Unix(1700000000, 0), Ports: []string{"http"},
			ClusterIPs: []string{"10.99.0.10"}, Backends: []v1alpha1.Backends{}}
		g := v1alpha1.Backends{Ports: []v1alpha1.BackendPort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 8080}}}
		for _, ip := range ips {
			g.Addresses = append(g.Addresses, v1alpha1.Backend{IP: ip, Ready: true, Serving: true, Node: "far"})
		}
		if len(ips) > 0 {
			c.Backends = append(c.Backends, g)
		}
		out.Clusters = append(out.Clusters, c)
	}
	slices.SortFunc(out.Clusters, func(a, b v1alpha1.ImportCluster) int { return strings.Compare(a.Cluster, b.Cluster) })
	return out
}

// imports sets what the broker says.
func (m *member) imports(list ...v1alpha1.Import) {
	m.t.Helper()
	change(m, bundle(0), func(b *v1alpha1.Bundle) {
		b.Spec.Revision++
		b.Spec.Imports = sorted(list)
	})
}

// sorted are imports as they are in a Bundle.
func sorted(list []v1alpha1.Import) []v1alpha1.Import {
	out := append([]v1alpha1.Import{}, list...)
	slices.SortFunc(out, func(a, b v1alpha1.Import) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// derived waits for the derived Service and a ServiceImport with the same address, and returns both.
func (m *member) derived(service types.NamespacedName) (*mcs.ServiceImport, *corev1.Service) {
	m.t.Helper()
	i, s := &mcs.ServiceImport{}, &corev1.Service{}
	m.eventually("import "+service.String(), func(ctx context.Context) error {
		i, s = &mcs.ServiceImport{}, &corev1.Service{}
		if err := errors.Join(m.Get(ctx, service, i), m.Get(ctx, key(service.Namespace, imports.DerivedName(service)),
			s)); err != nil {
			return err
		}
		return errors.Join(expect("ips", i.Spec.IPs, s.Spec.ClusterIPs), expect("selector", s.Spec.Selector,
			map[string]string(nil)),
			expect("ready", meta.IsStatusConditionTrue(i.Status.Conditions, "Ready"), true))
	})
	return i, s
}

// endpoints waits until the import's slices say this: "<cluster> <address>:<port>[@node] …".
func (m *member) endpoints(service types.NamespacedName, want string) {
	m.t.Helper()
	took := m.eventually("the endpoints of "+service.String(), func(ctx context.Context) error {
		var got []string
		for _, s := range m.slices(ctx, service) {
			for _, e := range s.Endpoints {
				at := ""
				if e.NodeName != nil {
					at = "@" + *e.NodeName
				}
				for _, p := range s.Ports {
					got = append(got, fmt.Sprintf("%s %s:%d%s", s.Labels[mcs.LabelSourceCluster], e.Addresses[0], *p.Port, at))
				}
			}
		}
		slices.Sort(got)
		return expect("endpoints", strings.Join(got, ", "), want)
	})
	m.t.Logf("endpoints after %s: %s", took, want)
}

func (m *member) slices(ctx context.Context, service types.NamespacedName) []discoveryv1.EndpointSlice {
	list := &discoveryv1.EndpointSliceList{}
	if err := m.List(ctx, list, client.InNamespace(service.Namespace),
		client.MatchingLabels{mcs.LabelServiceName: service.Name}); err != nil {
		m.t.Fatal(err)
	}
	return list.Items
}

func (m *member) gone(o client.Object) {
	m.t.Helper()
	m.eventually("gone "+o.GetName(), func(ctx context.Context) error {
		return expect("not found", apierrors.IsNotFound(m.Get(ctx, client.ObjectKeyFromObject(o), o)), true)
	})
}

func (m *member) delete(o client.Object) {
	m.t.Helper()
	if err := m.Delete(m.t.Context(), o); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) peeringCondition(kind string, status metav1.ConditionStatus, reason, mentions string) {
	m.t.Helper()
	m.eventually("condition "+kind, func(ctx context.Context) error {
		p := &v1alpha1.Peering{}
		if err := m.Get(ctx, types.NamespacedName{Name: v1alpha1.PeeringName}, p); err != nil {
			return err
		}
		c := meta.FindStatusCondition(p.Status.Conditions, kind)
		if c == nil {
			return errors.New("not there")
		}
		return errors.Join(expect("status", c.Status, status), expect("reason", c.Reason, reason),
			expect("mentions "+c.Message, strings.Contains(c.Message, mentions), true))
	})
}

func TestImports(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	web := key("sample", "web")

	m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.5", "10.9.0.4"}}))
	m.endpoints(web, "c2 10.9.0.4:8080, c2 10.9.0.5:8080")
	i, s := m.derived(web)
	ip := s.Spec.ClusterIP

	m.run("edits are undone", func(t *testing.T) {
		change(m, s, func(s *corev1.Service) {
			s.Spec.Selector = map[string]string{"app": "mine"}
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "extra", Port: 81})
			s.Labels = nil
		})
		m.eventually("the Service as it was", func(ctx context.Context) error {
			if err := m.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
				return err
			}
			return errors.Join(expect("ports", len(s.Spec.Ports), 1), expect("selector", len(s.Spec.Selector), 0),
				expect("label", s.Labels[v1alpha1.LabelImport], "web"))
		})
		change(m, i, func(i *mcs.ServiceImport) { i.Spec.IPs, i.Spec.Ports[0].Port = []string{"192.0.2.99"}, 99 })
		m.derived(web)
		slice := m.slices(t.Context(), web)[0]
		change(m, &slice, func(s *discoveryv1.EndpointSlice) { s.Endpoints = endpointsOf("203.0.113.1") })
		m.endpoints(web, "c2 10.9.0.4:8080, c2 10.9.0.5:8080")
	})

	m.run("what is deleted comes back, with its address", func(t *testing.T) {
		m.delete(s.DeepCopy())
		m.eventually("another Service", func(ctx context.Context) error {
			again := &corev1.Service{}
			if err := m.Get(ctx, client.ObjectKeyFromObject(s), again); err != nil {
				return err
			}
			return errors.Join(expect("new", again.UID != s.UID, true), expect("address", again.Spec.ClusterIP, ip))
		})
		m.delete(i.DeepCopy())
		slice := m.slices(t.Context(), web)[0]
		m.delete(&slice)
		m.endpoints(web, "c2 10.9.0.4:8080, c2 10.9.0.5:8080")
		_, again := m.derived(web)
		if again.Spec.ClusterIP != ip {
			t.Errorf("address %s, want %s", again.Spec.ClusterIP, ip)
		}
	})

	m.run("only what changed is written", func(t *testing.T) {
		before := map[string]string{}
		m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4", "10.9.0.5"}, "c3": {"10.7.0.1"}}))
		m.endpoints(web, "c2 10.9.0.4:8080, c2 10.9.0.5:8080, c3 10.7.0.1:8080")
		for _, s := range m.slices(t.Context(), web) {
			before[s.Labels[mcs.LabelSourceCluster]] = s.ResourceVersion
		}
		m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4", "10.9.0.5"},
			"c3": {"10.7.0.1", "10.7.0.2"}}))
		m.endpoints(web, "c2 10.9.0.4:8080, c2 10.9.0.5:8080, c3 10.7.0.1:8080, c3 10.7.0.2:8080")
		for _, s := range m.slices(t.Context(), web) {
			source := s.Labels[mcs.LabelSourceCluster]
			if same := before[source] == s.ResourceVersion; same != (source == "c2") {
				t.Errorf("slice of %s: unchanged is %t", source, same)
			}
		}
	})

	m.run("the local cluster first", func(t *testing.T) {
		slice := m.service("sample", "web", "10.8.0.7")
		m.imports(imported("sample", "web", map[string][]string{"c1": nil, "c2": {"10.9.0.4"}}))
		m.endpoints(web, "c1 10.8.0.7:8080@node-a")
		change(m, slice, func(s *discoveryv1.EndpointSlice) { s.Endpoints = endpointsOf() })
		m.endpoints(web, "c2 10.9.0.4:8080")
		change(m, slice, func(s *discoveryv1.EndpointSlice) { s.Endpoints = endpointsOf("10.8.0.8") })
		m.endpoints(web, "c1 10.8.0.8:8080@node-a")
		change(m, slice, func(s *discoveryv1.EndpointSlice) { s.Endpoints = endpointsOf() })
		m.endpoints(web, "c2 10.9.0.4:8080")
	})

	m.run("a cluster out of reach", func(t *testing.T) {
		m.gatewayReports(v1alpha1.ConnectionConnected)
		m.gatewayReports(v1alpha1.ConnectionError)
		m.endpoints(web, "")
		m.gatewayReports(v1alpha1.ConnectionConnected)
		m.endpoints(web, "c2 10.9.0.4:8080")
	})

	m.run("a namespace that comes later", func(t *testing.T) {
		m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}}), imported("later", "web",
			map[string][]string{"c2": {"10.9.0.6"}}))
		m.peeringCondition("ImportsApplied", metav1.ConditionFalse, "NamespaceMissing", "later")
		m.namespace("later")
		m.endpoints(key("later", "web"), "c2 10.9.0.6:8080")
		m.peeringCondition("ImportsApplied", metav1.ConditionTrue, "Applied", "")
	})

	m.run("somebody else's ServiceImport", func(t *testing.T) {
		own := &mcs.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "own"}}
		own.Spec.Type, own.Spec.Ports = mcs.ClusterSetIP, []mcs.ServicePort{{Port: 1}}
		m.create(own)
		m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}}), imported("sample", "own",
			map[string][]string{"c2": {"10.9.0.6"}}))
		m.peeringCondition("ImportsApplied", metav1.ConditionFalse, "NameTaken", "sample/own")
		if err := m.Get(t.Context(), client.ObjectKeyFromObject(own), own); err != nil || own.Spec.Ports[0].Port != 1 {
			t.Errorf("the ServiceImport was touched: %v %v", own.Spec, err)
		}
	})

	m.run("the Peering or the Bundle is missing", func(t *testing.T) {
		m.delete(bundle(0))
		m.eventually("the Bundle gone", func(ctx context.Context) error {
			return expect("not found", apierrors.IsNotFound(m.Get(ctx, types.NamespacedName{Name: "sealane-0"}, bundle(0))),
				true)
		})
		slice := m.slices(t.Context(), web)[0]
		change(m, &slice, func(s *discoveryv1.EndpointSlice) { s.Annotations = map[string]string{"poke": "it"} })
		m.derived(web)
		b := bundle(0)
		b.Spec.Imports = []v1alpha1.Import{imported("sample", "web", map[string][]string{"c2": {"10.9.0.44"}})}
		m.create(b)
		m.endpoints(web, "c2 10.9.0.44:8080")
	})

	m.run("unexported", func(t *testing.T) {
		m.imports()
		m.gone(i)
		m.endpoints(web, "")
		_, s := i, s
		if err := m.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			t.Errorf("the Service should outlive its import: %v", err)
		}
		m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}}))
		if _, s := m.derived(web); s.Spec.ClusterIP != ip {
			t.Errorf("address %s, want %s", s.Spec.ClusterIP, ip)
		}
		m.imports()
		m.expired(web)
	})
}

// gatewayReports is the node agent of the one gateway.
func (m *member) gatewayReports(status v1alpha1.ConnectionStatus) {
	m.t.Helper()
	m.gatewayOn("node-a", status)
}

// gatewayOn is the node agent of the gateway on a node.
func (m *member) gatewayOn(node string, status v1alpha1.ConnectionStatus) {
	m.t.Helper()
	g := &v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: node}}
	m.eventually("report", func(ctx context.Context) error {
		if err := m.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
			return err
		}
		g.Status.HAState, g.Status.ReportedAt = v1alpha1.GatewayActive, ptr.To(metav1.Now())
		g.Status.Endpoint = &v1alpha1.Endpoint{Gateway: node, PublicKey: "k",
			Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPrivate, IP: "192.0.2.1"}}}
		g.Status.Connections = []v1alpha1.Connection{{Cluster: "c2", Gateway: "x", Link: "sl-c0", Status: status,
			Active: true}}
		return m.Status().Update(ctx, g)
	})
}
