// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

var web = types.NamespacedName{Namespace: "sample", Name: "web"}

// backends parses "http:8080,dns:53=10.9.0.1@zone,10.9.0.2!" into a group; "!" marks a backend that is not ready,
// "~" one that shuts down and still serves.
func backends(text string) v1alpha1.Backends {
	ports, addresses, _ := strings.Cut(text, "=")
	out := v1alpha1.Backends{}
	for p := range strings.SplitSeq(ports, ",") {
		name, number, _ := strings.Cut(p, ":")
		port := v1alpha1.BackendPort{Name: name, Protocol: corev1.ProtocolTCP}
		_, _ = fmt.Sscan(number, &port.Port)
		out.Ports = append(out.Ports, port)
	}
	for ip := range strings.SplitSeq(addresses, ",") {
		ip, zone, _ := strings.Cut(ip, "@")
		b := v1alpha1.Backend{IP: strings.TrimRight(ip, "!~"), Zone: zone, Node: "n", Terminating: strings.HasSuffix(ip, "~")}
		b.Ready = !strings.HasSuffix(ip, "!") && !b.Terminating
		b.Serving = b.Ready || b.Terminating
		out.Addresses = append(out.Addresses, b)
	}
	return out
}

// input has the ports http and dns, and this is cluster c1.
func input(clusters map[string][]string) Input {
	in := Input{
		Key: web, ClusterID: "c1", Families: []corev1.IPFamily{corev1.IPv4Protocol}, Now: time.Unix(1700000000, 0),
		Connected: func(cluster string) bool { return cluster != "down" },
		Import: &v1alpha1.Import{Namespace: web.Namespace, Name: web.Name, Settings: v1alpha1.ServiceSettings{
			Type: v1alpha1.ClusterSetIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80},
				{Name: "dns", Protocol: corev1.ProtocolTCP, Port: 53}},
		}},
	}
	for name, groups := range clusters {
		c := v1alpha1.ImportCluster{Cluster: name, Ports: []string{"dns", "http"}}
		for _, g := range groups {
			c.Backends = append(c.Backends, backends(g))
		}
		in.Import.Clusters = append(in.Import.Clusters, c)
	}
	slices.SortFunc(in.Import.Clusters, func(a, b v1alpha1.ImportCluster) int {
		return strings.Compare(a.Cluster,
			b.Cluster)
	})
	return in
}

// local adds a Service of this cluster with these ports, and a slice.
func local(in *Input, ports []corev1.ServicePort, slicePorts string) {
	in.LocalService = &corev1.Service{Spec: corev1.ServiceSpec{Ports: ports}}
	g := backends(slicePorts)
	s := discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	for _, p := range g.Ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &p.Port})
	}
	for _, a := range g.Addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a.IP}, NodeName: &a.Node, Zone: &a.Zone,
			Conditions: discoveryv1.EndpointConditions{Ready: &a.Ready, Serving: &a.Serving, Terminating: &a.Terminating}})
	}
	in.LocalSlices = []discoveryv1.EndpointSlice{s}
}

// text of the slices: "<cluster> <port>,<port> <address>[~][@node] …", one line each.
func text(list []discoveryv1.EndpointSlice) string {
	var lines []string
	for _, s := range list {
		var ports []string
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprintf("%s:%d", *p.Name, *p.Port))
		}
		line := s.Labels[mcs.LabelSourceCluster] + " " + strings.Join(ports, ",")
		for _, e := range s.Endpoints {
			line += " " + e.Addresses[0]
			if !*e.Conditions.Ready {
				line += "~"
			}
			if e.NodeName != nil {
				line += "@" + *e.NodeName
			}
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestChoice(t *testing.T) {
	http := corev1.ServicePort{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}
	for _, c := range []struct {
		name  string
		input func() Input
		want  string
	}{
		{"every connected cluster", func() Input {
			return input(map[string][]string{"c2": {"dns:53,http:8080=10.9.0.2,10.9.0.1"}, "c3": {"dns:53,http:8080=10.7.0.1"},
				"down": {"http:8080=10.6.0.1"}})
		}, "c2 dns:53,http:8080 10.9.0.1 10.9.0.2\nc3 dns:53,http:8080 10.7.0.1"},
		{"this cluster for its port, others for the other", func() Input {
			in := input(map[string][]string{"c1": nil, "c2": {"dns:53,http:8080=10.9.0.1"}})
			in.Import.Clusters[0].Ports = []string{"http"}
			local(&in, []corev1.ServicePort{http}, "http:8080=10.8.0.1")
			return in
		}, "c1 http:8080 10.8.0.1@n\nc2 dns:53 10.9.0.1"},
		{"nothing ready here", func() Input {
			in := input(map[string][]string{"c1": nil, "c2": {"http:8080=10.9.0.1"}})
			local(&in, []corev1.ServicePort{http}, "http:8080=10.8.0.1!")
			return in
		}, "c2 http:8080 10.9.0.1"},
		{"only ready ones", func() Input { return input(map[string][]string{"c2": {"http:8080=10.9.0.1,10.9.0.2!"}}) },
			"c2 http:8080 10.9.0.1"},
		{"a local port that the merge named", func() Input {
			in := input(map[string][]string{"c1": nil})
			local(&in, []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}, ":8080=10.8.0.1")
			return in
		}, "c1 http:8080 10.8.0.1@n"},
		{"a local port that lost", func() Input {
			in := input(map[string][]string{"c1": nil, "c2": {"http:8080=10.9.0.1"}})
			local(&in, []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 81}}, "http:8080=10.8.0.1")
			return in
		}, "c2 http:8080 10.9.0.1"},
		{"addresses that no slice may hold", func() Input {
			return input(
				map[string][]string{"c2": {"http:8080=127.0.0.1,169.254.1.1,224.0.0.1,0.0.0.0,junk,10.9.0.1,fe80::1%eth0"}})
		}, "c2 http:8080 10.9.0.1"},
		{"a family that this cluster lacks",
			func() Input { return input(map[string][]string{"c2": {"http:8080=fd00::1,10.9.0.1"}}) }, "c2 http:8080 10.9.0.1"},
		{"groups that differ in ports not chosen", func() Input {
			in := input(map[string][]string{"c2": {"dns:53,http:8080=10.9.0.1", "http:8080=10.9.0.2"}})
			in.Import.Clusters[0].Ports = []string{"http"}
			return in
		}, "c2 http:8080 10.9.0.1 10.9.0.2"},
		{"headless: every cluster, this one too", func() Input {
			in := input(map[string][]string{"c1": nil, "c2": {"http:8080=10.9.0.1"}})
			in.Import.Settings.Type = v1alpha1.Headless
			local(&in, []corev1.ServicePort{http}, "http:8080=10.8.0.1")
			return in
		}, "c1 http:8080 10.8.0.1@n\nc2 http:8080 10.9.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Decide(c.input())
			if got := text(d.Slices); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			for _, s := range d.Slices {
				_, labelled := s.Labels[discoveryv1.LabelServiceName]
				if labelled != (d.Service != nil) {
					t.Errorf("slice %s names a Service: %t", s.Name, labelled)
				}
			}
		})
	}
}

// TestPackWritesLittle: one address more or less among many changes one slice.
func TestPackWritesLittle(t *testing.T) {
	in := input(nil)
	g := group{cluster: "c2", family: discoveryv1.AddressTypeIPv4,
		ports: []v1alpha1.BackendPort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 1}}}
	for i := range 250 {
		g.endpoints = append(g.endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.9.%d.%d", i/250, i+1)}})
	}
	in.Slices = pack(&in, g)
	if len(in.Slices) != 3 {
		t.Fatalf("%d slices, want 3", len(in.Slices))
	}
	same := func(after []discoveryv1.EndpointSlice) (n int) {
		for _, s := range after {
			for _, was := range in.Slices {
				if s.Name == was.Name && fmt.Sprint(s.Endpoints) == fmt.Sprint(was.Endpoints) {
					n++
				}
			}
		}
		return n
	}
	fewer := g
	fewer.endpoints = slices.Delete(slices.Clone(g.endpoints), 5, 6)
	if after := pack(&in, fewer); len(after) != 3 || same(after) != 2 {
		t.Errorf("one less: %d slices, %d unchanged", len(after), same(after))
	}
	more := g
	more.endpoints = append([]discoveryv1.Endpoint{{Addresses: []string{"10.9.0.0"}}}, g.endpoints...)
	if after := pack(&in, more); len(after) != 3 || same(after) != 2 {
		t.Errorf("one more: %d slices, %d unchanged", len(after), same(after))
	}
}

func TestServiceOfAnImport(t *testing.T) {
	in := input(map[string][]string{"c2": {"http:8080=10.9.0.1"}})
	d := Decide(in)
	if d.Service.Spec.ClusterIP != "" || d.Service.Name != DerivedName(web) || d.Service.Spec.Selector != nil {
		t.Errorf("a new Service: %+v", d.Service)
	}
	in.ServiceImport = &mcs.ServiceImport{Spec: mcs.ServiceImportSpec{IPs: []string{"10.96.0.9"}}}
	if d := Decide(in); d.Service.Spec.ClusterIP != "10.96.0.9" {
		t.Errorf("the address is restored: %q", d.Service.Spec.ClusterIP)
	}
	in.ServiceImport.Spec.IPs = []string{"fd00::1"}
	if d := Decide(in); d.Service.Spec.ClusterIP != "" {
		t.Errorf("an address of the wrong family is not: %q", d.Service.Spec.ClusterIP)
	}
	in.Service = Decide(in).Service
	in.Import.Settings.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	d = Decide(in)
	if d.Service != nil && d.Again == 0 {
		t.Errorf("a Service of a family that the import lacks: %+v", d.Service)
	}
	if c := d.ServiceImport.Status.Conditions[0]; c.Status != metav1.ConditionFalse ||
		c.Reason != "IPFamilyNotSupported" || len(d.Slices) > 0 {
		t.Errorf("no family in common: %+v", c)
	}
}

func TestEndOfAnImport(t *testing.T) {
	in := input(map[string][]string{"c2": {"http:8080=10.9.0.1"}})
	in.Service = Decide(in).Service
	in.Import = nil
	d := Decide(in)
	if d.ServiceImport != nil || len(d.Slices) > 0 || d.Service == nil || d.Again != Outlive {
		t.Fatalf("at first: %+v", d)
	}
	in.Service, in.Now = d.Service, in.Now.Add(Outlive-time.Second)
	if d := Decide(in); d.Service == nil || d.Again != time.Second {
		t.Errorf("a second before: %+v", d)
	}
	in.Now = in.Now.Add(time.Second)
	if d := Decide(in); d.Service != nil {
		t.Errorf("after a minute: %+v", d.Service)
	}
	in.Now, in.Leaving = in.Now.Add(-Outlive), true
	if d := Decide(in); d.Service != nil {
		t.Errorf("leaving: %+v", d.Service)
	}
}
