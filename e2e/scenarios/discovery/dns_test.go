// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/e2e/suite"
)

// resolving is what names answer, asked by a pod of its cluster's own DNS.
func resolving() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"a ClusterSetIP":                                     namesOfAClusterSetIP,
		"a headless service":                                 namesOfAHeadlessService,
		"the version of the schema":                          nameOfTheVersion,
		"the pods of a StatefulSet":                          namesOfAStatefulSet,
		"pods that are not ready, if the Service wants them": namesOfPodsNotReady,
		"a thousand endpoints":                               namesOfAThousand,
	}
}

// row of a table of questions and answers. Names ending in a dot are whole, others are below web's.
type row struct {
	name, kind string
	rcode      string
	want       []string
}

func table(s suite.Namespace, cluster string, rows []row) {
	s.Helper()
	for _, r := range rows {
		name := s.DNSName(strings.Fields(r.name)...)
		if strings.HasSuffix(r.name, ".") {
			name = r.name
		}
		want := slices.Sorted(slices.Values(r.want))
		suite.Eventually(s.T, suite.Patience, func(ctx context.Context) error {
			got, err := suite.LookUp(ctx, cluster, name, r.kind)
			if err != nil {
				return err
			}
			if got.Rcode != r.rcode || !slices.Equal(got.Data(r.kind), want) {
				return fmt.Errorf("%s: %s %s: expected %s %v, found %+v", cluster, name, r.kind, r.rcode, want, got)
			}
			if soa := len(got.Data("SOA")); len(want) == 0 && soa != 1 {
				return fmt.Errorf("%s: %s %s: expected SOA with %s, found %+v", cluster, name, r.kind, r.rcode, got)
			}
			for _, record := range got.Records {
				if record.TTL != "5" {
					return fmt.Errorf("%s: %s %s: expected records for 5 s, found %+v", cluster, name, r.kind, record)
				}
			}
			return nil
		})
	}
}

func namesOfAClusterSetIP(t *testing.T) {
	s := suite.NewNamespace(t)
	udp := suite.Port("echo", 81)
	udp.Protocol = corev1.ProtocolUDP
	s.Serve("c2", suite.Ports(suite.Port("http", 80), udp))
	s.Serve("c3")
	s.Export("c2")
	s.Export("c3")
	for _, cluster := range []string{"c1", "c3"} {
		s.WaitImported(suite.ExportedBy("c2", "c3"), cluster)
		i := s.WaitImported(withAddress, cluster)
		const ok, no = "NOERROR", "NXDOMAIN"
		remote := s.ClusterIP("c2")
		table(s, cluster, []row{
			{"", "A", ok, i.Spec.IPs},
			{"", "AAAA", ok, nil},
			{"", "TXT", ok, nil},
			{"c2", "A", ok, []string{remote}},
			{"c3", "A", ok, []string{s.ClusterIP("c3")}},
			{"c2", "AAAA", ok, nil},
			{"c9", "A", no, nil},
			{"web-0 c2", "A", no, nil},
			{"_http _tcp", "SRV", ok, []string{"0 100 80 " + s.DNSName() + "."}},
			{"_echo _udp", "SRV", ok, []string{"0 100 81 " + s.DNSName() + "."}},
			{"_http _udp", "SRV", no, nil},
			{"_nope _tcp", "SRV", no, nil},
			{"_http _tcp c2", "SRV", ok, []string{"0 100 80 " + s.DNSName("c2") + "."}},
			{"_echo _udp c3", "SRV", no, nil},
			{"", "SRV", ok, []string{"0 100 80 " + s.DNSName() + ".", "0 100 81 " + s.DNSName() + "."}},
			{strings.ToUpper(s.DNSName()) + ".", "A", ok, i.Spec.IPs},
			{strings.ToUpper(s.DNSName("c2")) + ".", "A", ok, []string{remote}},
			{"nope." + s.Name + ".svc.clusterset.local.", "A", no, nil},
			{"web.nope.svc.clusterset.local.", "A", no, nil},
			{s.Name + ".svc.clusterset.local.", "A", ok, nil},
		})
	}
}

func namesOfAHeadlessService(t *testing.T) {
	s := suite.NewNamespace(t)
	web := suite.Service(suite.Headless)
	long := strings.Repeat("h", 63)
	first, second := s.Server("c2-gw"), s.Server("c2-worker")
	first.Hostname = &long
	s.Create("c2", web, suite.EndpointSlice(web, first, second))
	s.Serve("c3", suite.Headless)
	s.Export("c2")
	s.Export("c3")
	a, b, c := first.Addresses[0], second.Addresses[0], s.Server("c3-gw").Addresses[0]
	label := func(ip string) string { return strings.ReplaceAll(ip, ".", "-") }
	target := func(labels ...string) string { return "0 100 8080 " + s.DNSName(labels...) + "." }
	for _, cluster := range []string{"c1", "c2"} {
		i := s.WaitImported(suite.ExportedBy("c2", "c3"), cluster)
		if i.Spec.Type != mcs.Headless || len(i.Spec.IPs) != 0 || len(i.Spec.IPFamilies) != 1 {
			t.Errorf("%s: expected a headless import without address, of one family, found %+v", cluster, i.Spec)
		}
		const ok, no = "NOERROR", "NXDOMAIN"
		table(s, cluster, []row{
			{"", "A", ok, []string{a, b, c}},
			{"", "AAAA", ok, nil},
			{"c2", "A", ok, []string{a, b}},
			{"c3", "A", ok, []string{c}},
			{long + " c2", "A", ok, []string{a}},
			{long + " c3", "A", no, nil},
			{strings.ToUpper(s.DNSName(long, "c2")) + ".", "A", ok, []string{a}},
			{label(b) + " c2", "A", ok, []string{b}},
			{label(a) + " c2", "A", no, nil},
			{label(c) + " c3", "A", ok, []string{c}},
			{"_http _tcp", "SRV", ok, []string{target(long, "c2"), target(label(b), "c2"), target(label(c), "c3")}},
			{"_http _tcp c3", "SRV", ok, []string{target(label(c), "c3")}},
			{"", "SRV", ok, []string{target(long, "c2"), target(label(b), "c2"), target(label(c), "c3")}},
		})
	}
	suite.Update(s, "c2", &discoveryv1.EndpointSlice{ObjectMeta: suite.Named("web")},
		func(slice *discoveryv1.EndpointSlice) { slice.Endpoints = nil })
	suite.Update(s, "c3", &discoveryv1.EndpointSlice{ObjectMeta: suite.Named("web")},
		func(slice *discoveryv1.EndpointSlice) { slice.Endpoints = nil })
	suite.Resolves(t, "c1", s.DNSName(), "A")
	s.WaitImported(suite.ExportedBy("c2", "c3"), "c1")
}

func nameOfTheVersion(t *testing.T) {
	for _, cluster := range suite.Members() {
		suite.Resolves(t, cluster, "dns-version.clusterset.local", "TXT", `"1.0.0"`)
	}
}

// namesOfAStatefulSet is scenario 3 of the walkthrough.
func namesOfAStatefulSet(t *testing.T) {
	s := suite.NewNamespace(t, "c1", "c2")
	replicas := int32(3)
	s.Create("c2",
		suite.Service(suite.Headless, func(web *corev1.Service) { web.Spec.Selector = map[string]string{"app": "web"} }),
		suite.StatefulSet("web", replicas))
	s.Export("c2")
	s.WaitEndpoints("c1", map[string]int{"c2": 3})
	var all []string
	for n := range replicas {
		pod := &corev1.Pod{ObjectMeta: suite.Named(fmt.Sprintf("web-%d", n))}
		suite.WaitFor(s, "c2", pod, func(p *corev1.Pod) error { return nil })
		all = append(all, pod.Status.PodIP)
		suite.Resolves(t, "c1", s.DNSName(pod.Name, "c2"), "A", pod.Status.PodIP)
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			a, err := suite.Ask(ctx, "c1", suite.ClientOf("c1"), "http://"+s.DNSName(pod.Name, "c2")+":8080")
			if err == nil && a.Pod != pod.Name {
				err = fmt.Errorf("%s answered by %s", pod.Name, a.Pod)
			}
			return err
		})
	}
	suite.Resolves(t, "c1", s.DNSName(), "A", all...)
	suite.Resolves(t, "c1", s.DNSName("c2"), "A", all...)
}

func namesOfPodsNotReady(t *testing.T) {
	s := suite.NewNamespace(t, "c1", "c2")
	template := suite.WhereamiPods("web")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "never-ready", Labels: template.Labels}, Spec: template.Spec}
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(9)},
	}}
	s.Create("c2", pod, suite.Service(suite.Headless, func(web *corev1.Service) { web.Spec.Selector = template.Labels }))
	s.Export("c2")
	suite.WaitFor(s, "c2", pod, func(p *corev1.Pod) error {
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s", p.Status.Phase)
		}
		return nil
	})
	s.WaitImported(suite.ExportedBy("c2"), "c1")
	s.WaitEndpoints("c1", map[string]int{})
	suite.Resolves(t, "c1", s.DNSName(), "A")
	suite.Update(s, "c2", suite.Service(), func(web *corev1.Service) { web.Spec.PublishNotReadyAddresses = true })
	suite.Resolves(t, "c1", s.DNSName(), "A", pod.Status.PodIP)
}

// namesOfAThousand: made by hand in two clusters, whose nodes have room for 500 each.
func namesOfAThousand(t *testing.T) {
	s := suite.NewNamespace(t)
	for cluster, net := range map[string]string{"c1": "10.8", "c2": "10.9"} {
		web := suite.Service(suite.Headless)
		var many []discoveryv1.Endpoint
		for n := range 500 {
			many = append(many, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("%s.%d.%d", net, n/250, 4+n%250)}})
		}
		s.Create(cluster, web, suite.EndpointSlice(web, many...))
		s.Export(cluster)
	}
	s.WaitEndpoints("c3", map[string]int{"c1": 500, "c2": 500})
	list, err := s.Slices(t.Context(), "c3")
	if err != nil || len(list) != 10 {
		t.Errorf("expected 10 EndpointSlices, found %d, %v", len(list), err)
	}
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		udp, err := suite.LookUp(ctx, "c3", s.DNSName(), "A", "-size=1232")
		if err != nil {
			return err
		}
		tcp, err := suite.LookUp(ctx, "c3", s.DNSName(), "A", "-tcp")
		if err != nil {
			return err
		}
		if !udp.Truncated || len(udp.Data("A")) >= 1000 || tcp.Truncated || len(slices.Compact(tcp.Data("A"))) != 1000 {
			return fmt.Errorf("expected a truncated answer over UDP and 1,000 addresses over TCP, found %d (truncated: %t) "+
				"and %d (%t)",
				len(udp.Data("A")), udp.Truncated, len(tcp.Data("A")), tcp.Truncated)
		}
		return nil
	})
}
