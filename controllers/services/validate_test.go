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
		{"families", "3 IP families", func(e *v1alpha1.Export) {
			e.Settings.IPFamilies = []corev1.IPFamily{"IPv4",
				"IPv6", "IPv4"}
		}},
		{"too many ClusterIPs", "at most 2", func(e *v1alpha1.Export) { e.ClusterIPs = []string{"", "", ""} }},
		{"headless with ClusterIP", "headless and has", func(e *v1alpha1.Export) { e.Settings.Type = v1alpha1.Headless }},
		{"too many backends", "at most 5000", func(e *v1alpha1.Export) {
			e.Backends[0].Addresses = make([]v1alpha1.Backend,
				5001)
		}},
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

// A bad label, or one that steers other controllers, is dropped; the export serves on and says so.
func TestBadLabelsAndAnnotationsAreDroppedAlone(t *testing.T) {
	for name, c := range map[string]struct {
		labels, annotations map[string]string
		says                string
		kept                int
	}{
		"a value with spaces": {map[string]string{"a": "no spaces", "b": "x"}, nil, `label "a" is no valid label`, 1},
		"too many":            {many(65), nil, `label "k38" is one of more than 32`, 32},
		"a long annotation": {nil, map[string]string{"a": strings.Repeat("x", 16<<10)},
			`annotation "a" has more than 1024 bytes`, 0},
		"Argo CD's label": {map[string]string{"app.kubernetes.io/instance": "shop", "app.kubernetes.io/name": "web"}, nil,
			`label "app.kubernetes.io/instance" steers`, 1},
		"Argo CD's annotation": {nil, map[string]string{"argocd.argoproj.io/tracking-id": "shop:/Service:sample/web"},
			`annotation "argocd.argoproj.io/tracking-id" steers`, 0},
		"kubectl's annotation": {nil, map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"},
			"steers other controllers", 0},
		"ours": {map[string]string{"sealane.io/import": "x"}, map[string]string{"sealane.io/service-mode": "ClusterIP"},
			`label "sealane.io/import" steers`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(cluster(1, web(1, func(e *v1alpha1.Export) {
				e.Settings.Labels, e.Settings.Annotations = c.labels,
					c.annotations
			})), cluster(2))
			s := d.Bundles["c2"].Imports[0].Settings
			if len(s.Labels)+len(s.Annotations) != c.kept {
				t.Errorf("imported with %v %v", s.Labels, s.Annotations)
			}
			ready := conditionOf(t, d, "c1", "Ready")
			if ready.Status != metav1.ConditionTrue || !strings.Contains(ready.Message, c.says) {
				t.Errorf("the exporter is told %s: %s", ready.Status, ready.Message)
			}
		})
	}
}

// What the exporting cluster remarks of an export is told with the verdict, in a bounded number of words that can be
// printed, whatever it wrote.
func TestRemarksOfTheMemberAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		remarks []string
		want    string
	}{
		"none": {nil, "exported to the ClusterSet"},
		"some": {[]string{"the annotation a is malformed", "b"}, "exported to the ClusterSet; the annotation a is " +
			"malformed; b"},
		"hostile": {[]string{"a\x1b[2J\nb\u202e", "\xff", "", "c", "d", "e"}, "exported to the ClusterSet; a [2J b; ?; c; " +
			"and 2 more"},
		"long": {[]string{strings.Repeat("x", 1<<20)}, "exported to the ClusterSet; " + strings.Repeat("x", 317) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(cluster(1, web(1, func(e *v1alpha1.Export) { e.Remarks = c.remarks })), cluster(2))
			if got := conditionOf(t, d, "c1", "Ready"); got.Status != metav1.ConditionTrue || got.Message != c.want {
				t.Errorf("%s: %q, want %q", got.Status, got.Message, c.want)
			}
		})
	}
}

// An export that serves says what of it does not.
func TestLeftOutBackendsAreCountedAndExplained(t *testing.T) {
	d := decide(cluster(1, web(1, func(e *v1alpha1.Export) {
		e.Backends[0].Addresses[0].IP, e.Backends[0].Addresses[1].IP = "10.9.0.1", "192.168.1.7"
	})), cluster(2))
	want := "exported to the ClusterSet; 2 of 3 backends left out: 1 outside the cluster's accepted pod CIDRs: complete " +
		"these in the ClusterSet, spec.clusters, " +
		"1 with the address of their node; other clusters reach those by the ClusterIP alone, which leads also to the " +
		"backends outside the pod CIDRs: take these into a Service of their own, or do not use hostNetwork"
	if ready := conditionOf(t, d, "c1", "Ready"); ready.Status != metav1.ConditionTrue || ready.Message != want {
		t.Errorf("%s: %s", ready.Status, ready.Message)
	}
}

// many returns n labels.
func many(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprintf("k%d", i)] = ""
	}
	return m
}

// conditionOf is one of the conditions of the only export of a cluster.
func conditionOf(t *testing.T, d Decision, cluster, kind string) v1alpha1.ExportCondition {
	t.Helper()
	for _, c := range d.Bundles[cluster].ExportConditions {
		if c.Type == kind {
			return c
		}
	}
	t.Fatalf("%s is told nothing of %s", cluster, kind)
	return v1alpha1.ExportCondition{}
}

// Hostile addresses are left out one by one.
func TestHostileAddresses(t *testing.T) {
	tests := []struct {
		name, reason string
		change       func(*v1alpha1.Export)
		backends     int
	}{
		{"node address of a headless service", ReasonNotRouted, func(e *v1alpha1.Export) {
			headless(e)
			e.Backends[0].Addresses[0].IP = "192.168.1.7"
		}, 2},
		{"another cluster's node", ReasonNotRouted,
			func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].IP = "192.168.2.7" },
			2},
		{"another cluster's pod", ReasonNotRouted, func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].IP = "10.2.0.1" },
			2},
		{"own ClusterIP as a pod", ReasonNotRouted,
			func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].IP = "10.101.0.10" }, 2},
		{"loopback", ReasonInvalidExport, func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].IP = "127.0.0.1" }, 2},
		{"zone", ReasonInvalidExport, func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].IP = "fe80::1%eth0" }, 2},
		{"hostname", ReasonInvalidExport, func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].Hostname = "a.b" }, 2},
		{"same address in another spelling", "", func(
			e *v1alpha1.Export) {
			e.Backends[0].Addresses[0].IP = "::ffff:10.1.0.2"
		}, 2},
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
			if tt.reason == "" && len(d.Problems) != 0 || tt.reason != "" && (len(d.Problems) != 1 ||
				d.Problems[0].Reason != tt.reason) {
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
