// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/apiserver"
)

// deadline of everything that these tests wait for.
const deadline = 20 * time.Second

// member is a cluster as the plugin sees it: a real API server, and the plugin with the rights that the
// manifests give it.
type member struct {
	t      *testing.T
	client client.Client
	dns    *Lighthouse
}

func startMember(t *testing.T) *member {
	t.Helper()
	config := apiserver.Start(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, rbacv1.AddToScheme, apiextensionsv1.AddToScheme,
		v1alpha1.AddToScheme, mcsv1alpha1.Install, mcsv1beta1.Install,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	m := &member{t: t, client: c}
	m.grant()
	m.dns = m.start(config)
	return m
}

// grant creates the roles that the manifests give the plugin.
func (m *member) grant() {
	m.t.Helper()
	f, err := os.Open("../artifacts/deploy/dns.yaml")
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	m.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace}})
	decoder := utilyaml.NewYAMLOrJSONDecoder(f, 4096)
	for granted := 0; granted < 4; {
		var raw runtime.RawExtension
		if err := decoder.Decode(&raw); err != nil {
			m.t.Fatalf("the manifest has no two roles and bindings: %v", err)
		}
		var kind metav1.TypeMeta
		m.unmarshal(raw.Raw, &kind)
		switch kind.Kind {
		case "ClusterRole":
			role := &rbacv1.ClusterRole{}
			m.unmarshal(raw.Raw, role)
			m.create(role)
			granted++
		case "ClusterRoleBinding":
			binding := &rbacv1.ClusterRoleBinding{}
			m.unmarshal(raw.Raw, binding)
			m.create(binding)
			granted++
		case "Role":
			role := &rbacv1.Role{}
			m.unmarshal(raw.Raw, role)
			m.create(role)
			granted++
		case "RoleBinding":
			binding := &rbacv1.RoleBinding{}
			m.unmarshal(raw.Raw, binding)
			m.create(binding)
			granted++
		}
	}
}

// start runs the plugin's watcher until the test ends.
func (m *member) start(config *rest.Config) *Lighthouse {
	m.t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + v1alpha1.Namespace + ":sealane-dns",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	measures, err := newMeasures(prometheus.NewRegistry())
	if err != nil {
		m.t.Fatal(err)
	}
	x := newIndex(nil)
	l := &Lighthouse{measures: measures}
	l.current.Store(x.current)
	service := types.NamespacedName{Namespace: v1alpha1.Namespace, Name: "sealane-dns"}
	w, err := newWatcher(config, service, x, measures, clog.NewWithPlugin(Name), l.current.Store)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(m.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.run(ctx)
	}()
	m.t.Cleanup(func() {
		stop()
		<-done
	})
	return l
}

func (m *member) unmarshal(raw []byte, into any) {
	m.t.Helper()
	if err := yaml.Unmarshal(raw, into); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) create(obj client.Object) {
	m.t.Helper()
	if err := m.client.Create(m.t.Context(), obj); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) remove(obj client.Object) {
	m.t.Helper()
	if err := m.client.Delete(m.t.Context(), obj); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) update(obj client.Object) {
	m.t.Helper()
	if err := m.client.Update(m.t.Context(), obj); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) updateStatus(obj client.Object) {
	m.t.Helper()
	if err := m.client.Status().Update(m.t.Context(), obj); err != nil {
		m.t.Fatal(err)
	}
}

// install creates the CRDs in a directory. Of the MCS API, only v1alpha1 is served when the cluster is to
// be an old one.
func (m *member) install(find func() (string, error), change func(*apiextensionsv1.CustomResourceDefinition)) {
	m.t.Helper()
	dir, err := find()
	if err != nil {
		m.t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		m.t.Fatalf("no CRDs in %s: %v", dir, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			m.t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		m.unmarshal(raw, crd)
		change(crd)
		m.create(crd)
		m.until("CRD "+crd.Name+" is served", func() bool {
			if err := m.client.Get(m.t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
				m.t.Fatal(err)
			}
			for _, c := range crd.Status.Conditions {
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					return true
				}
			}
			return false
		})
	}
}

func asItIs(*apiextensionsv1.CustomResourceDefinition) {}

// onlyAlpha turns every version but v1alpha1 off.
func onlyAlpha(crd *apiextensionsv1.CustomResourceDefinition) {
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		v.Served, v.Storage = v.Name == "v1alpha1", v.Name == "v1alpha1"
	}
}

// until waits for a condition.
func (m *member) until(what string, condition func() bool) {
	m.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(deadline)
	for !condition() {
		select {
		case <-tick.C:
		case <-timeout:
			m.t.Fatalf("waited %v until %s", deadline, what)
		}
	}
}

// answers waits until a name has these addresses.
func (m *member) answers(name, want string) {
	m.t.Helper()
	start := time.Now()
	var got string
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for got = addressesOf(ask(m.t, m.dns, name, dns.TypeA)); got != want; got = addressesOf(ask(m.t, m.dns, name,
		dns.TypeA)) {
		if time.Since(start) > deadline {
			m.t.Fatalf("%s is %q after %v, want %q", name, got, deadline, want)
		}
		<-tick.C
	}
	m.t.Logf("%s is %q after %v", name, want, time.Since(start))
}

func TestFollowsTheAPIServer(t *testing.T) {
	m := startMember(t)
	if m.dns.Ready() {
		t.Error("ready without any CRD")
	}
	m.install(apiserver.CRDs, asItIs)
	if m.dns.Ready() {
		t.Error("ready without ServiceImports")
	}
	m.install(apiserver.MCSCRDs, asItIs)
	m.until("the plugin is ready", m.dns.Ready)

	m.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "sample"}})
	b := wireBundle(clusterIP("cs", exporter("c2", "10.99.0.7")),
		headless("ss", withBackends("c2", ready("10.9.1.4", "ss-0"))))
	m.create(b)
	m.create(&mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Name: "ss", Namespace: "sample", Labels: ownLabels("ss")},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.Headless, Ports: []mcsv1beta1.ServicePort{}},
	})
	m.answers("ss-0.c2.ss.sample.svc.clusterset.local.", "10.9.1.4")
	if got := ask(t, m.dns, "c2.cs.sample.svc.clusterset.local.", dns.TypeA); got.Rcode != dns.RcodeNameError {
		t.Errorf("without its ServiceImport: %v", got)
	}

	imp := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Name: "cs", Namespace: "sample", Labels: ownLabels("cs")},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP, IPs: []string{"10.88.1.1"}, Ports: []mcsv1beta1.ServicePort{{Port: 80}},
		},
	}
	m.create(imp)
	m.answers("cs.sample.svc.clusterset.local.", "10.88.1.1")
	m.answers("c2.cs.sample.svc.clusterset.local.", "10.99.0.7")

	gw := gateway("n1", map[string]v1alpha1.ConnectionStatus{"c2": v1alpha1.ConnectionError})
	status := gw.Status
	m.create(gw)
	gw.Status = status
	m.updateStatus(gw)
	m.answers("c2.cs.sample.svc.clusterset.local.", "")
	m.answers("cs.sample.svc.clusterset.local.", "10.88.1.1")
	gw.Status.Connections[0].Status = v1alpha1.ConnectionConnected
	m.updateStatus(gw)
	m.answers("c2.cs.sample.svc.clusterset.local.", "10.99.0.7")

	m.balances(b)

	if got := ask(t, m.dns, nameServerName, dns.TypeA); got.Rcode != dns.RcodeSuccess || len(got.Answer) > 0 {
		t.Errorf("without the Service of the name server: %v", got)
	}
	server := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "sealane-dns"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}}},
	}
	m.create(server)
	m.answers(nameServerName, server.Spec.ClusterIP)
	m.remove(server)
	m.answers(nameServerName, "")

	m.create(wirePeering("c1", "mesh.example.org"))
	m.until("the new domain is answered", func() bool {
		return parseName("cs.sample.svc.mesh.example.org.", m.dns.current.Load().zones).kind == nameService
	})
	m.answers("cs.sample.svc.mesh.example.org.", "10.88.1.1")

	m.remove(b)
	if got := addressesOf(ask(t, m.dns, "c2.cs.sample.svc.mesh.example.org.", dns.TypeA)); got != "10.99.0.7" {
		t.Errorf("after the Bundle is deleted: %q, want what it said", got)
	}
	m.remove(imp)
	m.until("the unexported service is gone", func() bool {
		return ask(t, m.dns, "cs.sample.svc.mesh.example.org.", dns.TypeA).Rcode == dns.RcodeNameError
	})
}

// balances follows a service whose mode becomes ClusterIP, as the broker writes it.
func (m *member) balances(b *v1alpha1.Bundle) {
	m.t.Helper()
	b.Spec.Imports[0].Mode = v1alpha1.ServiceModeClusterIP
	b.Spec.Imports[0].Clusters[0].Backends = group(ready("10.99.0.7", ""))
	m.update(b)
	m.answers("cs.sample.svc.clusterset.local.", "10.99.0.7")
	b.Spec.Imports[0].Clusters[0].Backends = []v1alpha1.Backends{}
	m.update(b)
	m.answers("cs.sample.svc.clusterset.local.", "")
	b.Spec.Imports[0].Mode = v1alpha1.ServiceModeClusterSetIP
	m.update(b)
	m.answers("cs.sample.svc.clusterset.local.", "10.88.1.1")
}

// A cluster may serve only the older version of the MCS API.
func TestReadsServiceImportsOfV1alpha1(t *testing.T) {
	m := startMember(t)
	m.install(apiserver.CRDs, asItIs)
	m.install(apiserver.MCSCRDs, onlyAlpha)
	m.until("the plugin is ready", m.dns.Ready)
	m.create(&mcsv1alpha1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Name: "cs", Namespace: "default", Labels: ownLabels("cs")},
		Spec: mcsv1alpha1.ServiceImportSpec{
			Type: mcsv1alpha1.ClusterSetIP, IPs: []string{"10.88.1.1"}, Ports: []mcsv1alpha1.ServicePort{{Port: 80}},
		},
	})
	m.answers("cs.default.svc.clusterset.local.", "10.88.1.1")
}

// wireBundle returns a Bundle with every field that the API server requires.
func wireBundle(imports ...v1alpha1.Import) *v1alpha1.Bundle {
	b := bundle("sealane-0", imports...)
	b.Spec.Revision = 1
	b.Spec.ExportConditions = []v1alpha1.ExportCondition{}
	if b.Spec.Imports == nil {
		b.Spec.Imports = []v1alpha1.Import{}
	}
	for i := range b.Spec.Imports {
		imp := &b.Spec.Imports[i]
		imp.Settings.SessionAffinity = corev1.ServiceAffinityNone
		imp.Settings.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
		for j := range imp.Clusters {
			c := &imp.Clusters[j]
			c.CreatedAt = metav1.Now()
			if c.ClusterIPs == nil {
				c.ClusterIPs = []string{}
			}
			if c.Backends == nil {
				c.Backends = []v1alpha1.Backends{}
			}
		}
	}
	return b
}

// wirePeering returns a Peering with every field that the API server requires.
func wirePeering(self string, domains ...string) *v1alpha1.Peering {
	p := peering(self, v1alpha1.DNSSpec{Domains: domains, ClusterNames: ptr.To(true)})
	p.Spec.Phase = v1alpha1.MemberActive
	p.Spec.Shards = 1
	p.Spec.Cable = v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800}
	p.Spec.HealthCheck = v1alpha1.HealthCheckSpec{IntervalMilliseconds: 250, FailureThreshold: 4}
	p.Spec.RemoteClusters = []v1alpha1.RemoteCluster{}
	p.Spec.Conditions = []metav1.Condition{}
	return p
}
