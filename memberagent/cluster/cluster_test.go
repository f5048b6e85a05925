// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	sealane "github.com/sealane-io/sealane"
	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/apiserver"
	"github.com/sealane-io/sealane/memberagent/cluster/mcscrds"
)

// member is a real API server with, or without, an agent at work.
type member struct {
	client.Client
	t      *testing.T
	config *rest.Config
	// metrics is the address at which the agent serves them; none if empty.
	metrics string
	stop    func()
}

// newMember starts an API server with a node, Sealane's namespace and its DNS Service, beside those of other tests:
// most of the time they wait.
func newMember(t *testing.T) *member {
	t.Helper()
	t.Parallel()
	crds, err := apiserver.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	m := &member{t: t, config: apiserver.Start(t, crds)}
	scheme, err := baseScheme()
	if err != nil {
		t.Fatal(err)
	}
	mcscrds.AddToScheme(scheme, mcscrds.V1Beta1)
	m.Client = m.admin(scheme)
	m.namespace(v1alpha1.Namespace)
	m.node("node-a", "10.8.0.0/24", "192.0.2.1")
	m.permissions()
	dns := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "sealane-dns"}}
	dns.Spec.Ports = []corev1.ServicePort{{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}}
	m.create(dns)
	return m
}

// admin is a client that may do anything.
func (m *member) admin(scheme *runtime.Scheme) client.Client {
	m.t.Helper()
	config := rest.CopyConfig(m.config)
	config.Impersonate = rest.ImpersonationConfig{}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

// permissions are those that the agent is installed with, and no more.
func (m *member) permissions() {
	m.t.Helper()
	for _, file := range []string{"cluster-agent.yaml", "admission.yaml", "metrics-reader.yaml"} {
		text, err := sealane.Artifacts.ReadFile("artifacts/deploy/" + file)
		if err != nil {
			m.t.Fatal(err)
		}
		for _, document := range strings.Split(string(text), "\n---\n") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), o); err != nil {
				m.t.Fatal(err)
			}
			if g := o.GroupVersionKind().Group; g == rbacv1.GroupName || g == admissionregistrationv1.GroupName {
				m.create(o)
			}
		}
	}
	m.config = rest.CopyConfig(m.config)
	m.config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + v1alpha1.Namespace + ":sealane-cluster-agent",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
}

// strict fails the test for writes of fields that the API server does not know. Without a setting of its own, a client
// has it drop these with a warning.
type strict struct{ t *testing.T }

func (s strict) HandleWarningHeader(_ int, _, text string) {
	if strings.Contains(text, "unknown field") {
		s.t.Errorf("the API server warns of a write: %s", text)
	}
}

// start an agent that ends with the test.
func (m *member) start(config *rest.Config) {
	m.t.Helper()
	config = rest.CopyConfig(config)
	config.WarningHandler = strict{m.t}
	ctx, cancel := context.WithCancel(log.IntoContext(context.Background(), testr.NewWithOptions(m.t, testr.Options{})))
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, config, Options{
			Version: "test", LeaderElection: true, Metrics: cmp.Or(m.metrics, "0"), Health: "0",
			Registry: prometheus.NewRegistry(),
			DNS:      types.NamespacedName{Namespace: v1alpha1.Namespace, Name: "sealane-dns"},
		})
	}()
	m.stop = func() {
		cancel()
		if err := <-done; err != nil {
			m.t.Errorf("the agent ended with %v", err)
		}
		done <- nil
	}
	m.t.Cleanup(m.stop)
}

// run a part of a test.
func (m *member) run(name string, part func(t *testing.T)) {
	m.t.Helper()
	m.t.Run(name, func(t *testing.T) {
		whole := m.t
		m.t = t
		defer func() { m.t = whole }()
		part(t)
	})
}

// create an object, as soon as its kind is served: that of the MCS API the agent adds while it starts.
func (m *member) create(o client.Object) {
	m.t.Helper()
	var err error
	m.within(time.Minute, fmt.Sprintf("the kind of %s is served", o.GetName()), func(ctx context.Context) error {
		if err = m.Create(ctx, o); meta.IsNoMatchError(err) {
			return err
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) namespace(name string) {
	m.t.Helper()
	m.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

func (m *member) node(name, podCIDR, address string) {
	m.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: podCIDR,
		PodCIDRs: []string{podCIDR}}}
	m.create(n)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	if err := m.Status().Update(m.t.Context(), n); err != nil {
		m.t.Fatal(err)
	}
}

// peering as the broker writes it, with as many Bundles as shards.
func (m *member) peering(shards int32) *v1alpha1.Peering {
	m.t.Helper()
	yes := true
	p := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName}, Spec: v1alpha1.PeeringSpec{
		Revision: 1, Phase: v1alpha1.MemberActive, ClusterSet: "set", ClusterID: "c1", Shards: shards,
		Cable:          v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
		DNS:            v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}, ClusterNames: &yes},
		HealthCheck:    v1alpha1.HealthCheckSpec{IntervalMilliseconds: 250, FailureThreshold: 4},
		RemoteClusters: []v1alpha1.RemoteCluster{{Name: "c2", Endpoints: []v1alpha1.Endpoint{}}},
		Conditions:     []metav1.Condition{},
	}}
	m.create(p)
	for i := range shards {
		m.create(bundle(i))
	}
	return p
}

func bundle(shard int32) *v1alpha1.Bundle {
	return &v1alpha1.Bundle{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BundleName(shard)},
		Spec: v1alpha1.BundleSpec{Revision: 1, Shard: shard, Imports: []v1alpha1.Import{},
			ExportConditions: []v1alpha1.ExportCondition{}},
	}
}

// eventually polls until check returns nil, and fails the test after half a minute.
func (m *member) eventually(what string, check func(ctx context.Context) error) time.Duration {
	m.t.Helper()
	return m.within(30*time.Second, what, check)
}

// within polls until check returns nil, and fails the test after a time.
func (m *member) within(patience time.Duration, what string, check func(ctx context.Context) error) time.Duration {
	m.t.Helper()
	start := time.Now()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return time.Since(start)
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			m.t.Fatalf("%s: %v", what, last)
		case <-tick.C:
		}
	}
}

// change an object until the API server takes it.
func change[T client.Object](m *member, o T, mutate func(T)) {
	m.t.Helper()
	m.eventually("change "+o.GetName(), func(ctx context.Context) error {
		if err := m.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		mutate(o)
		return m.Update(ctx, o)
	})
}

// service with one port, "http", and its slice.
func (m *member) service(namespace, name string, ips ...string) *discoveryv1.EndpointSlice {
	m.t.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
	m.create(s)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-x",
			Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   endpointsOf(ips...),
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP),
			Port: ptr.To(int32(8080))}},
	}
	m.create(slice)
	return slice
}

func endpointsOf(ips ...string) []discoveryv1.Endpoint {
	out := []discoveryv1.Endpoint{}
	for _, ip := range ips {
		out = append(out, discoveryv1.Endpoint{Addresses: []string{ip},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}, NodeName: ptr.To("node-a")})
	}
	return out
}

// expect is an error unless the two are the same text.
func contains(text, part string) error {
	if !strings.Contains(text, part) {
		return fmt.Errorf("%q is not in %q", part, text)
	}
	return nil
}

func expect(what string, got, want any) error {
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		return fmt.Errorf("%s: got %s, want %s", what, g, w)
	}
	return nil
}
