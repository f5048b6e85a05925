// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// reports waits for a report of the Peering that the check accepts.
func (m *member) reports(what string, check func(s *v1alpha1.PeeringStatus) error) {
	m.t.Helper()
	took := m.eventually(what, func(ctx context.Context) error {
		p := &v1alpha1.Peering{}
		if err := m.Get(ctx, types.NamespacedName{Name: v1alpha1.PeeringName}, p); err != nil {
			return err
		}
		return errors.Join(expect("revision", p.Status.ObservedRevision, p.Spec.Revision), check(&p.Status))
	})
	m.t.Logf("%s after %s", what, took)
}

// connections has a text for each: the cluster, the status and its reason.
func connections(s *v1alpha1.PeeringStatus) []string {
	out := make([]string, len(s.Connections))
	for i, c := range s.Connections {
		out[i] = fmt.Sprintf("%s %s %s", c.Cluster, c.Status, c.Reason)
	}
	return out
}

func (m *member) corefile(ctx context.Context) string {
	c := &corev1.ConfigMap{}
	if err := m.Get(ctx, types.NamespacedName{Namespace: "kube-system", Name: "coredns"}, c); err != nil {
		return err.Error()
	}
	return c.Data["Corefile"]
}

const corefile = ".:53 {\n    kubernetes cluster.local\n    reload\n}\n"

func TestPeering(t *testing.T) {
	m := newMember(t)
	coredns := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"},
		Data: map[string]string{"Corefile": corefile}}
	m.create(coredns)
	m.start(m.config)
	p := m.peering(1)

	m.reports("the networks", func(s *v1alpha1.PeeringStatus) error {
		return errors.Join(expect("pods", s.Networks.PodCIDRs, "[10.8.0.0/24]"), expect("services", s.Networks.ServiceCIDRs,
			"[10.96.0.0/16]"),
			expect("nodes", s.NodeCIDRs, "[192.0.2.1/32]"), expect("version", s.AgentVersion, "test"),
			expect("connections", connections(s), "[c2 Unknown NotReported]"))
	})
	m.gatewayReports(v1alpha1.ConnectionConnected)
	m.reports("the endpoint", func(s *v1alpha1.PeeringStatus) error {
		return errors.Join(expect("endpoints", len(s.Endpoints), 1),
			expect("connections", connections(s), "[c2 Connected ]"))
	})
	m.peeringCondition("MCSAPI", metav1.ConditionTrue, "Served", "v1beta1")

	m.run("an override", func(*testing.T) {
		change(m, p, func(p *v1alpha1.Peering) {
			p.Spec.Revision, p.Spec.Override = 2, v1alpha1.Networks{PodCIDRs: []string{"10.8.0.0/16"}}
		})
		m.reports("the override", func(s *v1alpha1.PeeringStatus) error {
			return errors.Join(expect("pods", s.Networks.PodCIDRs, "[10.8.0.0/16]"), expect("services", s.Networks.ServiceCIDRs,
				"[10.96.0.0/16]"))
		})
	})

	m.run("a Peering that comes back without status", func(*testing.T) {
		m.delete(p.DeepCopy())
		again := p.DeepCopy()
		again.ObjectMeta, again.Status = metav1.ObjectMeta{Name: p.Name}, v1alpha1.PeeringStatus{}
		m.create(again)
		m.reports("all of it", func(s *v1alpha1.PeeringStatus) error {
			return errors.Join(expect("endpoints", len(s.Endpoints), 1), expect("pods", s.Networks.PodCIDRs, "[10.8.0.0/16]"))
		})
	})

	m.run("labelled gateways", func(*testing.T) {
		m.gatewayReports(v1alpha1.ConnectionConnected)
		m.node("node-b", "10.8.1.0/24", "192.0.2.2")
		b := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}}
		m.eventually("a node that is ready", func(ctx context.Context) error {
			if err := m.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
				return err
			}
			b.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			return m.Status().Update(ctx, b)
		})
		change(m, b, func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, v1alpha1.LabelGateway, "true") })
		m.gateways("node-a=0 node-b=1") // until the new one is connected
		m.gatewayOn("node-b", v1alpha1.ConnectionConnected)
		m.gateways("node-b=1")
		change(m, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}},
			func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, v1alpha1.LabelGateway, "true") })
		m.gateways("node-a=0 node-b=1")
		m.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}})
		m.gateways("node-a=0")
	})

	m.run("the Corefile", func(t *testing.T) {
		dns := &corev1.Service{}
		if err := m.Get(t.Context(), types.NamespacedName{Namespace: v1alpha1.Namespace, Name: "sealane-dns"},
			dns); err != nil {
			t.Fatal(err)
		}
		block := fmt.Sprintf("# BEGIN sealane\nclusterset.local:53 {\n    errors\n    forward . %s\n}\n# END sealane\n",
			dns.Spec.ClusterIP)
		m.eventually("the block", func(ctx context.Context) error {
			return expect("Corefile", m.corefile(ctx),
				block+corefile)
		})
		m.peeringCondition("DNSConfigured", metav1.ConditionTrue, "Configured", "")

		change(m, coredns, func(c *corev1.ConfigMap) { c.Data["Corefile"] = "# BEGIN sealane\n" + corefile })
		m.peeringCondition("DNSConfigured", metav1.ConditionFalse, "MarkersBroken", "remove every line")
		if err := expect("Corefile", m.corefile(m.t.Context()), "# BEGIN sealane\n"+corefile); err != nil {
			t.Error(err)
		}
		change(m, coredns, func(c *corev1.ConfigMap) { c.Data["Corefile"] = corefile })
		m.eventually("the block again", func(ctx context.Context) error {
			return expect("Corefile", m.corefile(ctx),
				block+corefile)
		})
		m.delete(coredns.DeepCopy())
		m.peeringCondition("DNSConfigured", metav1.ConditionFalse, "NoCorefile", "")
		coredns.ResourceVersion, coredns.UID, coredns.Data = "", "", map[string]string{"Corefile": corefile}
		m.create(coredns)
		m.eventually("the block in the new ConfigMap", func(ctx context.Context) error {
			return expect("Corefile",
				m.corefile(ctx), block+corefile)
		})
	})

	m.run("a domain that the cluster's DNS serves", func(t *testing.T) {
		stubs := corefile + "corp.example:53 {\n    forward . 10.0.0.1\n}\n"
		change(m, coredns, func(c *corev1.ConfigMap) { c.Data["Corefile"] = stubs })
		for _, domain := range []string{"svc.cluster.local", "mesh.corp.example", "example"} {
			change(m, p, func(p *v1alpha1.Peering) { p.Spec.DNS.Domains = []string{"clusterset.local", domain} })
			m.peeringCondition("DNSConfigured", metav1.ConditionFalse, "DomainTaken", domain)
			if got := m.corefile(t.Context()); strings.Contains(got, " "+domain+":53") {
				t.Errorf("%s is in the Corefile:\n%s", domain, got)
			}
		}
		taken := "# BEGIN sealane\ncluster.local:53 {\n    forward . 10.96.0.7\n}\n# END sealane\n"
		change(m, coredns, func(c *corev1.ConfigMap) { c.Data["Corefile"] = taken + stubs })
		m.eventually("the cluster's own names back", func(ctx context.Context) error {
			return expect("Corefile",
				m.corefile(ctx), stubs)
		})
		change(m, p, func(p *v1alpha1.Peering) { p.Spec.DNS.Domains = []string{"clusterset.local"} })
		change(m, coredns, func(c *corev1.ConfigMap) { c.Data["Corefile"] = corefile })
		m.peeringCondition("DNSConfigured", metav1.ConditionTrue, "Configured", "")
	})

	m.run("leaving", func(*testing.T) { testLeave(m) })
}

// gateways waits until these are all, as "<node>=<slot> …".
func (m *member) gateways(want string) {
	m.t.Helper()
	m.eventually("gateways "+want, func(ctx context.Context) error {
		list := &v1alpha1.GatewayList{}
		if err := m.List(ctx, list); err != nil {
			return err
		}
		var got []string
		for _, g := range list.Items {
			got = append(got, fmt.Sprintf("%s=%d", g.Name, g.Spec.Slot))
		}
		return expect("gateways", strings.Join(got, " "), want)
	})
}

// testLeave: everything goes, but the Gateways wait for the nodes.
func testLeave(m *member) {
	m.namespace("sample")
	m.service("sample", "db", "10.8.0.9")
	m.export("sample", "db")
	m.condition("sample", "db", "Valid", metav1.ConditionTrue, "Valid")
	m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}}))
	_, derived := m.derived(key("sample", "web"))
	pod := m.nodeAgent()
	change(m, &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName}}, func(p *v1alpha1.Peering) {
		p.Spec.Revision++
		p.Spec.Phase = v1alpha1.MemberLeaving
	})
	m.gone(derived)
	m.gone(&mcs.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "web"}})
	m.endpoints(key("sample", "web"), "")
	m.eventually("the Corefile as it was", func(ctx context.Context) error {
		return expect("Corefile", m.corefile(ctx),
			corefile)
	})
	m.peeringCondition("Cleaned", metav1.ConditionFalse, "Cleaning", "pod "+pod.Name)
	m.gateways("node-a=0")
	m.nodesTold("node-a 192.0.2.1 10.8.0.0/24;")
	m.exports("")
	m.eventually("no condition of ours", func(ctx context.Context) error {
		e := &mcs.ServiceExport{}
		if err := m.Get(ctx, key("sample", "db"), e); err != nil {
			return err
		}
		return expect("conditions", len(e.Status.Conditions), 0)
	})
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: v1alpha1.PodNodeProgrammed, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonNodeCleaned,
	}}
	if err := m.Status().Update(m.t.Context(), pod); err != nil {
		m.t.Fatal(err)
	}
	m.gateways("")
	m.nodesTold("")
	m.reports("cleaned", func(s *v1alpha1.PeeringStatus) error {
		return errors.Join(expect("cleaned", s.Cleaned, true), expect("condition", meta.IsStatusConditionTrue(s.Conditions,
			"Cleaned"), true))
	})
}

// nodeAgent is the DaemonSet and its one pod, without a kubelet.
func (m *member) nodeAgent() *corev1.Pod {
	m.t.Helper()
	labels := map[string]string{"app": "sealane-node"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	template.Spec.Containers = []corev1.Container{{Name: "agent", Image: "x"}}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "sealane-node"}}
	set.Spec.Selector, set.Spec.Template = &metav1.LabelSelector{MatchLabels: labels}, template
	m.create(set)
	set.Status.DesiredNumberScheduled = 1
	if err := m.Status().Update(m.t.Context(), set); err != nil {
		m.t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "sealane-node-1",
		Labels: labels}}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: set.Name, UID: set.UID}}
	pod.Spec = template.Spec
	m.create(pod)
	return pod
}

// TestAPairByIPsecWithoutItsContainer is told of by GatewaysReady, from when the pair is to be reached so.
func TestAPairByIPsecWithoutItsContainer(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	p := m.peering(1)
	m.gatewayReports(v1alpha1.ConnectionConnected)
	pod := m.nodeAgent()
	to := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node-a"}}
	if err := m.SubResource("binding").Create(t.Context(), pod, to); err != nil {
		t.Fatal(err)
	}
	if err := m.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "node"}}
	if err := m.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	// There is no kubelet that would find the node ready: the one thing that is wrong is said beside the other.
	m.peeringCondition(v1alpha1.PeeringGatewaysReady, metav1.ConditionFalse, v1alpha1.ReasonGatewaysNotReady, "node-a")
	change(m, p, func(p *v1alpha1.Peering) {
		p.Spec.Revision = 2
		p.Spec.RemoteClusters[0].Cable = v1alpha1.CableIPsec
	})
	m.peeringCondition(v1alpha1.PeeringGatewaysReady, metav1.ConditionFalse, v1alpha1.ReasonGatewaysNotReady,
		"c2 are to be reached by ipsec")
}

// held delays the lists of one resource until it is released.
type held struct {
	next     http.RoundTripper
	resource string
	release  <-chan struct{}
	asked    *atomic.Bool
}

func (h held) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/"+h.resource) && r.Method == http.MethodGet {
		h.asked.Store(true)
		select {
		case <-h.release:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return h.next.RoundTrip(r)
}

func TestNoReportBeforeEveryCacheIsSynced(t *testing.T) {
	m := newMember(t)
	release, asked := make(chan struct{}), &atomic.Bool{}
	letGo := sync.OnceFunc(func() { close(release) })
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	m.service("sample", "web", "10.8.0.5")
	m.export("sample", "web")
	m.exports("sample/web 10.8.0.5;")
	m.stop()

	config := rest.CopyConfig(m.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return held{next, "endpointslices", release, asked} })
	m.start(config)
	t.Cleanup(letGo)
	m.eventually("the list that waits", func(context.Context) error { return expect("asked", asked.Load(), true) })
	change(m, bundle(0), func(b *v1alpha1.Bundle) { b.Spec.Revision = 7 })
	before := m.bundleVersion()
	deadline := time.After(500 * time.Millisecond)
	<-deadline
	if after := m.bundleVersion(); after != before {
		t.Errorf("the Bundle was written with half a cache: %s, was %s", after, before)
	}
	letGo()
	m.exports("sample/web 10.8.0.5;")
}

func (m *member) bundleVersion() string {
	m.t.Helper()
	b := bundle(0)
	if err := m.Get(m.t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
		m.t.Fatal(err)
	}
	return b.ResourceVersion
}
