// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/dnspath"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
)

// now of every test.
func now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// world is three clusters, c1 to c3, each with a worker c1-w and a gateway c1-gw. c1 imports cart by its ClusterSetIP,
// db headless and api in ClusterIP mode, which c2 and c3 export with a pod each on their workers.
func world() *Fleet {
	f := &Fleet{Now: now(), Plugin: "kubectl karmada sealane"}
	for n := 1; n <= 3; n++ {
		f.Members = append(f.Members, cluster(n))
	}
	c1 := &f.Members[0]
	c1.Bundles = []v1alpha1.Bundle{{Spec: v1alpha1.BundleSpec{Imports: []v1alpha1.Import{
		imported("cart", v1alpha1.ClusterSetIP, ""), imported("db", v1alpha1.Headless, ""),
		imported("api", v1alpha1.ClusterSetIP, v1alpha1.ServiceModeClusterIP)}}}}
	c1.ServiceImports = []mcsv1beta1.ServiceImport{serviceImport("cart", mcsv1beta1.ClusterSetIP, "10.101.0.10"),
		serviceImport("db", mcsv1beta1.Headless), serviceImport("api", mcsv1beta1.ClusterSetIP)}
	c1.Slices = []discoveryv1.EndpointSlice{slice("c2", "10.9.1.7"), slice("c3", "10.10.1.7")}
	for n := 2; n <= 3; n++ {
		m := &f.Members[n-1]
		m.Bundles = []v1alpha1.Bundle{{Status: v1alpha1.BundleStatus{ObservedRevision: 1, Exports: []v1alpha1.Export{
			exported("cart", v1alpha1.ClusterSetIP, part(n, "cart")), exported("db", v1alpha1.Headless, part(n, "db")),
			exported("api", v1alpha1.ClusterSetIP, part(n, "api"))}}}}
	}
	return f
}

func name(n int) string     { return fmt.Sprintf("c%d", n) }
func pods(n int) string     { return fmt.Sprintf("10.%d.0.0/16", 7+n) }
func services(n int) string { return fmt.Sprintf("10.%d.0.0/16", 100+n) }

// key of a cluster's gateway in a slot.
func key(n, slot int) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(16*n + slot + 1)}, 32))
}

func endpointIn(n, slot int) v1alpha1.Endpoint {
	gateway := fmt.Sprintf("c%d-gw", n)
	if slot > 0 {
		gateway += fmt.Sprint(slot)
	}
	return v1alpha1.Endpoint{Gateway: gateway, Slot: int32(slot), PublicKey: key(n, slot), MTU: 1420,
		Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPrivate, IP: fmt.Sprintf("172.31.%d.%d", n, 12+slot)}}}
}

func cluster(n int) Member {
	m := Member{Name: name(n), Kubectl: "kubectl --context " + name(n)}
	spec := v1alpha1.PeeringSpec{Phase: v1alpha1.MemberActive, ClusterSet: "default", ClusterID: name(n), Shards: 1,
		Cable:    v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
		DNS:      v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}},
		Networks: v1alpha1.Networks{PodCIDRs: []string{pods(n)}, ServiceCIDRs: []string{services(n)}}}
	g := v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: name(n) + "-gw"}}
	endpoint := endpointIn(n, 0)
	at := metav1.NewTime(now().Add(-time.Second))
	g.Status = v1alpha1.GatewayStatus{HAState: v1alpha1.GatewayActive, Endpoint: &endpoint, ReportedAt: &at}
	for o := 1; o <= 3; o++ {
		if o == n {
			continue
		}
		spec.RemoteClusters = append(spec.RemoteClusters, v1alpha1.RemoteCluster{Name: name(o),
			Networks:  v1alpha1.Networks{PodCIDRs: []string{pods(o)}, ServiceCIDRs: []string{services(o)}},
			Endpoints: []v1alpha1.Endpoint{endpointIn(o, 0)}})
		g.Status.Connections = append(g.Status.Connections, v1alpha1.Connection{Cluster: name(o),
			Gateway: name(o) + "-gw", Link: "sl-c0", Status: v1alpha1.ConnectionConnected, Active: true,
			Address: fmt.Sprintf("172.31.%d.12:4500", o), RTT: &v1alpha1.RTT{Avg: 1234}, Heard: ptr.To(true)})
	}
	m.Network = topology.Input{Peering: &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName},
		Spec: spec}, Gateways: []v1alpha1.Gateway{g}}
	for i, node := range []string{name(n) + "-w", name(n) + "-gw"} {
		m.Network.Nodes = append(m.Network.Nodes, nodeIn(node, fmt.Sprintf("172.31.%d.%d", n, 11+i),
			fmt.Sprintf("10.%d.%d.0/24", 7+n, 1+i)))
	}
	return m
}

func nodeIn(name, address string, pods ...string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: pods},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
}

// numbers of services, in their ClusterIPs.
func number(service string) int { return map[string]int{"cart": 10, "db": 20, "api": 30}[service] }

func settings(kind v1alpha1.ServiceType) v1alpha1.ServiceSettings {
	return v1alpha1.ServiceSettings{Type: kind,
		Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}}
}

// part of a cluster in a service: a pod on its worker.
func part(n int, service string) v1alpha1.ImportCluster {
	out := v1alpha1.ImportCluster{Cluster: name(n), Ports: []string{"http"}, Backends: []v1alpha1.Backends{{
		Ports:     []v1alpha1.BackendPort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 8080}},
		Addresses: []v1alpha1.Backend{{IP: fmt.Sprintf("10.%d.1.7", 7+n), Ready: true, Serving: true}}}}}
	if service == "db" {
		out.Backends[0].Addresses[0].Hostname = "db-0"
	} else {
		out.ClusterIPs = []string{fmt.Sprintf("10.%d.0.%d", 100+n, number(service))}
	}
	return out
}

func imported(service string, kind v1alpha1.ServiceType, mode v1alpha1.ServiceMode) v1alpha1.Import {
	return v1alpha1.Import{Namespace: "shop", Name: service, Settings: settings(kind), Mode: mode,
		Clusters: []v1alpha1.ImportCluster{part(2, service), part(3, service)}}
}

func exported(service string, kind v1alpha1.ServiceType, p v1alpha1.ImportCluster) v1alpha1.Export {
	return v1alpha1.Export{Namespace: "shop", Name: service, Settings: settings(kind), ClusterIPs: p.ClusterIPs,
		Backends: p.Backends}
}

func serviceImport(service string, kind mcsv1beta1.ServiceImportType, ips ...string) mcsv1beta1.ServiceImport {
	return mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: service, Labels: map[string]string{
			v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelImport: service}},
		Spec: mcsv1beta1.ServiceImportSpec{Type: kind, IPs: ips}}
}

// slice of cart in c1.
func slice(cluster string, addresses ...string) discoveryv1.EndpointSlice {
	out := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-" + cluster,
		Labels: map[string]string{mcsv1beta1.LabelServiceName: "cart", mcsv1beta1.LabelSourceCluster: cluster}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080))}}}
	for _, a := range addresses {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return out
}

// agent on a node, with what it says.
func agent(node string, condition corev1.PodConditionType, status corev1.ConditionStatus, message string) corev1.Pod {
	return corev1.Pod{Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: condition, Status: status, Reason: "ReasonOfAgent", Message: message}}}}
}

const corefile = "# BEGIN sealane\nclusterset.local:53 {\n    errors\n    forward . 10.101.0.53\n}\n" +
	"# END sealane\n.:53 {\n}\n"

// configMaps are those that c1 has.
type configMaps []*corev1.ConfigMap

func (o configMaps) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, cm := range o {
		if out, ok := into.(*corev1.ConfigMap); ok && client.ObjectKeyFromObject(cm) == key {
			cm.DeepCopyInto(out)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (o configMaps) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func foundCorefile(text string) *clusterdns.Found {
	found, err := clusterdns.Wiring{}.Find(context.Background(), configMaps{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns", ResourceVersion: "1"},
		Data:       map[string]string{"Corefile": text}}})
	if err != nil {
		panic(err)
	}
	return found
}

// named are the facts about a name in the first cluster.
func named(f *Fleet, text string) *dnspath.Facts {
	n, broken := dnspath.Parse(text, "shop", []string{"clusterset.local"})
	if broken != nil {
		panic(broken.Found)
	}
	m := &f.Members[0]
	facts := &dnspath.Facts{Cluster: m.Name, Kubectl: m.Kubectl, Plugin: f.Plugin, Now: f.Now, Name: n,
		Peering:    m.Network.Peering,
		Agent:      dnspath.Workload{Name: "sealane-system/sealane-cluster-agent", Ready: 1, Desired: 1},
		ClusterDNS: dnspath.ClusterDNS{Found: foundCorefile(corefile), Service: "kube-system/kube-dns", Ready: 2},
		DNS: dnspath.SealaneDNS{IP: netip.MustParseAddr("10.101.0.53"),
			Workload: dnspath.Workload{Name: "sealane-system/sealane-dns", Ready: 2, Desired: 2}},
		Namespaces: map[string]bool{"shop": true}, Gateways: m.Network.Gateways,
		Answers: dnspath.Answers{Unasked: "nobody is asked"},
	}
	for i := range f.Members {
		facts.Members = append(facts.Members, f.Members[i].Name)
		if e := f.Members[i].exported(n.Namespace, n.Service); e != nil {
			facts.Exports = append(facts.Exports, dnspath.Export{Cluster: f.Members[i].Name, Exported: true, Ready: 1})
		}
	}
	if len(m.Bundles) > 0 {
		facts.Bundle, facts.Wanted = &m.Bundles[0], &m.Bundles[0]
	}
	for i := range m.ServiceImports {
		if si := &m.ServiceImports[i]; si.Name == n.Service {
			facts.ServiceImport = si
			facts.Derived = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "sl-1"},
				Spec: corev1.ServiceSpec{ClusterIPs: si.Spec.IPs}}
		}
	}
	for _, s := range m.Slices {
		if s.Labels[mcsv1beta1.LabelServiceName] == n.Service {
			facts.Slices = append(facts.Slices, s)
		}
	}
	return facts
}
