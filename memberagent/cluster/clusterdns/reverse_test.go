// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// withReverse is the block for one domain and 10.96.0.0/16.
const withReverse = `# BEGIN sealane
clusterset.local:53 {
    errors
    forward . 10.96.0.7
}
96.10.in-addr.arpa:53 {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        labels !sealane.io/import,!kubernetes.io/service-name
        fallthrough
    }
    forward . 10.96.0.7
}
# END sealane
`

func networks(services ...string) v1alpha1.Networks {
	return v1alpha1.Networks{PodCIDRs: []string{"10.244.0.0/16"}, ServiceCIDRs: services}
}

func TestReverseNamesAreForwarded(t *testing.T) {
	f := forward
	f.Networks = networks("10.96.0.0/16")
	for name, corefile := range map[string]string{"kubeadm": kubeadm, "k3s": k3s} {
		got, unforwarded, err := Add(corefile, f)
		if got != withReverse+corefile || unforwarded != nil || err != nil {
			t.Errorf("%s: got %s\n%v, %v", name, got, unforwarded, err)
		}
		if again, _, err := Add(got, f); again != got || err != nil {
			t.Errorf("%s, again: got %s\n%v", name, again, err)
		}
		if TakesClusterDomain(got, "cluster.local") {
			t.Errorf("%s: the block counts as one that takes the cluster's names", name)
		}
	}
}

// The names of addresses are forwarded only where the kubernetes plugin of the block can answer all that had one.
func TestReverseNamesStayWhereTheyAre(t *testing.T) {
	stockWith := func(line string) string { return strings.Replace(kubeadm, "    ready\n", "    ready\n"+line, 1) }
	property := func(line string) string {
		return strings.Replace(kubeadm, "       ttl 30\n", "       ttl 30\n       "+line+"\n", 1)
	}
	for _, c := range []struct {
		name, corefile string
		networks       v1alpha1.Networks
		// why is part of what is said, "" where they are forwarded.
		why string
	}{
		{"before acceptance", kubeadm, networks(), "not accepted yet"},
		{"a network that is none", kubeadm, networks("10.96.0.0/12/3"), "parse the service network"},
		{"one as large as Kubernetes has none", kubeadm, networks("172.0.0.0/8"), "too many addresses"},
		{"many zones", kubeadm, networks("10.96.0.0/17", "10.97.0.0/24"), "too many addresses"},
		{"pods within", kubeadm, networks("10.244.0.0/20"), "overlaps the pods' 10.244.0.0/16"},
		{"a cluster without reverse names", strings.ReplaceAll(kubeadm, "cluster.local in-addr.arpa ip6.arpa {",
			"cluster.local {"),
			networks("10.96.0.0/16"), "gives no names to addresses in 96.10.in-addr.arpa"},
		{"another kubeconfig", property("kubeconfig /etc/other"), networks("10.96.0.0/16"), "has the property kubeconfig"},
		{"some namespaces", property("namespaces a b"), networks("10.96.0.0/16"), "has the property namespaces"},
		{"some labels", property("labels a=b"), networks("10.96.0.0/16"), "has the property labels"},
		{"other properties", property("pods verified"), networks("10.96.0.0/16"), ""},
		{"no cluster domain", strings.ReplaceAll(kubeadm, "kubernetes cluster.local ", "kubernetes "),
			networks("10.96.0.0/16"), "the cluster domain of the plugin kubernetes"},
		{"a zone of the company's", kubeadm + "10.in-addr.arpa:53 {\n    forward . 192.0.2.1\n}\n", networks("10.96.0.0/16"),
			"served by the server block 10.in-addr.arpa:53"},
		{"a zone within", kubeadm + "1.96.10.in-addr.arpa:53 {\n    forward . 192.0.2.1\n}\n", networks("10.96.0.0/16"),
			"served by the server block 1.96.10.in-addr.arpa:53"},
		{"a forwarded zone", stockWith("    forward 10.in-addr.arpa 192.0.2.1\n"), networks("10.96.0.0/16"),
			"the plugin forward"},
		{"a zone in CIDR notation", kubeadm + "10.96.0.0/16:53 {\n    forward . 192.0.2.1\n}\n", networks("10.96.0.0/16"),
			"10.96.0.0/16 is served by the server block"},
		{"a forwarded network", stockWith("    forward 10.0.0.0/8 192.0.2.1\n"), networks("10.96.0.0/16"),
			"10.0.0.0/8 is served by the plugin forward"},
		{"a host within", stockWith("    hosts {\n       10.96.3.4 a.example\n    }\n"), networks("10.96.0.0/16"),
			"the plugin hosts"},
		{"a host elsewhere", stockWith("    hosts {\n       172.18.0.1 host.docker.internal\n    }\n"),
			networks("10.96.0.0/16"), ""},
		{"another cluster domain", company, networks("10.96.0.0/16"), ""},
		{"the node's cache", nodeLocal, networks("10.96.0.0/16"), "the server block in-addr.arpa:53"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := forward
			f.Networks = c.networks
			with, unforwarded, err := Add(c.corefile, f)
			if err != nil {
				t.Fatal(err)
			}
			if forwarded := strings.Contains(with, notDerived); forwarded != (c.why == "") || forwarded != (unforwarded == nil) {
				t.Fatalf("got %s\n%v", with, unforwarded)
			}
			if c.why != "" && !strings.Contains(unforwarded.Error(), c.why) {
				t.Errorf("got %v, want %s", unforwarded, c.why)
			}
		})
	}
	f := forward
	f.Networks = networks("10.96.0.0/16")
	if with, _, err := Add(company, f); err != nil || !strings.Contains(with, "    kubernetes k8s.acme.internal "+
		"in-addr.arpa ip6.arpa {\n") {
		t.Errorf("another cluster domain: %s, %v", with, err)
	}
}

func TestReverseZonesOfANetwork(t *testing.T) {
	for text, want := range map[string][]string{
		"10.96.0.0/16":       {"96.10.in-addr.arpa"},
		"10.43.7.0/24":       {"7.43.10.in-addr.arpa"},
		"10.96.4.0/23":       {"4.96.10.in-addr.arpa", "5.96.10.in-addr.arpa"},
		"10.96.0.0/14":       {"96.10.in-addr.arpa", "97.10.in-addr.arpa", "98.10.in-addr.arpa", "99.10.in-addr.arpa"},
		"10.96.0.8/31":       {"8.0.96.10.in-addr.arpa", "9.0.96.10.in-addr.arpa"},
		"255.255.255.255/32": {"255.255.255.255.in-addr.arpa"},
		"10.0.0.0/8":         nil,
		"fd00:88::/64":       {"0.0.0.0.0.0.0.0.8.8.0.0.0.0.d.f.ip6.arpa"},
		"fd00:88::/63":       nil,
		"fd00:10::20:0/107": {
			"2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.0.0.0.d.f.ip6.arpa",
			"3.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.0.0.0.d.f.ip6.arpa",
		},
	} {
		if got := zonesOf(netip.MustParsePrefix(text).Masked()); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
	if got := len(zonesOf(netip.MustParsePrefix("10.96.0.0/17"))); got != 128 {
		t.Errorf("got %d zones, want 128", got)
	}
}
