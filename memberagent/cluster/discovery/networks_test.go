// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func node(podCIDRs string, addresses ...string) corev1.Node {
	n := corev1.Node{}
	n.Spec.PodCIDRs = strings.Fields(podCIDRs)
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func prefixes(text string) []netip.Prefix { return Prefixes(strings.Fields(text)) }

func TestNetworks(t *testing.T) {
	for _, c := range []struct {
		name     string
		hints    Hints
		override v1alpha1.Networks
		pods     string
		services string
	}{
		{"nothing", Hints{}, v1alpha1.Networks{}, "[]", "[]"},
		{"of the nodes", Hints{Nodes: []corev1.Node{node("10.8.0.0/24 fd00:8::/64"), node("10.8.1.0/24 fd00:8:0:2::/64")},
			StatedServices: prefixes("10.88.0.0/16")},
			v1alpha1.Networks{}, "[10.8.0.0/23 fd00:8::/64 fd00:8:0:2::/64]", "[10.88.0.0/16]"},
		{"stated", Hints{Nodes: []corev1.Node{node("10.8.0.0/24")}, StatedPods: prefixes("10.8.0.0/16,fd00:8::/48")},
			v1alpha1.Networks{}, "[10.8.0.0/16 fd00:8::/48]", "[]"},
		{"stated, and a node outside", Hints{Nodes: []corev1.Node{node("10.9.0.0/24")}, StatedPods: prefixes("10.8.0.0/16")},
			v1alpha1.Networks{}, "[10.8.0.0/16 10.9.0.0/24]", "[]"},
		{"of a plugin, beside others", Hints{Nodes: []corev1.Node{node("10.9.0.0/24")}, StatedPods: prefixes("10.8.0.0/16"),
			CNI: prefixes("10.6.0.8/29")}, v1alpha1.Networks{}, "[10.6.0.8/29 10.8.0.0/16 10.9.0.0/24]", "[]"},
		{"shared with nodes", Hints{Nodes: []corev1.Node{node("", "10.6.0.9", "fd00::1"), node("", "10.6.0.8")},
			CNI: prefixes("10.6.0.8/29 fd00:6::/64")}, v1alpha1.Networks{}, "[10.6.0.10/31 10.6.0.12/30 fd00:6::/64]", "[]"},
		{"given, shared with nodes", Hints{Nodes: []corev1.Node{node("", "10.6.0.9")}},
			v1alpha1.Networks{PodCIDRs: []string{"10.6.0.8/30"}}, "[10.6.0.8/32 10.6.0.10/31]", "[]"},
		{"given, with a mistake", Hints{Nodes: []corev1.Node{node("", "10.6.0.9")}},
			v1alpha1.Networks{PodCIDRs: []string{"10.7.0.1/16", "junk"}}, "[10.7.0.1/16 junk]", "[]"},
		{"given, one list", Hints{StatedPods: prefixes("10.8.0.0/16"), StatedServices: prefixes("10.88.0.0/16")},
			v1alpha1.Networks{PodCIDRs: []string{"10.7.0.0/16"}}, "[10.7.0.0/16]", "[10.88.0.0/16]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Networks(c.hints, c.override)
			if fmt.Sprint(got.PodCIDRs) != c.pods || fmt.Sprint(got.ServiceCIDRs) != c.services {
				t.Errorf("got %v and %v, want %s and %s", got.PodCIDRs, got.ServiceCIDRs, c.pods, c.services)
			}
		})
	}
}

func TestAggregate(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.0/24 10.0.1.0/24 10.0.2.0/24 10.0.3.0/24": "[10.0.0.0/22]",
		"10.0.1.0/24 10.0.2.0/24":                         "[10.0.1.0/24 10.0.2.0/24]",
		"10.0.0.0/8 10.1.0.0/16 10.0.0.0/8":               "[10.0.0.0/8]",
		"0.0.0.0/1 128.0.0.0/1 ::/0":                      "[0.0.0.0/0 ::/0]",
	} {
		if got := fmt.Sprint(Aggregate(prefixes(in))); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

// TestTooManyNetworksAreNotTold: a report of more would be refused as a whole.
func TestTooManyNetworksAreNotTold(t *testing.T) {
	for n, told := range map[int]bool{maxPodCIDRs: true, maxPodCIDRs + 1: false} {
		f := bounded(Found{Networks: v1alpha1.Networks{PodCIDRs: make([]string, n), ServiceCIDRs: []string{"10.88.0.0/16"}}})
		if (len(f.Networks.PodCIDRs) == n) != told || (f.Problem == "") != told || len(f.Networks.ServiceCIDRs) != 1 {
			t.Errorf("%d networks: %d are told, %v, %q", n, len(f.Networks.PodCIDRs), f.Networks.ServiceCIDRs, f.Problem)
		}
	}
}

func TestNodeCIDRs(t *testing.T) {
	got := fmt.Sprint(NodeCIDRs([]corev1.Node{node("", "192.0.2.2", "fd00::2"), node("", "192.0.2.1", "junk")}))
	if want := "[192.0.2.1/32 192.0.2.2/32 fd00::2/128]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var many []corev1.Node
	for i := range maxNodeCIDRs + 1 {
		many = append(many, node("", fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)))
	}
	hosts := NodeCIDRs(many)
	if len(hosts) != maxNodeCIDRs || hosts[0] != "10.0.0.1/32" {
		t.Errorf("many nodes: got %d, first %s", len(hosts), hosts[0])
	}
}

// FuzzPrefixes: aggregation never adds or loses an address of its input.
func FuzzPrefixes(f *testing.F) {
	f.Add("10.0.0.0/24,10.0.1.0/24")
	f.Add("::/0,fd00::/8")
	f.Fuzz(func(t *testing.T, text string) {
		in := Prefixes([]string{text})
		out := Aggregate(in)
		for _, p := range in {
			held := false
			for _, o := range out {
				held = held || contains(o, p)
			}
			if !held {
				t.Fatalf("%s is in none of %v", p, out)
			}
		}
	})
}
