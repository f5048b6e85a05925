// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/e2e/lab"
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

func (s site) table(cluster string, rows []row) {
	s.Helper()
	for _, r := range rows {
		name := s.name(strings.Fields(r.name)...)
		if strings.HasSuffix(r.name, ".") {
			name = r.name
		}
		want := slices.Sorted(slices.Values(r.want))
		eventually(s.T, patience, func(ctx context.Context) error {
			got, err := look(ctx, cluster, name, r.kind)
			if err != nil {
				return err
			}
			if got.rcode != r.rcode || !slices.Equal(got.data(r.kind), want) {
				return fmt.Errorf("%s: %s %s: expected %s %v, found %+v", cluster, name, r.kind, r.rcode, want, got)
			}
			if soa := len(got.data("SOA")); len(want) == 0 && soa != 1 {
				return fmt.Errorf("%s: %s %s: expected SOA with %s, found %+v", cluster, name, r.kind, r.rcode, got)
			}
			for _, record := range got.records {
				if record.ttl != "5" {
					return fmt.Errorf("%s: %s %s: expected records for 5 s, found %+v", cluster, name, r.kind, record)
				}
			}
			return nil
		})
	}
}

func namesOfAClusterSetIP(t *testing.T) {
	s := newSite(t)
	udp := port("echo", 81)
	udp.Protocol = corev1.ProtocolUDP
	s.serve("c2", ports(port("http", 80), udp))
	s.serve("c3")
	s.export("c2")
	s.export("c3")
	for _, cluster := range []string{"c1", "c3"} {
		s.imported(from("c2", "c3"), cluster)
		i := s.imported(withAddress, cluster)
		const ok, no = "NOERROR", "NXDOMAIN"
		remote := s.clusterIP("c2")
		s.table(cluster, []row{
			{"", "A", ok, i.Spec.IPs},
			{"", "AAAA", ok, nil},
			{"", "TXT", ok, nil},
			{"c2", "A", ok, []string{remote}},
			{"c3", "A", ok, []string{s.clusterIP("c3")}},
			{"c2", "AAAA", ok, nil},
			{"c9", "A", no, nil},
			{"web-0 c2", "A", no, nil},
			{"_http _tcp", "SRV", ok, []string{"0 100 80 " + s.name() + "."}},
			{"_echo _udp", "SRV", ok, []string{"0 100 81 " + s.name() + "."}},
			{"_http _udp", "SRV", no, nil},
			{"_nope _tcp", "SRV", no, nil},
			{"_http _tcp c2", "SRV", ok, []string{"0 100 80 " + s.name("c2") + "."}},
			{"_echo _udp c3", "SRV", no, nil},
			{"", "SRV", ok, []string{"0 100 80 " + s.name() + ".", "0 100 81 " + s.name() + "."}},
			{strings.ToUpper(s.name()) + ".", "A", ok, i.Spec.IPs},
			{strings.ToUpper(s.name("c2")) + ".", "A", ok, []string{remote}},
			{"nope." + s.namespace + ".svc.clusterset.local.", "A", no, nil},
			{"web.nope.svc.clusterset.local.", "A", no, nil},
			{s.namespace + ".svc.clusterset.local.", "A", ok, nil},
		})
	}
}

func (s site) clusterIP(cluster string) string {
	s.Helper()
	web := service()
	settled(s, cluster, web, func(*corev1.Service) error { return nil })
	return web.Spec.ClusterIP
}

func namesOfAHeadlessService(t *testing.T) {
	s := newSite(t)
	web := service(headless)
	long := strings.Repeat("h", 63)
	first, second := s.server("c2-gw"), s.server("c2-worker")
	first.Hostname = &long
	s.create("c2", web, endpoints(web, first, second))
	s.serve("c3", headless)
	s.export("c2")
	s.export("c3")
	a, b, c := first.Addresses[0], second.Addresses[0], s.server("c3-gw").Addresses[0]
	label := func(ip string) string { return strings.ReplaceAll(ip, ".", "-") }
	target := func(labels ...string) string { return "0 100 8080 " + s.name(labels...) + "." }
	for _, cluster := range []string{"c1", "c2"} {
		i := s.imported(from("c2", "c3"), cluster)
		if i.Spec.Type != mcs.Headless || len(i.Spec.IPs) != 0 || len(i.Spec.IPFamilies) != 1 {
			t.Errorf("%s: expected a headless import without address, of one family, found %+v", cluster, i.Spec)
		}
		const ok, no = "NOERROR", "NXDOMAIN"
		s.table(cluster, []row{
			{"", "A", ok, []string{a, b, c}},
			{"", "AAAA", ok, nil},
			{"c2", "A", ok, []string{a, b}},
			{"c3", "A", ok, []string{c}},
			{long + " c2", "A", ok, []string{a}},
			{long + " c3", "A", no, nil},
			{strings.ToUpper(s.name(long, "c2")) + ".", "A", ok, []string{a}},
			{label(b) + " c2", "A", ok, []string{b}},
			{label(a) + " c2", "A", no, nil},
			{label(c) + " c3", "A", ok, []string{c}},
			{"_http _tcp", "SRV", ok, []string{target(long, "c2"), target(label(b), "c2"), target(label(c), "c3")}},
			{"_http _tcp c3", "SRV", ok, []string{target(label(c), "c3")}},
			{"", "SRV", ok, []string{target(long, "c2"), target(label(b), "c2"), target(label(c), "c3")}},
		})
	}
	change(s, "c2", &discoveryv1.EndpointSlice{ObjectMeta: named("web")}, func(slice *discoveryv1.EndpointSlice) { slice.Endpoints = nil })
	change(s, "c3", &discoveryv1.EndpointSlice{ObjectMeta: named("web")}, func(slice *discoveryv1.EndpointSlice) { slice.Endpoints = nil })
	resolves(t, "c1", s.name(), "A")
	s.imported(from("c2", "c3"), "c1")
}

func nameOfTheVersion(t *testing.T) {
	for _, cluster := range members() {
		resolves(t, cluster, "dns-version.clusterset.local", "TXT", `"1.0.0"`)
	}
}

// whereamiPods is the template of a workload's pods.
func whereamiPods(app string) corev1.PodTemplateSpec {
	grace := int64(0)
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{
			Name: "whereami", Image: lab.ImageWhereami, ImagePullPolicy: corev1.PullNever,
			Env: []corev1.EnvVar{field("POD_NAME", "metadata.name"), field("NODE_NAME", "spec.nodeName")},
		}}},
	}
}

// namesOfAStatefulSet is scenario 3 of the walkthrough.
func namesOfAStatefulSet(t *testing.T) {
	s := newSite(t, "c1", "c2")
	replicas := int32(3)
	s.create("c2",
		service(headless, func(web *corev1.Service) { web.Spec.Selector = map[string]string{"app": "web"} }),
		statefulSet("web", replicas))
	s.export("c2")
	s.sources("c1", map[string]int{"c2": 3})
	var all []string
	for n := range replicas {
		pod := &corev1.Pod{ObjectMeta: named(fmt.Sprintf("web-%d", n))}
		settled(s, "c2", pod, func(p *corev1.Pod) error { return nil })
		all = append(all, pod.Status.PodIP)
		resolves(t, "c1", s.name(pod.Name, "c2"), "A", pod.Status.PodIP)
		eventually(t, patience, func(ctx context.Context) error {
			a, err := get(ctx, "c1", clientOf("c1"), "http://"+s.name(pod.Name, "c2")+":8080")
			if err == nil && a.Pod != pod.Name {
				err = fmt.Errorf("%s answered by %s", pod.Name, a.Pod)
			}
			return err
		})
	}
	resolves(t, "c1", s.name(), "A", all...)
	resolves(t, "c1", s.name("c2"), "A", all...)
}

func namesOfPodsNotReady(t *testing.T) {
	s := newSite(t, "c1", "c2")
	template := whereamiPods("web")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "never-ready", Labels: template.Labels}, Spec: template.Spec}
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(9)}}}
	s.create("c2", pod, service(headless, func(web *corev1.Service) { web.Spec.Selector = template.Labels }))
	s.export("c2")
	settled(s, "c2", pod, func(p *corev1.Pod) error {
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s", p.Status.Phase)
		}
		return nil
	})
	s.imported(from("c2"), "c1")
	s.sources("c1", map[string]int{})
	resolves(t, "c1", s.name(), "A")
	change(s, "c2", service(), func(web *corev1.Service) { web.Spec.PublishNotReadyAddresses = true })
	resolves(t, "c1", s.name(), "A", pod.Status.PodIP)
}

// namesOfAThousand: made by hand in two clusters, whose nodes have room for 500 each.
func namesOfAThousand(t *testing.T) {
	s := newSite(t)
	for cluster, net := range map[string]string{"c1": "10.8", "c2": "10.9"} {
		web := service(headless)
		var many []discoveryv1.Endpoint
		for n := range 500 {
			many = append(many, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("%s.%d.%d", net, n/250, 4+n%250)}})
		}
		s.create(cluster, web, endpoints(web, many...))
		s.export(cluster)
	}
	s.sources("c3", map[string]int{"c1": 500, "c2": 500})
	list, err := s.slices(t.Context(), "c3")
	if err != nil || len(list) != 10 {
		t.Errorf("expected 10 EndpointSlices, found %d, %v", len(list), err)
	}
	eventually(t, patience, func(ctx context.Context) error {
		udp, err := look(ctx, "c3", s.name(), "A", "-size=1232")
		if err != nil {
			return err
		}
		tcp, err := look(ctx, "c3", s.name(), "A", "-tcp")
		if err != nil {
			return err
		}
		if !udp.truncated || len(udp.data("A")) >= 1000 || tcp.truncated || len(slices.Compact(tcp.data("A"))) != 1000 {
			return fmt.Errorf("expected a truncated answer over UDP and 1,000 addresses over TCP, found %d (truncated: %t) and %d (%t)",
				len(udp.data("A")), udp.truncated, len(tcp.data("A")), tcp.truncated)
		}
		return nil
	})
}

func statefulSet(name string, replicas int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: named(name), Spec: appsv1.StatefulSetSpec{
		ServiceName: name, Replicas: &replicas, PodManagementPolicy: appsv1.ParallelPodManagement,
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		Template: whereamiPods(name),
	}}
}
