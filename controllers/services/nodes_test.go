// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// serving changes an export to one whose ready backends have these addresses.
func serving(ips ...string) func(*v1alpha1.Export) {
	return func(e *v1alpha1.Export) {
		e.Backends[0].Addresses = nil
		for _, ip := range ips {
			e.Backends[0].Addresses = append(e.Backends[0].Addresses, v1alpha1.Backend{IP: ip, Ready: true, Serving: true,
				Node: "n1"})
		}
	}
}

func dualStack(e *v1alpha1.Export) {
	e.ClusterIPs = append(e.ClusterIPs, "fd00:1:1::10")
	e.Settings.IPFamilies = append(e.Settings.IPFamilies, corev1.IPv6Protocol)
}

// What others have of an export whose pods use the host network: the ClusterIP, where that leads to all of them, and
// never a node's address. The exporter is told where nothing is left.
func TestBackendsOnNodes(t *testing.T) {
	withIPv6Nodes := cluster(1)
	withIPv6Nodes.Nodes = append(withIPv6Nodes.Nodes, netip.MustParsePrefix("fd00:99::/64"))
	local := func(e *v1alpha1.Export) {
		e.Settings.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}
	foreignIP := func(e *v1alpha1.Export) { e.ClusterIPs = []string{"10.102.0.10"} }
	notReady := func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].Ready = false }
	for _, tt := range []struct {
		name           string
		export         []func(*v1alpha1.Export)
		want, verdict  string
		told, problems string
	}{
		{"all on nodes", []func(*v1alpha1.Export){serving("192.168.1.7", "192.168.1.8")}, "10.101.0.10 on http:80",
			"True Exported", "", ""},
		{"some on nodes", []func(*v1alpha1.Export){serving("192.168.1.7", "10.1.0.1")}, "10.101.0.10 on http:80",
			"True Exported", "", ""},
		{"on a node, and not ready", []func(*v1alpha1.Export){serving("192.168.1.7"), notReady}, "", "True Exported", "", ""},
		{"headless, all on nodes", []func(*v1alpha1.Export){headless, serving("192.168.1.7")}, "", "False BackendsNotRouted",
			"no other cluster can reach it; 1 of 1 backends left out: 1 with the address of their node; no other cluster " +
				"reaches those of a headless Service", "1 backends of sample/web"},
		{"headless, some on nodes", []func(*v1alpha1.Export){headless, serving("192.168.1.7", "10.1.0.1")},
			"10.1.0.1 on http:8080", "True Exported", "1 of 2 backends left out", "1 backends of sample/web"},
		{"without an accepted ClusterIP", []func(*v1alpha1.Export){foreignIP, serving("192.168.1.7")}, "",
			"False BackendsNotRouted", "the Service has none of IPv4 in the accepted service CIDRs", "has none of IPv4"},
		{"served on each node for itself", []func(*v1alpha1.Export){local, serving("192.168.1.7", "10.1.0.1")},
			"10.1.0.1 on http:8080", "True Exported", "internalTrafficPolicy Local", "internalTrafficPolicy Local"},
		{"beside an external host", []func(*v1alpha1.Export){serving("192.168.1.7", "10.1.0.1", "203.0.113.5")},
			"10.1.0.1 on http:8080", "True Exported", "leads also to the backends outside", "leads also to"},
		{"external hosts", []func(*v1alpha1.Export){serving("203.0.113.5", "10.2.0.1")}, "", "False BackendsNotRouted",
			"2 of 2 backends left out: 2 outside the cluster's accepted pod CIDRs", "2 backends of sample/web are outside"},
		{"nothing that is an address", []func(*v1alpha1.Export){serving("x")}, "", "True Exported",
			"1 without a valid address",
			"no valid address"},
		{"no backends", []func(*v1alpha1.Export){serving()}, "", "True Exported", "", ""},
		{"both families on nodes", []func(*v1alpha1.Export){dualStack, serving("192.168.1.7", "fd00:99::7")},
			"10.101.0.10 fd00:1:1::10 on http:80", "True Exported", "", ""},
		{"one family on nodes", []func(*v1alpha1.Export){dualStack, serving("192.168.1.7", "fd00:1::7")},
			"10.101.0.10 on http:80; fd00:1::7 on http:8080", "True Exported", "", ""},
		{"a ClusterIP in one family", []func(*v1alpha1.Export){serving("192.168.1.7", "fd00:99::7")},
			"10.101.0.10 on http:80",
			"True Exported", "1 of 2 backends left out", "has none of IPv6"},
		{"external in the other family", []func(*v1alpha1.Export){dualStack, serving("192.168.1.7", "2001:db8::7")},
			"10.101.0.10 on http:80", "True Exported", "1 outside the cluster's", "1 backends of sample/web are outside"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c1 := withIPv6Nodes
			c1.Exports = []v1alpha1.Export{web(1, tt.export...)}
			members := []Member{c1, cluster(2)}
			for _, known := range []bool{true, false} {
				if !known {
					members[0].Known, members[0].Exports = false, nil
				}
				d := decide(members...)
				if got := of(d.Bundles["c2"].Imports[0], "c1"); got != tt.want {
					t.Errorf("known %t: c2 has %q, want %q", known, got, tt.want)
				}
				if strings.Contains(text(t, d), "192.168.") {
					t.Errorf("known %t: a node's address is given out", known)
				}
				if got := condition(d, "c1", "Ready"); got != tt.verdict {
					t.Errorf("known %t: Ready is %s, want %s", known, got, tt.verdict)
				}
				message := conditionOf(t, d, "c1", "Ready").Message
				if !strings.Contains(message, tt.told) || tt.told == "" && message != Exported {
					t.Errorf("known %t: c1 is told %q, want %q", known, message, tt.told)
				}
				problems := fmt.Sprint(d.Problems)
				if known && (!strings.Contains(problems, tt.problems) || tt.problems == "" && len(d.Problems) > 0) {
					t.Errorf("problems %s, want %q", problems, tt.problems)
				}
				for i := range members {
					members[i].Last, members[i].Record = written(t, d, members[i].Cluster)
				}
			}
		})
	}
}

// The pods of a service leave the host network one by one: the ClusterIP serves until the last has.
func TestPodsLeaveTheHostNetwork(t *testing.T) {
	for _, step := range []struct{ ips, want string }{
		{"192.168.1.7 192.168.1.8", "10.101.0.10 on http:80"},
		{"192.168.1.7 10.1.0.1", "10.101.0.10 on http:80"},
		{"10.1.0.1 10.1.0.2", "10.1.0.1 10.1.0.2 on http:8080"},
	} {
		d := decide(cluster(1, web(1, serving(strings.Fields(step.ips)...))), cluster(2))
		if got := of(d.Bundles["c2"].Imports[0], "c1"); got != step.want {
			t.Errorf("%s: c2 has %q, want %q", step.ips, got, step.want)
		}
		if c := conditionOf(t, d, "c1", "Ready"); c.Status != metav1.ConditionTrue {
			t.Errorf("%s: %v", step.ips, c)
		}
	}
}
