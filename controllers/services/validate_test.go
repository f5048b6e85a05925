// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Every hostile export is refused alone, with a Problem that says why.
func TestHostileExports(t *testing.T) {
	many := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprintf("k%d", i)] = ""
		}
		return m
	}
	tests := []struct {
		name, problem string
		change        func(*v1alpha1.Export)
	}{
		{"namespace", "cannot be the namespace", func(e *v1alpha1.Export) { e.Namespace = "../kube-system" }},
		{"name", "cannot be the namespace", func(e *v1alpha1.Export) { e.Name = "0web" }},
		{"no creation time", "no creation time", func(e *v1alpha1.Export) { e.CreatedAt = metav1.Time{} }},
		{"type", "none of ClusterSetIP, Headless", func(e *v1alpha1.Export) { e.Settings.Type = "ExternalName" }},
		{"no ports", "no ports", withPorts()},
		{"port 0", "not within 1-65535", withPorts(port("a", 0))},
		{"port 65536", "not within 1-65535", withPorts(port("a", 65536))},
		{"port name", "no DNS label", withPorts(port("A b", 1))},
		{"port name twice", "there twice", withPorts(port("a", 1), port("a", 2))},
		{"port number twice", "there twice", withPorts(port("a", 1), port("b", 1))},
		{"unnamed among several", "has no name", withPorts(port("", 1), port("b", 2))},
		{"protocol", "none of TCP, UDP, SCTP", func(e *v1alpha1.Export) { e.Settings.Ports[0].Protocol = "ICMP" }},
		{"too many ports", "at most 100", func(e *v1alpha1.Export) { e.Settings.Ports = make([]v1alpha1.ServicePort, 101) }},
		{"affinity", "none of None, ClientIP", func(e *v1alpha1.Export) { e.Settings.SessionAffinity = "Always" }},
		{"family", "none of IPv4, IPv6", func(e *v1alpha1.Export) { e.Settings.IPFamilies = []corev1.IPFamily{"IPX"} }},
		{"families", "3 IP families", func(e *v1alpha1.Export) { e.Settings.IPFamilies = []corev1.IPFamily{"IPv4", "IPv6", "IPv4"} }},
		{"label", "not valid", func(e *v1alpha1.Export) { e.Settings.Labels = map[string]string{"a": "no spaces"} }},
		{"too many labels", "at most 64", func(e *v1alpha1.Export) { e.Settings.Labels = many(65) }},
		{"long annotations", "longer than", func(e *v1alpha1.Export) {
			e.Settings.Annotations = map[string]string{"a": strings.Repeat("x", 16<<10)}
		}},
		{"too many ClusterIPs", "at most 2", func(e *v1alpha1.Export) { e.ClusterIPs = []string{"", "", ""} }},
		{"headless with ClusterIP", "headless and has", func(e *v1alpha1.Export) { e.Settings.Type = v1alpha1.Headless }},
		{"too many backends", "at most 5000", func(e *v1alpha1.Export) { e.Backends[0].Addresses = make([]v1alpha1.Backend, 5001) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bad, good := web(1), web(1)
			good.Name = "good"
			tt.change(&bad)
			d := decide(cluster(1, bad, good), cluster(2))
			if got := d.Bundles["c2"].Imports; len(got) != 1 || got[0].Name != "good" {
				t.Errorf("%d imports", len(got))
			}
			if len(d.Problems) != 1 || d.Problems[0].Cluster != "c1" || !strings.Contains(d.Problems[0].Message, tt.problem) {
				t.Errorf("problems %v, want one with %q", d.Problems, tt.problem)
			}
			for _, c := range d.Bundles["c1"].ExportConditions {
				if c.Name == "web" && (c.Type != "Ready" || c.Status != metav1.ConditionFalse || c.Reason != "Failed") {
					t.Errorf("condition %v", c)
				}
			}
		})
	}
}

// Hostile addresses are left out one by one.
func TestHostileAddresses(t *testing.T) {
	tests := []struct {
		name, reason string
		change       func(*v1alpha1.Export)
		backends     int
	}{
		{"node address", ReasonNotRouted, func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].IP = "192.168.1.7" }, 2},
		{"another cluster's pod", ReasonNotRouted, func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].IP = "10.2.0.1" }, 2},
		{"own ClusterIP as a pod", ReasonNotRouted, func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].IP = "10.101.0.10" }, 2},
		{"loopback", ReasonInvalidExport, func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].IP = "127.0.0.1" }, 2},
		{"zone", ReasonInvalidExport, func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].IP = "fe80::1%eth0" }, 2},
		{"hostname", ReasonInvalidExport, func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].Hostname = "a.b" }, 2},
		{"same address in another spelling", "", func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].IP = "::ffff:10.1.0.2" }, 2},
		{"backend port", ReasonInvalidExport, func(e *v1alpha1.Export) { e.Backends[0].Ports[0].Port = -1 }, 0},
		{"another cluster's ClusterIP", ReasonInvalidExport, func(e *v1alpha1.Export) { e.ClusterIPs[0] = "10.102.0.10" }, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := decide(cluster(1, web(1, tt.change)), cluster(2))
			n := 0
			c := d.Bundles["c2"].Imports[0].Clusters[0]
			for _, g := range c.Backends {
				n += len(g.Addresses)
			}
			if n != tt.backends {
				t.Errorf("%d backends, want %d", n, tt.backends)
			}
			if tt.reason == "" && len(d.Problems) != 0 || tt.reason != "" && (len(d.Problems) != 1 || d.Problems[0].Reason != tt.reason) {
				t.Errorf("problems %v, want %q", d.Problems, tt.reason)
			}
		})
	}
}

func TestDuplicatesAndForeignShardsAreRefused(t *testing.T) {
	if d := decide(cluster(1, web(1), web(1)), cluster(2)); len(d.Bundles["c2"].Imports) != 0 || len(d.Problems) != 1 {
		t.Errorf("duplicates: %v", d.Problems)
	}
	shard := v1alpha1.Shard("sample", "web", 4)
	d := Decide(Input{Shard: (shard + 1) % 4, Shards: 4, Members: []Member{cluster(1, web(1)), cluster(2)}})
	if len(d.Bundles["c2"].Imports) != 0 || len(d.Problems) != 1 {
		t.Errorf("foreign shard: %v", d.Problems)
	}
}

func TestProblemsOfOneMemberAreFew(t *testing.T) {
	var bad []v1alpha1.Export
	for i := range 50 {
		bad = append(bad, web(1, withPorts(), func(e *v1alpha1.Export) { e.Name = fmt.Sprintf("web-%d", i) }))
	}
	d := decide(cluster(1, bad...))
	if len(d.Problems) != maxProblems || d.Problems[maxProblems-1].Message != "and 41 more problems with exports" {
		t.Errorf("problems %v", d.Problems)
	}
}
