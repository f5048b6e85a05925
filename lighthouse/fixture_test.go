// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// clusterIP returns an import of a ClusterSetIP service with a port http, exported by clusters with
// these ClusterIPs.
func clusterIP(name string, clusters ...v1alpha1.ImportCluster) v1alpha1.Import {
	return v1alpha1.Import{
		Namespace: "sample", Name: name,
		Settings: v1alpha1.ServiceSettings{
			Type:  v1alpha1.ClusterSetIP,
			Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
		Clusters: clusters,
	}
}

// headless returns an import of a headless service with a port http.
func headless(name string, clusters ...v1alpha1.ImportCluster) v1alpha1.Import {
	i := clusterIP(name, clusters...)
	i.Settings.Type = v1alpha1.Headless
	return i
}

// exporter returns a cluster that exports a service under ClusterIPs.
func exporter(cluster string, ips ...string) v1alpha1.ImportCluster {
	return v1alpha1.ImportCluster{Cluster: cluster, Ports: []string{"http"}, ClusterIPs: ips}
}

// withBackends returns a cluster that exports a headless service with these backends.
func withBackends(cluster string, backends ...v1alpha1.Backend) v1alpha1.ImportCluster {
	return v1alpha1.ImportCluster{Cluster: cluster, Ports: []string{"http"}, Backends: group(backends...)}
}

// group returns backends that listen on port 8080 for http.
func group(backends ...v1alpha1.Backend) []v1alpha1.Backends {
	return []v1alpha1.Backends{{
		Ports:     []v1alpha1.BackendPort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 8080}},
		Addresses: backends,
	}}
}

// ready returns a ready backend; the hostname may be empty.
func ready(ip, hostname string) v1alpha1.Backend {
	return v1alpha1.Backend{IP: ip, Hostname: hostname, Ready: true, Serving: true}
}

// ownLabels are those of a ServiceImport that Sealane wrote.
func ownLabels(name string) map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelImport: name}
}

// made takes over a Bundle, each import of which has a ServiceImport, and returns how many entries were rejected.
func made(x *index, b *v1alpha1.Bundle) (rejected int) {
	for i := range b.Spec.Imports {
		i := &b.Spec.Imports[i]
		if _, ok := x.serviceImports[i.Name+"."+i.Namespace]; !ok {
			x.setServiceImport(&serviceImport{name: i.Name, namespace: i.Namespace,
				headless: i.Settings.Type == v1alpha1.Headless})
		}
	}
	return x.setBundle(b)
}

func bundle(name string, imports ...v1alpha1.Import) *v1alpha1.Bundle {
	return &v1alpha1.Bundle{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.BundleSpec{Imports: imports},
	}
}

func peering(self string, dns v1alpha1.DNSSpec) *v1alpha1.Peering {
	return &v1alpha1.Peering{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName},
		Spec:       v1alpha1.PeeringSpec{ClusterID: self, DNS: dns},
	}
}

// gateway returns an active gateway that reports these states now.
func gateway(name string, states map[string]v1alpha1.ConnectionStatus) *v1alpha1.Gateway {
	g := &v1alpha1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: v1alpha1.GatewayStatus{
			HAState:    v1alpha1.GatewayActive,
			ReportedAt: ptr.To(metav1.Now()),
		},
	}
	for cluster, status := range states {
		g.Status.Connections = append(g.Status.Connections, v1alpha1.Connection{Cluster: cluster, Status: status})
	}
	return g
}

const nameServerName = "ns.dns.clusterset.local."

// serve returns the plugin with the current Snapshot of an index.
func serve(t testing.TB, x *index) *Lighthouse {
	t.Helper()
	m, err := newMeasures(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	l := &Lighthouse{measures: m}
	s, _ := x.snapshot(time.Now(), true)
	l.current.Store(s)
	return l
}
