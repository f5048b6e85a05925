// SPDX-License-Identifier: Apache-2.0

package dnspath

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
)

var update = flag.Bool("update", false, "rewrite the golden file")

const corefileOfC1 = "# BEGIN sealane\nclusterset.local:53 {\n    errors\n    forward . 10.88.0.53\n}\n" +
	"# END sealane\n.:53 {\n}\n"

// healthy is everything about cart.shop from c1, which c2 and c3 export with two pods each.
// objects are what a cluster has.
type objects []*corev1.ConfigMap

func (o objects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, cm := range o {
		if out, ok := into.(*corev1.ConfigMap); ok && client.ObjectKeyFromObject(cm) == key {
			cm.DeepCopyInto(out)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (o objects) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func foundIn(o ...*corev1.ConfigMap) *clusterdns.Found {
	found, err := clusterdns.Wiring{}.Find(context.Background(), objects(o))
	if err != nil {
		panic(err)
	}
	return found
}

func configMap(name, corefile string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, ResourceVersion: "1"},
		Data:       map[string]string{"Corefile": corefile},
	}
}

func (f *Facts) hasCorefile(text string) { f.ClusterDNS.Found = foundIn(configMap("coredns", text)) }

func healthy(text string) *Facts {
	name, broken := Parse(text, "shop", []string{"clusterset.local"})
	if broken != nil {
		panic(broken.Found)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := metav1.NewTime(now)
	f := &Facts{
		Cluster: "c1", Kubectl: "kubectl --context c1", Plugin: "kubectl karmada sealane", Now: now, Name: name,
		Peering: &v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{ClusterSet: "default", Phase: v1alpha1.MemberActive,
			DNS: v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}}}},
		Agent:      Workload{Name: "sealane-system/sealane-cluster-agent", Ready: 1, Desired: 1},
		ClusterDNS: ClusterDNS{Found: foundIn(configMap("coredns", corefileOfC1)), Service: "kube-system/kube-dns", Ready: 2},
		DNS: SealaneDNS{IP: netip.MustParseAddr("10.88.0.53"),
			Workload: Workload{Name: "sealane-system/sealane-dns", Ready: 2, Desired: 2}},
		Exports:    []Export{{Cluster: "c2", Exported: true, Ready: 2}, {Cluster: "c3", Exported: true, Ready: 2}},
		Members:    []string{"c1", "c2", "c3"},
		Namespaces: map[string]bool{"shop": true},
		Gateways: []v1alpha1.Gateway{{
			ObjectMeta: metav1.ObjectMeta{Name: "c1-gw"},
			Status: v1alpha1.GatewayStatus{ReportedAt: &at, Connections: []v1alpha1.Connection{
				{Cluster: "c2", Status: v1alpha1.ConnectionConnected}, {Cluster: "c3", Status: v1alpha1.ConnectionConnected}}},
		}},
		ServiceImport: &mcsv1beta1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelImport: "cart",
			}},
			Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, IPs: []string{"10.88.1.1"}},
		},
		Derived: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "sl-0123456789"},
			Spec: corev1.ServiceSpec{ClusterIP: "10.88.1.1", ClusterIPs: []string{"10.88.1.1"}}},
		Slices:  []discoveryv1.EndpointSlice{slice("c2", "10.9.0.1", "10.9.0.2"), slice("c3", "10.10.0.1", "10.10.0.2")},
		Answers: Answers{Rcode: "NOERROR", Records: []string{"10.88.1.1"}},
		Direct:  Answers{Rcode: "NOERROR", Records: []string{"10.88.1.1"}},
	}
	f.Bundle = &v1alpha1.Bundle{Spec: v1alpha1.BundleSpec{Imports: []v1alpha1.Import{{
		Namespace: "shop", Name: "cart",
		Settings: v1alpha1.ServiceSettings{Type: v1alpha1.ClusterSetIP,
			Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}},
		Clusters: []v1alpha1.ImportCluster{
			{Cluster: "c2", ClusterIPs: []string{"10.99.1.1"}, Ports: []string{"http"}, Backends: pods("10.9.0.1", "10.9.0.2")},
			{Cluster: "c3", ClusterIPs: []string{"10.100.1.1"}, Ports: []string{"http"},
				Backends: pods("10.10.0.1", "10.10.0.2")},
		},
	}}}}
	f.Wanted = f.Bundle.DeepCopy()
	return f
}

func pods(ips ...string) []v1alpha1.Backends {
	g := v1alpha1.Backends{Ports: []v1alpha1.BackendPort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 8080}}}
	for i, ip := range ips {
		g.Addresses = append(g.Addresses, v1alpha1.Backend{IP: ip, Ready: true, Hostname: fmt.Sprintf("cart-%d", i)})
	}
	return []v1alpha1.Backends{g}
}

func slice(cluster string, ips ...string) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Labels: map[string]string{mcsv1beta1.LabelSourceCluster: cluster}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, ip := range ips {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	return s
}

const cart = "cart.shop.svc.clusterset.local"

func (f *Facts) imports() *v1alpha1.Import { return &f.Bundle.Spec.Imports[0] }

func headlessCart(f *Facts) {
	f.imports().Settings.Type = v1alpha1.Headless
	f.ServiceImport.Spec = mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.Headless}
	f.Wanted, f.Derived = f.Bundle.DeepCopy(), nil
	f.answer4("10.9.0.1", "10.9.0.2", "10.10.0.1", "10.10.0.2")
}

func clusterIPCart(f *Facts) {
	f.imports().Mode = v1alpha1.ServiceModeClusterIP
	f.ServiceImport.Spec.IPs = nil
	f.Wanted, f.Derived = f.Bundle.DeepCopy(), nil
	f.answer4("10.99.1.1")
}

func (f *Facts) answer4(records ...string) {
	f.Answers = Answers{Rcode: "NOERROR", Records: records}
	f.Direct = f.Answers
}

func (f *Facts) nobodyHome(cluster string) {
	for i := range f.imports().Clusters {
		if c := &f.imports().Clusters[i]; c.Cluster == cluster {
			c.Backends = nil
		}
	}
	f.Wanted = f.Bundle.DeepCopy()
}

func (f *Facts) down(clusters ...string) {
	for i := range f.Gateways[0].Status.Connections {
		c := &f.Gateways[0].Status.Connections[i]
		for _, cluster := range clusters {
			if c.Cluster == cluster {
				c.Status, c.Message = v1alpha1.ConnectionError, "no probe was answered for 1s"
			}
		}
	}
}

func (f *Facts) unexported() {
	f.Exports, f.Bundle.Spec.Imports = nil, nil
	f.Wanted = f.Bundle.DeepCopy()
}

// cases, each of which breaks or changes one thing, in the order of the path.
func cases() []struct {
	title, name string
	change      func(*Facts)
} {
	type step = struct {
		title, name string
		change      func(*Facts)
	}
	nothing := func(*Facts) {}
	host := "cart-0.c2." + cart
	return []step{
		{"healthy", cart, nothing},
		{"the version", "dns-version", func(f *Facts) { f.answer4(`"1.0.0"`) }},
		{"of one cluster", "c2." + cart, func(f *Facts) { f.answer4("10.99.1.1") }},
		{"headless", cart, headlessCart},
		{"a host", host, func(f *Facts) { headlessCart(f); f.answer4("10.9.0.1") }},
		{"a port", "_http._tcp." + cart, func(f *Facts) { f.answer4(cart + ":80") }},
		{"ClusterIP mode", cart, clusterIPCart},
		{"local", cart, func(f *Facts) {
			f.Bundle.Status.Exports = []v1alpha1.Export{{Namespace: "shop", Name: "cart", Backends: pods("10.8.0.1")}}
			f.imports().Clusters = append(f.imports().Clusters, v1alpha1.ImportCluster{Cluster: "c1", Ports: []string{"http"}})
			f.Slices, f.Wanted = []discoveryv1.EndpointSlice{slice("c1", "10.8.0.1")}, f.Bundle.DeepCopy()
		}},

		{"the local part", "c1." + cart, func(f *Facts) {
			f.Bundle.Status.Exports = []v1alpha1.Export{{Namespace: "shop", Name: "cart", ClusterIPs: []string{"10.88.2.2"},
				Backends: pods("10.8.0.1")}}
			f.imports().Clusters = append(f.imports().Clusters, v1alpha1.ImportCluster{Cluster: "c1"})
			f.Exports, f.Wanted = append(f.Exports, Export{Cluster: "c1", Exported: true, Ready: 1}), f.Bundle
			f.answer4("10.88.2.2")
		}},
		{"through a relay", cart, func(f *Facts) { f.Gateways[0].Status.Connections[0].Through = "c9" }},

		{"no member", cart, func(f *Facts) { f.Peering = nil }},
		{"leaving", cart, func(f *Facts) { f.Peering.Spec.Phase = v1alpha1.MemberLeaving }},
		{"refused", cart, func(f *Facts) {
			f.Peering.Spec.Conditions = []metav1.Condition{{Type: v1alpha1.MemberAccepted, Status: metav1.ConditionFalse,
				Reason: v1alpha1.ReasonCIDROverlap, Message: "overlaps c2"}}
		}},
		{"not reported", cart, func(f *Facts) {
			f.Peering.Spec.Conditions = []metav1.Condition{{Type: v1alpha1.MemberAccepted, Status: metav1.ConditionFalse,
				Reason: v1alpha1.ReasonWaitingForFacts, Message: "the agent has not reported yet"}}
		}},
		{"another domain", cart, func(f *Facts) { f.Peering.Spec.DNS.Domains = []string{"super.example"} }},
		{"no block", cart, func(f *Facts) { f.hasCorefile(".:53 {\n}\n") }},
		{"no block and no agent", cart, func(f *Facts) {
			f.hasCorefile(".:53 {\n}\n")
			f.Agent.Ready = 0
		}},
		{"another address in the block", cart, func(f *Facts) {
			f.DNS.IP = netip.MustParseAddr("10.88.0.54")
			f.Peering.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PeeringDNSConfigured, Status: metav1.ConditionFalse,
				Message: "the Corefile is about to be changed"}}
		}},
		{"marks broken", cart, func(f *Facts) { f.hasCorefile("# BEGIN sealane\n.:53 {\n}\n") }},
		{"domain taken", cart, func(f *Facts) { f.hasCorefile("clusterset.local:53 {\n}\n") }},
		{"no Corefile", cart, func(f *Facts) { f.ClusterDNS.Found = foundIn() }},
		{"no Service of Sealane's DNS", cart, func(f *Facts) { f.DNS.IP = netip.Addr{} }},
		{"forwarded by hand", cart,
			func(f *Facts) { f.hasCorefile("clusterset.local:53 {\n    forward . 10.88.0.53\n}\n.:53 {\n}\n") }},
		{"an imported file", cart, func(f *Facts) {
			file := configMap("coredns-custom", "")
			file.Data = map[string]string{"sealane.server": "# BEGIN sealane\nclusterset.local:53 {\n    errors\n" +
				"    forward . 10.88.0.53\n}\n# END sealane\n"}
			f.ClusterDNS.Found = foundIn(configMap("coredns", ".:53 {\n}\nimport custom/*.server\n"), file)
		}},
		{"put back", cart, func(f *Facts) {
			f.hasCorefile(".:53 {\n}\n")
			f.Peering.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PeeringDNSConfigured, Status: metav1.ConditionFalse,
				Reason: v1alpha1.ReasonDNSPutBack, Message: "it was put back by Argo CD"}}
		}},
		{"NodeLocal DNSCache forwards by hand", cart, func(f *Facts) {
			f.ClusterDNS.Found = foundIn(configMap("coredns", corefileOfC1),
				configMap("node-local-dns", "clusterset.local:53 {\n}\n.:53 {\n}\n"))
		}},
		{"NodeLocal DNSCache does not forward", cart, func(f *Facts) {
			f.ClusterDNS.Found = foundIn(configMap("coredns", corefileOfC1), configMap("node-local-dns", ".:53 {\n}\n"))
		}},
		{"no pod of the cluster's DNS", cart, func(f *Facts) { f.ClusterDNS.Ready = 0 }},
		{"another name of the cluster's DNS", cart, func(f *Facts) { f.ClusterDNS.Service = "" }},
		{"no pod of Sealane's DNS", cart, func(f *Facts) { f.DNS.Ready = 0 }},
		{"Sealane's DNS scaled to 0", cart, func(f *Facts) { f.DNS.Ready, f.DNS.Desired = 0, 0 }},
		{"no Deployment of Sealane's DNS", cart, func(f *Facts) { f.DNS.Workload = Workload{} }},
		{"half of Sealane's DNS", cart, func(f *Facts) { f.DNS.Ready = 1 }},

		{"not exported", cart, func(f *Facts) { f.unexported(); f.Similar = []string{"cart.market", "till.shop"} }},
		{"export pending", cart, func(f *Facts) {
			f.unexported()
			f.Exports = []Export{{Cluster: "c2", Message: "NoService: there is no Service cart", Ready: -1}}
		}},
		{"one of two exported", cart,
			func(f *Facts) { f.Exports[1] = Export{Cluster: "c3", Message: "BundleFull: no room", Ready: 2} }},
		{"no such cluster", "c9." + cart, nothing},
		{"a cluster that does not export", "c1." + cart, nothing},
		{"not at the broker's", cart, func(f *Facts) { f.Bundle.Spec.Imports = nil; f.Wanted = f.Bundle }},
		{"out of scope", cart, func(f *Facts) {
			f.Bundle.Spec.Imports = nil
			f.Wanted, f.Importers, f.Exports[0].Scope = f.Bundle, "c3", `labels "env=prod"`
		}},
		{"not brought by Karmada", cart, func(f *Facts) { f.Bundle.Spec.Imports = nil }},
		{"no Bundle", cart, func(f *Facts) { f.Bundle, f.Wanted = nil, nil }},
		{"an older Bundle", cart, func(f *Facts) { f.Wanted.Spec.Imports[0].Clusters = nil }},
		{"one cluster's export out of scope", "c2." + cart,
			func(f *Facts) { f.imports().Clusters = f.imports().Clusters[1:]; f.Wanted = f.Bundle }},
		{"no names of clusters", "c2." + cart, func(f *Facts) { no := false; f.Peering.Spec.DNS.ClusterNames = &no }},
		{"a host of a service that is not headless", host, nothing},
		{"no such port", "_https._tcp." + cart, nothing},

		{"no namespace", cart, func(f *Facts) { f.Namespaces, f.ServiceImport = nil, nil }},
		{"namespace terminating", cart, func(f *Facts) { f.Namespaces["shop"] = false }},
		{"no namespace for a headless service", cart,
			func(f *Facts) { headlessCart(f); f.Namespaces, f.ServiceImport = nil, nil }},
		{"no ServiceImport", cart, func(f *Facts) { f.ServiceImport = nil }},
		{"no ServiceImport for a name of a cluster", "c2." + cart, func(f *Facts) { f.ServiceImport = nil }},
		{"no ServiceImport for a headless service", cart, func(f *Facts) { headlessCart(f); f.ServiceImport = nil }},
		{"a namespace that is new", cart, func(f *Facts) { f.ServiceImport, f.imports().Withheld = nil, true }},
		{"somebody else's ServiceImport", cart, func(f *Facts) { f.ServiceImport.Labels = nil }},
		{"ServiceImport not ready", cart, func(f *Facts) {
			f.ServiceImport.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse,
				Reason: "IPFamilyNotSupported", Message: "the exporters have IPv6"}}
		}},
		{"ServiceImport without an address", cart, func(f *Facts) { f.ServiceImport.Spec.IPs = nil }},
		{"no derived Service", cart, func(f *Facts) { f.Derived = nil }},
		{"a derived Service with another address", cart,
			func(f *Facts) { f.Derived.Spec.ClusterIPs = []string{"10.88.1.2"} }},

		{"one tunnel down", cart, func(f *Facts) { f.down("c3"); f.Slices = f.Slices[:1] }},
		{"a node that is not programmed", cart, func(f *Facts) {
			f.Peering.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PeeringNodesProgrammed,
				Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonProgrammingFailed,
				Message: "c1-worker: add route: permission denied"}}
		}},
		{"all tunnels down", cart, func(f *Facts) { f.down("c2", "c3") }},
		{"the tunnel to the cluster of the name down", "c2." + cart, func(f *Facts) { f.down("c2") }},
		{"gateways that say nothing", cart, func(f *Facts) { f.Gateways = nil }},
		{"no backends", cart, func(f *Facts) { f.nobodyHome("c2"); f.nobodyHome("c3"); f.Slices = nil }},
		{"no backends in the one cluster of the name", "c2." + cart, func(f *Facts) { f.nobodyHome("c2") }},
		{"backends behind a tunnel that is down", cart, func(f *Facts) { f.nobodyHome("c2"); f.down("c3") }},
		{"no slices", cart, func(f *Facts) { f.Slices = nil }},
		{"no slices, a policy", cart, func(f *Facts) {
			f.Slices, f.imports().Choice = nil, &v1alpha1.ClusterChoice{Weights: []v1alpha1.ClusterWeight{{Cluster: "c2"}}}
			f.Wanted = f.Bundle
		}},
		{"no such host", "cart-7.c2." + cart, headlessCart},
		{"no host at all", host, func(f *Facts) { headlessCart(f); f.nobodyHome("c2") }},

		{"NXDOMAIN", cart, func(f *Facts) { f.Answers = Answers{Rcode: "NXDOMAIN"} }},
		{"NXDOMAIN from both", cart, func(f *Facts) { f.Answers = Answers{Rcode: "NXDOMAIN"}; f.Direct = f.Answers }},
		{"another address answered", cart, func(f *Facts) { f.answer4("10.88.9.9") }},
		{"no answer", cart, func(f *Facts) { f.Answers = Answers{Err: "ask pod kube-system/coredns-1: i/o timeout"} }},
		{"not asked", cart, func(f *Facts) { f.Answers = Answers{Unasked: "pods/portforward is forbidden"} }},
		{"no record", cart, func(f *Facts) { f.answer4() }},
		{"ClusterIP mode, a foreign address", cart, func(f *Facts) { clusterIPCart(f); f.answer4("10.99.9.9") }},
		{"headless, one short", cart, func(f *Facts) { headlessCart(f); f.answer4("10.9.0.1") }},
	}
}

// works is how many of the cases are names that work; of the others, the golden file has what is to be read.
const works = 10

func holding(steps []Step) (n int) {
	for _, s := range steps {
		if s.Verdict == OK {
			n++
		}
	}
	return n
}

func TestFollow(t *testing.T) {
	var out bytes.Buffer
	for i, c := range cases() {
		f := healthy(c.name)
		c.change(f)
		steps := Follow(f)
		for at, s := range steps {
			if complete := s.Expected != "" && s.Found != "" && s.Remedy != ""; s.Verdict == Broken &&
				(!complete || at != len(steps)-1) {
				t.Errorf("%s: step %s is incomplete, or not the last", c.title, s.Name)
			}
		}
		fmt.Fprintf(&out, "== %s\n", c.title)
		if n := holding(steps); i >= works {
			fmt.Fprintf(&out, "%d steps hold\n", n)
			steps = slices.DeleteFunc(steps, func(s Step) bool { return s.Verdict == OK })
		}
		Print(&out, steps, nil)
	}
	const file = "testdata/follow.golden"
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}
