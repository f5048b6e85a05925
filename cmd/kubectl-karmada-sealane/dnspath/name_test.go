// SPDX-License-Identifier: Apache-2.0

package dnspath

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	domains := []string{"clusterset.local", "super.example"}
	long := strings.Repeat("a", 63)
	for text, want := range map[string]string{
		"cart.shop.svc.clusterset.local":              "service cart in namespace shop",
		"Cart.Shop.SVC.ClusterSet.Local.":             "service cart in namespace shop",
		"cart.shop.svc.super.example":                 "service cart in namespace shop",
		"cart":                                        "service cart in namespace mine",
		"cart.shop":                                   "service cart in namespace shop",
		"cart.shop.svc":                               "service cart in namespace shop",
		"c2.cart.shop.svc":                            "service cart in namespace shop, of cluster c2",
		"c2.cart.shop.svc.clusterset.local":           "service cart in namespace shop, of cluster c2",
		"pod-0.c2.cart.shop.svc.clusterset.local":     "service cart in namespace shop, of cluster c2, host pod-0",
		"_http._tcp.cart.shop.svc.clusterset.local":   "service cart in namespace shop, port http/tcp",
		"_a._udp.c2.cart.shop.svc.clusterset.local":   "service cart in namespace shop, of cluster c2, port a/udp",
		"dns-version.clusterset.local":                "is the version of the schema of clusterset.local",
		"dns-version":                                 "is the version of the schema of clusterset.local",
		"svc.svc.svc.clusterset.local":                "service svc in namespace svc",
		"":                                            "found: nothing",
		".":                                           "found: nothing",
		"clusterset.local":                            "is the domain itself",
		"cart.shop.svc.cluster.local":                 "ask for cart.shop.svc.clusterset.local",
		"cart.shop.clusterset.local":                  "perhaps cart.shop.svc.clusterset.local is meant",
		"c2.cart.shop":                                "none of the domains clusterset.local, super.example",
		"www.example.org":                             "none of the domains",
		"shop.svc.clusterset.local":                   "a namespace and no service",
		"svc.clusterset.local":                        "a namespace and no service",
		"x.y.c2.cart.shop.svc.clusterset.local":       "5 labels before svc are more",
		"_http.cart.shop.svc.clusterset.local":        "a port without a protocol",
		"_http._http.cart.shop.svc.clusterset.local":  `"_http" is no protocol`,
		"_a._tcp.p.c2.cart.shop.svc.clusterset.local": "a port of a single host",
		"cart_1.shop.svc.clusterset.local":            `"cart_1" is no label`,
		"cart..shop.svc.clusterset.local":             `"" is no label`,
		long + "a.shop.svc.clusterset.local":          "is no label",
		strings.Repeat(long+".", 4) + "svc":           "more than 253",
		"cart.shop.svc.clusterset.local\x00":          "is in none of the domains",
	} {
		n, broken := Parse(text, "mine", domains)
		var got string
		if broken == nil {
			got = n.describe()
		} else {
			got = "expected: " + broken.Expected + " found: " + broken.Found + " to do: " + broken.Remedy
			if broken.Expected == "" || broken.Found == "" || broken.Remedy == "" || broken.Verdict != Broken {
				t.Errorf("%q: incomplete: %+v", text, broken)
			}
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: got %q, expected %q in it", text, got, want)
		}
	}
	if _, broken := Parse("cart", "mine", nil); broken == nil {
		t.Error("a ClusterSet without domains has names")
	}
}

// FuzzParse: whatever is asked for, a name comes back in parts that make it up again, or what is wrong.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"cart.shop.svc.clusterset.local", "_a._tcp.x.y.z.svc.d.e", "dns-version.d.e", "..",
		"a.b.c.svc", "_", "svc"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, broken := Parse(text, "mine", []string{"clusterset.local", "d.e"})
		if broken != nil {
			return
		}
		var labels []string
		if n.Protocol != "" {
			labels = append(labels, "_"+n.Port, "_"+n.Protocol)
		}
		for _, part := range []string{n.Host, n.Cluster, n.Service, n.Namespace} {
			if part != "" {
				labels = append(labels, part)
			}
		}
		again := strings.Join(append(labels, "svc", n.Domain), ".")
		if n.Kind == Version {
			again = "dns-version." + n.Domain
		}
		if again != n.FQDN || len(n.FQDN) > maxName {
			t.Errorf("%q is %+v, which is %q", text, n, again)
		}
	})
}
