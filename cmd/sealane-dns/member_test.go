// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// member writes the objects of a member into the API server.
type member struct {
	t      *testing.T
	client client.Client
}

func newMember(t *testing.T) *member {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme, mcsv1beta1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(server, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	m := &member{t: t, client: c}
	// It stays: nothing here would finish its deletion.
	err = c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "sample"}})
	if client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	return m
}

// create creates objects until the test ends.
func (m *member) create(objs ...client.Object) {
	m.t.Helper()
	for _, obj := range objs {
		if err := m.client.Create(m.t.Context(), obj); err != nil {
			m.t.Fatal(err)
		}
		m.t.Cleanup(func() {
			if err := m.client.Delete(context.WithoutCancel(m.t.Context()), obj); err != nil {
				m.t.Error(err)
			}
		})
	}
}

func (m *member) update(obj client.Object) {
	m.t.Helper()
	if err := m.client.Update(m.t.Context(), obj); err != nil {
		m.t.Fatal(err)
	}
}

// report creates or updates a Gateway that reports these states.
func (m *member) report(g *v1alpha1.Gateway, states map[string]v1alpha1.ConnectionStatus) {
	m.t.Helper()
	if g.ResourceVersion == "" {
		m.create(g)
	}
	g.Status = v1alpha1.GatewayStatus{HAState: v1alpha1.GatewayActive, ReportedAt: ptr.To(metav1.Now())}
	for cluster, status := range states {
		g.Status.Connections = append(g.Status.Connections, v1alpha1.Connection{Cluster: cluster, Status: status})
	}
	if err := m.client.Status().Update(m.t.Context(), g); err != nil {
		m.t.Fatal(err)
	}
}

// peering returns c1's Peering with these domains.
func peering(domains ...string) *v1alpha1.Peering {
	return &v1alpha1.Peering{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName},
		Spec: v1alpha1.PeeringSpec{
			ClusterID: "c1", DNS: v1alpha1.DNSSpec{Domains: domains}, Phase: v1alpha1.MemberActive, Shards: 1,
			Cable:          v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
			HealthCheck:    v1alpha1.HealthCheckSpec{IntervalMilliseconds: 250, FailureThreshold: 4},
			RemoteClusters: []v1alpha1.RemoteCluster{}, Conditions: []metav1.Condition{},
		},
	}
}

// bundle returns a shard's Bundle.
func bundle(shard int32, imports ...v1alpha1.Import) *v1alpha1.Bundle {
	return &v1alpha1.Bundle{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BundleName(shard)},
		Spec: v1alpha1.BundleSpec{Revision: 1, Shard: shard, Imports: imports,
			ExportConditions: []v1alpha1.ExportCondition{}},
	}
}

// imported returns an import with a port http.
func imported(name string, kind v1alpha1.ServiceType, clusters ...v1alpha1.ImportCluster) v1alpha1.Import {
	return v1alpha1.Import{
		Namespace: "sample", Name: name, Clusters: clusters,
		Settings: v1alpha1.ServiceSettings{
			Type: kind, SessionAffinity: corev1.ServiceAffinityNone, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

// exporter returns a cluster's part of an import: ClusterIPs, separated by spaces, and backends.
func exporter(cluster, ips string, backends ...v1alpha1.Backend) v1alpha1.ImportCluster {
	c := v1alpha1.ImportCluster{
		Cluster: cluster, CreatedAt: metav1.Now(), Ports: []string{"http"}, ClusterIPs: strings.Fields(ips),
		Backends: []v1alpha1.Backends{},
	}
	if c.ClusterIPs == nil {
		c.ClusterIPs = []string{}
	}
	if len(backends) > 0 {
		c.Backends = append(c.Backends, v1alpha1.Backends{
			Ports:     []v1alpha1.BackendPort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 8080}},
			Addresses: backends,
		})
	}
	return c
}

func ready(ip, hostname string) v1alpha1.Backend {
	return v1alpha1.Backend{IP: ip, Hostname: hostname, Ready: true, Serving: true}
}

// pods returns ready backends from 10.9.0.1 on, each with a hostname.
func pods(hostname string, n int) (out []v1alpha1.Backend) {
	for i := range n {
		out = append(out, ready(fmt.Sprintf("10.9.%d.%d", i/250, 1+i%250), fmt.Sprintf("%s-%d", hostname, i)))
	}
	return out
}

// headlessImports returns the ServiceImports of headless services.
func headlessImports(names ...string) (out []client.Object) {
	for _, name := range names {
		s := serviceImport(name, "")
		s.Spec.Type = mcsv1beta1.Headless
		out = append(out, s)
	}
	return out
}

// serviceImport returns the ServiceImport of a ClusterSetIP service with these addresses, separated by spaces.
func serviceImport(name, ips string) *mcsv1beta1.ServiceImport {
	return &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "sample", Labels: map[string]string{
			v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelImport: name,
		}},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP, IPs: strings.Fields(ips), Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 80}},
		},
	}
}
