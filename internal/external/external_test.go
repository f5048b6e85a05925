// SPDX-License-Identifier: Apache-2.0

package external_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/external"
	"github.com/sealane-io/sealane/internal/netfacts"
)

func peering(cidrs ...string) *v1alpha1.PeeringSpec {
	return &v1alpha1.PeeringSpec{
		ClusterID: "c1", GlobalCIDR: "120.1.0.0/24", ExternalCIDRs: cidrs,
		Networks: v1alpha1.Networks{PodCIDRs: []string{"10.7.0.0/16"}, ServiceCIDRs: []string{"10.77.0.0/16"}},
		RemoteClusters: []v1alpha1.RemoteCluster{{Name: "c2", GlobalCIDR: "120.2.0.0/24"},
			{Name: "c3", Networks: v1alpha1.Networks{PodCIDRs: []string{"10.9.0.0/16"},
				ServiceCIDRs: []string{"10.99.0.0/16"}}}},
	}
}

func nodes() []corev1.Node {
	return []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Spec: corev1.NodeSpec{PodCIDRs: []string{"10.6.1.0/24"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.31.1.11"},
			{Type: corev1.NodeExternalIP, Address: "172.31.1.12"}, {Type: corev1.NodeHostName, Address: "n1"}}}}}
}

// TestCheck: of a network that is allowed, what is somebody's is no host outside; and nothing else is one.
func TestCheck(t *testing.T) {
	wide := peering("172.16.0.0/12", "10.0.0.0/8", "120.0.0.0/8")
	withoutBlock := peering("172.31.1.0/24")
	withoutBlock.GlobalCIDR = ""
	for _, c := range []struct {
		ip      string
		peering *v1alpha1.PeeringSpec
		want    string // "" is: may be exported
	}{
		{"172.31.1.50", wide, ""},
		{"172.31.1.50", peering("172.31.1.50/32"), ""},
		{"::ffff:172.31.1.50", peering("172.31.1.50/32"), ""},
		{"172.31.1.51", peering("172.31.1.50/32"), "not in spec.clusters[].externalCIDRs of the ClusterSet for \"c1\""},
		{"172.31.1.50", peering(), "spec.clusters[].externalCIDRs"},
		{"172.31.1.50", withoutBlock, "no block"},
		{"172.31.1.11", wide, "node \"n1\""},
		{"172.31.1.12", wide, "node \"n1\""},
		{"172.31.1.13", wide, "API server"},
		{"10.7.0.5", wide, "own pods"},
		{"10.77.0.1", wide, "own pods"},
		{"10.6.1.5", wide, "own pods"},
		{"10.9.0.1", wide, "another cluster"},
		{"10.99.0.1", wide, "another cluster"},
		{"120.1.0.10", wide, "block of global addresses"},
		{"120.2.0.10", wide, "block of global addresses"},
		{"169.254.169.254", peering("169.254.0.0/16", "169.254.169.254/32"), "no IPv4 address that a host"},
		{"100.100.100.200", peering("100.100.100.200/32"), "no IPv4 address that a host"},
		{"127.0.0.1", peering("127.0.0.0/8"), "no IPv4 address that a host"},
		{"224.0.0.1", peering("224.0.0.0/8"), "no IPv4 address that a host"},
		{"255.255.255.255", peering("255.255.255.255/32"), "no IPv4 address that a host"},
		{"8.8.8.8", peering("0.0.0.0/0", "8.0.0.0/7"), "spec.clusters[].externalCIDRs"},
		{"fd00:9::1", peering("fd00:9::/64"), "no IPv4 address that a host"},
	} {
		hosts, _ := external.For(c.peering, nodes(), []netip.Addr{netip.MustParseAddr("172.31.1.13")})
		err := hosts.Check(netip.MustParseAddr(c.ip))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %v: %v, want %q", c.ip, c.peering.ExternalCIDRs, err, c.want)
		}
	}
	if err := (external.Hosts{}).Check(netip.MustParseAddr("172.31.1.50")); err == nil {
		t.Error("without a Peering it may be exported")
	}
}

func TestOutside(t *testing.T) {
	hosts, _ := external.For(peering(), nodes(), nil)
	for text, want := range map[string]bool{"10.7.0.5": false, "10.6.1.5": false, "10.77.0.1": false, "172.31.1.11": false,
		"172.31.1.50": true, "169.254.169.254": true, "::ffff:10.7.0.5": false, "fd00::1": true} {
		if got := hosts.Outside(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

// TestHostOf: a host outside has its address as name, and a pod may be named like one.
func TestHostOf(t *testing.T) {
	host := external.Name(netip.MustParseAddr("::ffff:172.31.1.50"))
	for _, c := range []struct {
		name, ip, ipv6 string
		want           bool
	}{
		{host, host, "", true},
		{host, "", "", true}, // it is gone
		{"db-0", "10.7.0.5", "", false},
		{"db-0", "", "", false},
		{"10.7.0.5", "10.7.0.6", "", false},
		{"10.7.0.5", "", "fd07::5", false},
		{"", "", "", false},
	} {
		ip, ok := external.HostOf(v1alpha1.GlobalPod{Name: c.name, IP: c.ip, IPv6: c.ipv6})
		if ok != c.want || ok && ip != netip.MustParseAddr("172.31.1.50") {
			t.Errorf("%+v is the host %s, %t", c, ip, ok)
		}
	}
}

// TestRanges: gateways let through what is allowed and nobody's, and say what cannot be.
func TestRanges(t *testing.T) {
	hosts, errs := external.For(peering("10.6.0.0/15", "172.31.1.0/24", "172.31.1.64/26", "0.0.0.0/0", "10.0.0.1/8",
		"169.254.169.254/32", "fd00:9::/64", "here"), nodes(), nil)
	if got, want := fmt.Sprint(hosts.Ranges()),
		"[10.6.0.0/24 10.6.2.0/23 10.6.4.0/22 10.6.8.0/21 10.6.16.0/20 10.6.32.0/19 10.6.64.0/18 10.6.128.0/17 "+
			"172.31.1.0/24]"; got != want {
		t.Errorf("ranges %s, want %s", got, want)
	}
	var reasons []string
	for _, err := range errs {
		reasons = append(reasons, netfacts.Reason(err))
	}
	if got, want := strings.Join(reasons, " "), "DefaultRoute NotMasked Reserved InvalidCIDR InvalidCIDR"; got != want {
		t.Errorf("reasons %s, want %s", got, want)
	}
}

// FuzzFor: nothing that a broker or an admin writes makes a host of what is somebody's.
func FuzzFor(f *testing.F) {
	f.Add("172.31.1.0/24", "172.31.1.50")
	f.Add("0.0.0.0/1", "10.7.0.1")
	f.Add("10.0.0.0/8", "10.9.0.1")
	f.Fuzz(func(t *testing.T, cidr, text string) {
		p := peering(cidr)
		hosts, _ := external.For(p, nodes(), nil)
		ip, err := netip.ParseAddr(text)
		if err != nil || hosts.Check(ip) != nil {
			return
		}
		for _, taken := range []string{"10.7.0.0/16", "10.77.0.0/16", "10.6.1.0/24", "10.9.0.0/16", "10.99.0.0/16",
			"120.1.0.0/24", "120.2.0.0/24", "172.31.1.11/32", "172.31.1.12/32", "169.254.0.0/16", "127.0.0.0/8", "224.0.0.0/3"} {
			if netip.MustParsePrefix(taken).Contains(ip.Unmap()) {
				t.Errorf("%s of %s is in %s", ip, cidr, taken)
			}
		}
		if !netip.MustParsePrefix(cidr).Contains(ip.Unmap()) {
			t.Errorf("%s is not in %s", ip, cidr)
		}
	})
}
